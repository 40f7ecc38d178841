package health

import (
	"bufio"
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

// Listener is a socket of this node that takes TCP connections.
type Listener struct {
	Address string // it is bound to; "0.0.0.0" or "::" for all
	Port    int
	PID     int    // the lowest of those that hold it; 0 where that can't be seen: another user's process
	Command string // of that process, empty where PID is 0
	User    string // name of the socket's owner, or its number where it has no local account

	pids  []int // all that hold it
	inode string
}

// String tells who holds the port, as the end of a sentence.
func (l Listener) String() string {
	port := fmt.Sprintf("port %d of %s", l.Port, l.Address)
	if l.PID == 0 {
		return fmt.Sprintf("%s is held by a process of user %s that can't be seen from here", port, l.User)
	}
	return fmt.Sprintf("%s is held by pid %d (%s) of user %s", port, l.PID, l.Command, l.User)
}

// Listeners returns who listens on the TCP ports from low to high in this process's network namespace, by IPv4 or
// IPv6, in the kernel's order; none is no error.
func Listeners(low, high int) ([]Listener, error) {
	return listenersIn("/proc", low, high)
}

func listenersIn(proc string, low, high int) ([]Listener, error) {
	var found []Listener
	for _, table := range []string{"tcp", "tcp6"} {
		// net is self/net: the namespace of the calling process, which is where it connects.
		file, err := os.Open(filepath.Join(proc, "self", "net", table))
		if table == "tcp6" && errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("cannot see who listens on port %d: %v", low, err)
		}
		some, err := readListeners(file, low, high)
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("cannot see who listens on port %d: %s: %v", low, file.Name(), err)
		}
		found = append(found, some...)
	}
	if len(found) > 0 {
		nameHolders(proc, found)
	}
	return found, nil
}

// readListeners reads the kernel's table of sockets. Its columns are: number, local address, remote address, state,
// queues, timer, retransmissions, user, timeout, inode.
func readListeners(table io.Reader, low, high int) ([]Listener, error) {
	const listening = "0A"
	var found []Listener
	lines := bufio.NewScanner(table)
	lines.Scan() // the heading
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != listening {
			continue
		}
		local, err := parseSocketAddress(fields[1])
		if err != nil {
			return nil, err
		}
		if port := int(local.Port()); low <= port && port <= high {
			found = append(found, Listener{Port: port, Address: local.Addr().Unmap().String(), User: fields[7], inode: fields[9]})
		}
	}
	return found, lines.Err()
}

// parseSocketAddress reads "0100007F:1F90": the address as words of 32 bits in the machine's order, then the port.
func parseSocketAddress(s string) (netip.AddrPort, error) {
	words, portText, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(words)
	port, portErr := strconv.ParseUint(portText, 16, 16)
	if err != nil || portErr != nil || (len(raw) != 4 && len(raw) != 16) {
		return netip.AddrPort{}, fmt.Errorf("%q is no socket's address", s)
	}
	for at := 0; at < len(raw); at += 4 {
		binary.NativeEndian.PutUint32(raw[at:], binary.BigEndian.Uint32(raw[at:]))
	}
	addr, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr, uint16(port)), nil
}

// nameHolders fills in the processes that hold the sockets, as far as this user may see them, and their users.
func nameHolders(proc string, found []Listener) {
	byLink := map[string]*Listener{}
	for i := range found {
		byLink["socket:["+found[i].inode+"]"] = &found[i]
		found[i].User = userName(found[i].User)
	}
	entries, _ := os.ReadDir(proc)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// Where there are none it has gone, or is another user's.
		fds, _ := os.ReadDir(filepath.Join(proc, entry.Name(), "fd"))
		for _, fd := range fds {
			link, err := os.Readlink(filepath.Join(proc, entry.Name(), "fd", fd.Name()))
			if l := byLink[link]; err == nil && l != nil && !slices.Contains(l.pids, pid) {
				l.pids = append(l.pids, pid)
			}
		}
	}
	for i := range found {
		if l := &found[i]; len(l.pids) > 0 {
			slices.Sort(l.pids)
			l.PID = l.pids[0]
			command, _ := os.ReadFile(filepath.Join(proc, strconv.Itoa(l.PID), "comm"))
			l.Command = excerpt(command)
		}
	}
}

// userName looks a user up among the local accounts. It asks no directory service, which could take its time.
func userName(uid string) string {
	accounts, _ := os.ReadFile("/etc/passwd")
	for line := range strings.Lines(string(accounts)) {
		if fields := strings.Split(line, ":"); len(fields) > 2 && fields[2] == uid {
			return fields[0]
		}
	}
	return uid
}
