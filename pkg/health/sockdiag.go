package health

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"sync/atomic"

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
	diagAnswerSize = diagHeaderSize + 72
	diagQueryID    = diagHeaderSize + 8
	diagAnswerID   = diagHeaderSize + 4
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
	every := netip.IPv6Unspecified()
	if address.Addr().Is4() {
		every = netip.IPv4Unspecified()
	}
	s, found = findSocket(address, netip.AddrPortFrom(every, 0))
	return s, found && s.state == stateListening && s.local.Port() == address.Port()
}

// findSocket returns the socket that the kernel would give a segment from remote to local.
func findSocket(local, remote netip.AddrPort) (s socket, found bool) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return s, false
	}
	defer func() { _ = unix.Close(fd) }()
	// The kernel answers at once. The limit is for kernels that do not.
	if unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}) != nil {
		return s, false
	}
	if unix.Sendto(fd, diagQuery(local, remote), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return s, false
	}
	answer := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < diagAnswerSize || binary.NativeEndian.Uint16(answer[4:]) != unix.SOCK_DIAG_BY_FAMILY {
		return s, false
	}
	hasSocketQueries.Store(true)
	id := answer[diagAnswerID:]
	return socket{
		local:  netip.AddrPortFrom(local.Addr(), binary.BigEndian.Uint16(id)),
		remote: netip.AddrPortFrom(remote.Addr(), binary.BigEndian.Uint16(id[2:])),
		state:  tableState(answer[diagHeaderSize+1]),
		user:   int(binary.NativeEndian.Uint32(answer[diagHeaderSize+64:])),
		inode:  strconv.FormatUint(uint64(binary.NativeEndian.Uint32(answer[diagHeaderSize+68:])), 10),
	}, true
}

// tableState returns a state of a socket as the kernel's tables show it.
func tableState(state byte) string {
	const digits = "0123456789ABCDEF"
	return string([]byte{digits[state>>4], digits[state&15]})
}

// diagQuery returns the message that asks for one socket.
func diagQuery(local, remote netip.AddrPort) []byte {
	query := make([]byte, diagQuerySize)
	binary.NativeEndian.PutUint32(query, diagQuerySize)
	binary.NativeEndian.PutUint16(query[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(query[6:], unix.NLM_F_REQUEST)
	query[diagHeaderSize], query[diagHeaderSize+1] = unix.AF_INET6, unix.IPPROTO_TCP
	if local.Addr().Is4() {
		query[diagHeaderSize] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(query[diagHeaderSize+4:], ^uint32(0)) // in any state
	id := query[diagQueryID:]
	binary.BigEndian.PutUint16(id, local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:20], local.Addr().AsSlice())
	copy(id[20:36], remote.Addr().AsSlice())
	binary.NativeEndian.PutUint64(id[40:], ^uint64(0)) // INET_DIAG_NOCOOKIE
	return query
}
