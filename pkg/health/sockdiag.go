package health

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// hasSocketQueries reports that the kernel has answered a query of [querySocket] once. Without the
// module inet_diag, it reports every socket as missing.
var hasSocketQueries atomic.Bool

// Sizes of the kernel's structures, and places in them: struct nlmsghdr, inet_diag_req_v2 and
// inet_diag_msg. The last two have the addresses at the same place after different beginnings.
const (
	diagHeaderSize = 16
	diagQuerySize  = diagHeaderSize + 56
	diagQueryID    = diagHeaderSize + 8
	diagAnswerSize = 72
	diagAnswerID   = 4
)

// querySocket asks the kernel for the TCP socket of this network namespace that is bound to local and
// connected to remote. Unlike reading the tables, this takes the same time however many sockets there
// are. It returns false if the kernel shows no such socket or answers no such queries.
func querySocket(local, remote netip.AddrPort) (s socket, found bool) {
	s, found = findSocket(local, remote)
	return s, found && s.local.Port() == local.Port() && s.remote.Port() == remote.Port()
}

// queryListener asks the kernel for the listener that accepts connections to an address.
func queryListener(address netip.AddrPort) (s socket, found bool) {
	s, found = findSocket(address, netip.AddrPort{})
	return s, found && s.state == stateListening && s.local.Port() == address.Port()
}

// findSocket returns the socket that the kernel would give a segment from remote to local.
func findSocket(local, remote netip.AddrPort) (s socket, found bool) {
	// In any state; the kernel sends one answer.
	_ = askKernel(diagQuery(local, remote, ^uint32(0), unix.NLM_F_REQUEST), func(answer socket) bool {
		s, found = answer, true
		return false
	})
	return s, found
}

// queryListeners returns all listeners of this network namespace. Unlike reading the tables, this does
// not walk the kernel's table of connections, whose size follows from the memory of the node. ok is
// false if the kernel does not answer such queries.
func queryListeners() (found []socket, ok bool) {
	for _, every := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		nothing := netip.AddrPortFrom(every, 0)
		query := diagQuery(nothing, nothing, 1<<stateListening, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
		if askKernel(query, func(s socket) bool { found = append(found, s); return true }) != nil {
			return nil, false
		}
	}
	return found, true
}

// errNoAnswer reports that the kernel has not answered a query of sockets.
var errNoAnswer = errors.New("no answer of the kernel")

// askKernel sends a query of sockets and passes each answer to next, until that returns false, or the
// kernel has sent all of them.
func askKernel(query []byte, next func(socket) bool) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	// The kernel answers at once. The limit is for kernels that do not.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return err
	}
	if err := unix.Sendto(fd, query, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buffer := make([]byte, 32<<10) // the largest message of the kernel
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			isAnswer := m.Header.Type == unix.SOCK_DIAG_BY_FAMILY && len(m.Data) >= diagAnswerSize
			switch {
			case isAnswer:
				hasSocketQueries.Store(true)
				if !next(parseAnswer(m.Data)) {
					return nil
				}
			case m.Header.Type == unix.NLMSG_DONE && len(m.Data) >= 4 && binary.NativeEndian.Uint32(m.Data) == 0:
				return nil
			default:
				return errNoAnswer
			}
		}
	}
}

// parseAnswer returns the socket of an inet_diag_msg, in the form of readSockets.
func parseAnswer(answer []byte) socket {
	id := answer[diagAnswerID:]
	address := func(at int) netip.Addr {
		if answer[0] == unix.AF_INET {
			return netip.AddrFrom4([4]byte(id[at:]))
		}
		return netip.AddrFrom16([16]byte(id[at:])).Unmap()
	}
	return socket{
		local:  netip.AddrPortFrom(address(4), binary.BigEndian.Uint16(id)),
		remote: netip.AddrPortFrom(address(20), binary.BigEndian.Uint16(id[2:])),
		state:  uint64(answer[1]),
		user:   int(binary.NativeEndian.Uint32(answer[64:])),
		inode:  uint64(binary.NativeEndian.Uint32(answer[68:])),
	}
}

// diagQuery returns the message that asks for sockets in the states whose bits are set.
func diagQuery(local, remote netip.AddrPort, states uint32, flags uint16) []byte {
	query := make([]byte, diagQuerySize)
	binary.NativeEndian.PutUint32(query, diagQuerySize)
	binary.NativeEndian.PutUint16(query[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(query[6:], flags)
	query[diagHeaderSize], query[diagHeaderSize+1] = unix.AF_INET6, unix.IPPROTO_TCP
	if local.Addr().Is4() {
		query[diagHeaderSize] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(query[diagHeaderSize+4:], states)
	id := query[diagQueryID:]
	binary.BigEndian.PutUint16(id, local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:20], local.Addr().AsSlice())
	copy(id[20:36], remote.Addr().AsSlice())
	binary.NativeEndian.PutUint64(id[40:], ^uint64(0)) // INET_DIAG_NOCOOKIE
	return query
}
