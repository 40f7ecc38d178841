package health

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ListeningSocket is a socket of this node that accepts TCP connections.
type ListeningSocket struct {
	Address string // the bound address; "0.0.0.0" or "::" for all
	Port    int
	PID     int    // the lowest PID of its processes; 0 if it is not visible: another user's process
	Command string // name of that process; empty if PID is 0
	User    string // name of the socket's owner, or its id without a local account

	userID int   // the id of User
	pids   []int // all of its processes, once for each descriptor of the socket
	inode  string
}

// String describes the owner of the port, as the end of a sentence.
func (l ListeningSocket) String() string {
	port := fmt.Sprintf("port %d of %s", l.Port, l.Address)
	if l.PID == 0 {
		return fmt.Sprintf("%s is held by a process of user %s that is not visible here", port, l.User)
	}
	return fmt.Sprintf("%s is held by pid %d (%s) of user %s", port, l.PID, l.Command, l.User)
}

// FindListeners returns the listeners on the TCP ports from low to high in this process's network
// namespace, on IPv4 or IPv6, in the kernel's order. It is no error if there are none.
func FindListeners(low, high int) ([]ListeningSocket, error) {
	ports := []int{low}
	for len(ports) <= high-low {
		ports = append(ports, low+len(ports))
	}
	return findListenersOn("/proc", ports...)
}

func findListenersOn(proc string, ports ...int) ([]ListeningSocket, error) {
	found, err := findListenerSockets(proc, ports...)
	if len(found) > 0 {
		addProcessInfo(proc, found)
	}
	return found, err
}

// findListenerSockets returns the listeners without their processes, because the search for these
// takes longer than everything else.
func findListenerSockets(proc string, ports ...int) (found []ListeningSocket, err error) {
	if len(ports) == 0 {
		return nil, nil
	}
	sockets, err := readListeners(proc)
	if err != nil {
		return nil, fmt.Errorf("cannot determine which process listens on port %d: %v", ports[0], err)
	}
	for _, s := range sockets {
		if slices.Contains(ports, int(s.local.Port())) {
			found = append(found, s.toListeningSocket())
		}
	}
	return found, nil
}

// toListeningSocket returns a listening socket as a ListeningSocket.
func (s socket) toListeningSocket() ListeningSocket {
	return ListeningSocket{
		Port: int(s.local.Port()), Address: s.local.Addr().String(),
		User: userName(s.user), userID: s.user, inode: s.inode,
	}
}

// A socket is a line of the kernel's tables of TCP sockets.
type socket struct {
	local, remote netip.AddrPort // an IPv4 address has the same form in both tables
	state         string
	user          int
	inode         string // noInode if no process has it: it was not accepted yet, or is closed
}

// States of a socket, and the inode of a socket without a process.
const (
	stateEstablished = "01"
	stateListening   = "0A"
	noInode          = "0"
)

// readListeners returns the listeners of this process's network namespace, from the tables if the
// kernel does not answer queries.
func readListeners(proc string) ([]socket, error) {
	if proc == "/proc" {
		if found, ok := queryListeners(); ok {
			return found, nil
		}
	}
	return readSockets(proc, func(s socket) bool { return s.state == stateListening })
}

// readSockets returns the sockets of this process's network namespace for which wanted returns
// true. In each of the two tables listeners come before connections.
func readSockets(proc string, wanted func(socket) bool) ([]socket, error) {
	var found []socket
	for _, table := range []string{"tcp", "tcp6"} {
		// self/net is the network namespace of the calling process, from which it connects.
		file, err := os.Open(filepath.Join(proc, "self", "net", table))
		if table == "tcp6" && errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		found, err = appendSockets(found, file, wanted)
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %v", file.Name(), err)
		}
	}
	return found, nil
}

// appendSockets parses one table. Its columns are: number, local address, remote address, state,
// queues, timer, retransmissions, user, timeout, inode.
func appendSockets(found []socket, table io.Reader, wanted func(socket) bool) ([]socket, error) {
	lines := bufio.NewScanner(table)
	lines.Scan() // the heading
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 {
			continue
		}
		local, err := parseSocketAddress(fields[1])
		remote, remoteErr := parseSocketAddress(fields[2])
		user, userErr := strconv.Atoi(fields[7])
		if err := cmp.Or(err, remoteErr, userErr); err != nil {
			return nil, err
		}
		s := socket{local: local, remote: remote, state: fields[3], user: user, inode: fields[9]}
		if wanted(s) {
			found = append(found, s)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return found, nil
}

// parseSocketAddress parses "0100007F:1F90": the address as words of 32 bits in the machine's byte
// order, then the port.
func parseSocketAddress(s string) (netip.AddrPort, error) {
	words, portText, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(words)
	port, portErr := strconv.ParseUint(portText, 16, 16)
	if err != nil || portErr != nil || (len(raw) != 4 && len(raw) != 16) {
		return netip.AddrPort{}, fmt.Errorf("%q is not the address of a socket", s)
	}
	for at := 0; at < len(raw); at += 4 {
		binary.NativeEndian.PutUint32(raw[at:], binary.BigEndian.Uint32(raw[at:]))
	}
	addr, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
}

// addProcessInfo adds the processes of the sockets, as far as they are visible to this user, and
// their users.
func addProcessInfo(proc string, found []ListeningSocket) {
	byLink := map[string]*ListeningSocket{}
	for i := range found {
		byLink["socket:["+found[i].inode+"]"] = &found[i]
	}
	entries, _ := os.ReadDir(proc)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// Without entries the process has gone, or belongs to another user.
		fds, _ := os.ReadDir(filepath.Join(proc, entry.Name(), "fd"))
		for _, fd := range fds {
			link, _ := os.Readlink(filepath.Join(proc, entry.Name(), "fd", fd.Name()))
			if l := byLink[link]; l != nil {
				l.pids = append(l.pids, pid)
			}
		}
	}
	for i := range found {
		if l := &found[i]; len(l.pids) > 0 {
			l.PID = slices.Min(l.pids)
			command, _ := os.ReadFile(filepath.Join(proc, strconv.Itoa(l.PID), "comm"))
			l.Command = printableExcerpt(command)
		}
	}
}

// userName returns the name of a user's local account, or the id if there is none.
func userName(user int) string {
	return append(accountNames("/", user), strconv.Itoa(user))[0]
}

// accountNames returns the names of a user's local accounts. It does not query directory services,
// which could be slow.
func accountNames(root string, user int) (names []string) {
	accounts, _ := os.ReadFile(filepath.Join(root, "etc/passwd"))
	for line := range strings.Lines(string(accounts)) {
		if fields := strings.Split(line, ":"); len(fields) > 2 && fields[2] == strconv.Itoa(user) {
			names = append(names, fields[0])
		}
	}
	return names
}

// PortsOfListeners returns the sorted TCP ports from low to high on which processes listen.
func PortsOfListeners(low, high int) (ports []int, err error) {
	sockets, err := readListeners("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot determine on which ports processes listen: %v", err)
	}
	for _, s := range sockets {
		if port := int(s.local.Port()); low <= port && port <= high {
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports), nil
}

// ListeningPorts returns the sorted TCP ports on which processes listen for which owns returns true.
func ListeningPorts(owns func(pid int) bool) (ports []int, err error) {
	sockets, err := readListeners("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot determine on which ports processes listen: %v", err)
	}
	found := make([]ListeningSocket, len(sockets))
	for i, s := range sockets {
		found[i] = s.toListeningSocket()
	}
	addProcessInfo("/proc", found)
	for _, socket := range found {
		if slices.ContainsFunc(socket.pids, owns) {
			ports = append(ports, socket.Port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports), nil
}
