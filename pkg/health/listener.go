package health

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
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
	inode  uint64
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

func (s socket) toListeningSocket() ListeningSocket {
	return ListeningSocket{
		Port: int(s.local.Port()), Address: s.local.Addr().String(),
		User: userName(s.user), userID: s.user, inode: s.inode,
	}
}

// socket is a TCP socket of this process's network namespace.
type socket struct {
	local, remote netip.AddrPort // an IPv4 address has the same form in both tables of the kernel
	state         uint64
	user          int
	inode         uint64 // noInode if no process has it: it was not accepted yet, or is closed
}

// States of a socket, and the inode of a socket without a process.
const (
	stateEstablished = unix.BPF_TCP_ESTABLISHED
	stateListening   = unix.BPF_TCP_LISTEN
	noInode          = 0
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

// readSockets returns the sockets in the kernel's tables for which wanted returns true. In each of
// the two tables listeners come before connections.
func readSockets(proc string, wanted func(socket) bool) (found []socket, err error) {
	self, err := procfs.NewFS(filepath.Join(proc, "self"))
	if err != nil {
		return nil, err
	}
	// Kernels that answer queries by netlink are asked by queryListeners.
	table, err := self.NetTCP() //nolint:staticcheck // it is deprecated in favour of netlink
	if err != nil {
		return nil, err
	}
	table6, err := self.NetTCP6()                      //nolint:staticcheck // the same
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
		return nil, err
	}
	for _, line := range slices.Concat(table, table6) {
		s := socket{
			local: tableAddress(line.LocalAddr, line.LocalPort), remote: tableAddress(line.RemAddr, line.RemPort),
			state: line.St, user: int(line.UID), inode: line.Inode,
		}
		if wanted(s) {
			found = append(found, s)
		}
	}
	return found, nil
}

func tableAddress(ip net.IP, port uint64) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), uint16(port))
}

// addProcessInfo adds the processes of the sockets, as far as they are visible to this user.
func addProcessInfo(proc string, found []ListeningSocket) {
	byLink := map[string]*ListeningSocket{}
	for i := range found {
		byLink[fmt.Sprintf("socket:[%d]", found[i].inode)] = &found[i]
	}
	var processes procfs.Procs
	if all, err := procfs.NewFS(proc); err == nil {
		processes, _ = all.AllProcs()
	}
	for _, one := range processes {
		links, _ := one.FileDescriptorTargets() // none if it has gone, or belongs to another user
		for _, link := range links {
			if l := byLink[link]; l != nil {
				l.pids = append(l.pids, one.PID)
				if command, _ := one.Comm(); l.PID == 0 || one.PID < l.PID {
					l.PID, l.Command = one.PID, printableExcerpt([]byte(command))
				}
			}
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
func PortsOfListeners(low, high int) ([]int, error) {
	return listeningPorts(func(found []ListeningSocket) []ListeningSocket {
		return slices.DeleteFunc(found, func(l ListeningSocket) bool { return l.Port < low || l.Port > high })
	})
}

// ListeningPorts returns the sorted TCP ports on which processes listen for which owns returns true.
func ListeningPorts(owns func(pid int) bool) ([]int, error) {
	return listeningPorts(func(found []ListeningSocket) []ListeningSocket {
		addProcessInfo("/proc", found)
		return slices.DeleteFunc(found, func(l ListeningSocket) bool { return !slices.ContainsFunc(l.pids, owns) })
	})
}

func listeningPorts(choose func([]ListeningSocket) []ListeningSocket) (ports []int, err error) {
	sockets, err := readListeners("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot determine on which ports processes listen: %v", err)
	}
	var found []ListeningSocket
	for _, s := range sockets {
		found = append(found, s.toListeningSocket())
	}
	for _, l := range choose(found) {
		ports = append(ports, l.Port)
	}
	slices.Sort(ports)
	return slices.Compact(ports), nil
}

// EphemeralPorts returns the first and the last port that the kernel below root assigns
// automatically. It returns zeros if they are unknown.
func EphemeralPorts(root string) [2]int {
	text, _ := os.ReadFile(filepath.Join("/", root, "proc/sys/net/ipv4/ip_local_port_range"))
	var low, high int
	if _, err := fmt.Sscan(string(text), &low, &high); err != nil {
		return [2]int{}
	}
	return [2]int{low, high}
}
