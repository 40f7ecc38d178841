package health

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// DialTrusted connects to an address like a net.Dialer. If it is an address of this node, Dial
// returns the connection only if the connection and every listener on its port belong to trusted
// users. It sends nothing before that is known. (Two users cannot listen on the same address and
// port, but one may listen on IPv4 and the other on IPv6, or each on another address.)
func DialTrusted(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := currentTrustedUsers().checkConn("/proc", conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// checkConn returns an error if a connection to this node does not lead to a trusted user.
func (t trustedUsers) checkConn(proc string, conn net.Conn) error {
	here, there := connAddress(conn.LocalAddr()), connAddress(conn.RemoteAddr())
	if here.Addr() != there.Addr() && !isThisNode(there.Addr().String(), "", ownAddresses()) {
		return nil
	}
	// The other end is missing if it is in another network namespace, which requires that root has
	// configured the kernel to translate the address. A single read may also miss a socket while
	// others come and go, but two reads do not.
	for range 2 {
		seen, err := t.checkSockets(proc, here, there)
		if seen || err != nil {
			return err
		}
	}
	return nil
}

// checkSockets searches the other end of a connection between two addresses of this node, and
// reports whether it was found.
func (t trustedUsers) checkSockets(proc string, here, there netip.AddrPort) (seen bool, err error) {
	sockets, err := readSockets(proc, func(s socket) bool {
		return s.state == stateListening && s.local.Port() == there.Port() ||
			s.local == there && s.remote == here || s.local == here && s.remote == there
	})
	if err != nil {
		return false, fmt.Errorf("cannot determine which user accepted the connection to %s: %v", there, err)
	}
	// Classify the sockets: listeners on the port, the other end, and this end of the connection.
	var other *socket
	connected, listeners := false, 0
	for i, s := range sockets {
		switch {
		case s.state == stateListening:
			if !t.includes(s.user) {
				found := []ListeningSocket{s.toListeningSocket()}
				addProcessInfo(proc, found)
				return true, t.refusalError(found[0])
			}
			listeners++
		case s.local == there:
			other = &sockets[i]
		default:
			connected = s.state == stateEstablished
		}
	}
	switch {
	case other == nil && !connected, other != nil && other.inode == noInode && listeners == 0:
		return true, fmt.Errorf("connection closed by %s", there)
	case other == nil:
		return false, nil
	case other.inode == noInode:
		// The connection waits in the queue of a listener that still exists and that was checked above:
		// if another user had accepted it and closed the listener, the socket would have an inode. Or the
		// other end has closed it, so that no process receives data.
		return true, nil
	case !t.includes(other.user):
		return true, fmt.Errorf("cannot trust the connection to %s: user %s has accepted it, and the job runs as user %s",
			there, userName(other.user), userName(t.ownUser))
	}
	return true, nil
}

// connAddress returns an end of a TCP connection, in the form of readSockets.
func connAddress(addr net.Addr) netip.AddrPort {
	end := addr.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(end.Addr().Unmap().WithZone(""), end.Port())
}

// IsOwnClient reports whether an accepted connection comes from a process of this user or of root on
// this node. Other users whom services may have, such as those of child processes, are not enough.
func IsOwnClient(conn net.Conn) bool {
	only := currentTrustedUsers()
	only.subordinate, only.descendantUsers = nil, func() []int { return nil }
	return only.trustsClient("/proc", conn)
}

// trustsClient reports whether the other end of an accepted connection belongs to a trusted user.
func (t trustedUsers) trustsClient(proc string, conn net.Conn) bool {
	here, there := connAddress(conn.LocalAddr()), connAddress(conn.RemoteAddr())
	// A single read may miss a socket while others come and go.
	for range 2 {
		clients, err := readSockets(proc, func(s socket) bool { return s.local == there && s.remote == here })
		if err != nil {
			return false
		}
		if len(clients) > 0 {
			// The kernel shows a socket that its process has closed as one of root.
			return !slices.ContainsFunc(clients, func(s socket) bool { return s.inode == noInode || !t.includes(s.user) })
		}
	}
	return false
}
