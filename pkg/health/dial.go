package health

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// DialTrusted connects to an address like a net.Dialer. If it is an address of this node, Dial
// returns the connection only if a trusted user has accepted it, or will: the kernel's tables say
// whose the other end is. It sends nothing before that is known. Two users cannot listen on the same
// address and port, but one may listen on IPv4 and the other on IPv6, or each on another address:
// if a name of this node leads to another user, its other addresses are tried.
func DialTrusted(ctx context.Context, network, address string) (net.Conn, error) {
	conn, refused, err := dialChecked(ctx, network, address)
	host, port, splitErr := net.SplitHostPort(address)
	if !refused || splitErr != nil || net.ParseIP(host) != nil {
		return conn, err
	}
	addrs, lookupErr := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if lookupErr != nil {
		return nil, err
	}
	for _, addr := range addrs {
		if conn, _, other := dialChecked(ctx, network, net.JoinHostPort(addr.Unmap().String(), port)); other == nil {
			return conn, nil
		}
	}
	return nil, err
}

// dialChecked connects to an address. It reports whether it has refused a connection to this node,
// because it does not lead to a trusted user.
func dialChecked(ctx context.Context, network, address string) (conn net.Conn, refused bool, err error) {
	var dialer net.Dialer
	if conn, err = dialer.DialContext(ctx, network, address); err != nil {
		return nil, false, err
	}
	trusted := currentTrustedUsers()
	if trusted.hasTrustedPeer(connAddress(conn.LocalAddr()), connAddress(conn.RemoteAddr())) {
		return conn, false, nil
	}
	if err := trusted.checkConn("/proc", conn); err != nil {
		_ = conn.Close()
		return nil, true, err
	}
	return conn, false, nil
}

// hasTrustedPeer reports whether the kernel shows that a trusted user has accepted a connection to
// this node, or will: it waits in the queue of that user's listener. Otherwise the tables say why.
func (t trustedUsers) hasTrustedPeer(here, there netip.AddrPort) bool {
	listener, listens := queryListener(there) // first: see checkSockets
	other, found := querySocket(there, here)
	if found && other.inode == noInode {
		return listens && t.includes(listener.user)
	}
	return found && t.includes(other.user)
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
	// Classify the sockets: the listener that serves the address, the other end of the connection, and
	// this one.
	var listener, other *socket
	connected := false
	for i, s := range sockets {
		switch {
		case s.state == stateListening:
			if rank := s.servingRank(there.Addr()); rank > 0 &&
				(listener == nil || rank > listener.servingRank(there.Addr())) {
				listener = &sockets[i]
			}
		case s.local == there:
			other = &sockets[i]
		default:
			connected = s.state == stateEstablished
		}
	}
	isAccepted := other != nil && other.inode != noInode
	switch {
	case isAccepted && t.includes(other.user):
		return true, nil
	case listener != nil && !t.includes(listener.user):
		found := []ListeningSocket{listener.toListeningSocket()}
		addProcessInfo(proc, found)
		return true, t.refusalError(found[0])
	case isAccepted:
		return true, fmt.Errorf("cannot trust the connection to %s: user %s has accepted it, and "+
			"the job runs as user %s",
			there, userName(other.user), userName(t.ownUser))
	case other == nil && !connected, other != nil && listener == nil:
		return true, fmt.Errorf("connection closed by %s", there)
	case other == nil:
		return false, nil
	}
	// The connection waits in the queue of the listener, which still exists and is trusted: if another
	// user had accepted it and closed the listener, the socket would have an inode. Or the other end has
	// closed it, so that no process receives data.
	return true, nil
}

// servingRank returns 0 if a listening socket does not accept connections to an address, and a
// higher number the more exactly it is bound to it: of several, the kernel chooses the most exact.
func (s socket) servingRank(addr netip.Addr) int {
	own := s.local.Addr()
	switch {
	case own == addr:
		return 3
	case own.IsUnspecified() && own.Is4() == addr.Is4():
		return 2
	case own.IsUnspecified() && own.Is6(): // unless it is for IPv6 alone, which the table does not show
		return 1
	}
	return 0
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

func (t trustedUsers) trustsClient(proc string, conn net.Conn) bool {
	here, there := connAddress(conn.LocalAddr()), connAddress(conn.RemoteAddr())
	if client, found := querySocket(there, here); found {
		return t.isClient(client)
	}
	if !hasSocketQueries.Load() {
		querySocket(here, there) // exists
	}
	if hasSocketQueries.Load() {
		return false
	}
	// A single read may miss a socket while others come and go.
	for range 2 {
		clients, err := readSockets(proc, func(s socket) bool { return s.local == there && s.remote == here })
		if err != nil {
			return false
		}
		if len(clients) > 0 {
			return !slices.ContainsFunc(clients, func(s socket) bool { return !t.isClient(s) })
		}
	}
	return false
}

// isClient reports whether a trusted user has a socket. The kernel shows one that its process has
// closed as one of root.
func (t trustedUsers) isClient(s socket) bool { return s.inode != noInode && t.includes(s.user) }
