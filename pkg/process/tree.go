package process

import (
	"iter"
	"os"
	"strconv"
	"strings"
	"time"
)

// TreeProcess is a process in the tree returned by [ProcessTree].
type TreeProcess struct {
	PID, Parent int
	Name        string // as shown by ps
}

// ProcessTree returns the living processes of the tree below top, including top itself, parents
// first, from one read of /proc. Processes that are not visible there are missing.
func ProcessTree(top int) (found []TreeProcess) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := make(map[int][]TreeProcess)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		p, err := readStat(pid)
		if err != nil || p.dead {
			continue
		}
		one := TreeProcess{PID: pid, Parent: p.ppid, Name: p.name}
		if pid == top {
			found = append(found, one)
		}
		children[p.ppid] = append(children[p.ppid], one)
	}
	for at := 0; at < len(found); at++ {
		found = append(found, children[found[at].PID]...)
	}
	return found
}

// CommandLine returns the arguments of a process, starting with its program; nil if they cannot be
// read.
func CommandLine(pid int) []string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline") // fails if the process has ended
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// commandLineTimeout bounds the wait for one process's command line. The kernel takes a lock of
// that process for it, which may be held for as long as a file system hangs.
const commandLineTimeout = 250 * time.Millisecond

// Ancestors returns an iterator over a process and its ancestors, nearest first. It yields the PID
// and arguments of each. For a process without arguments it yields its name only. A process that is
// not visible is yielded without arguments and is the last one.
func Ancestors(pid int) iter.Seq2[int, []string] {
	return func(yield func(int, []string) bool) {
		for pid > 0 {
			p, err := readStat(pid)
			var argv []string
			if err == nil {
				if argv = commandLineInTime(pid); argv == nil {
					argv = []string{p.name}
				}
			}
			if !yield(pid, argv) || err != nil {
				return
			}
			pid = p.ppid
		}
	}
}

// commandLineInTime returns the arguments of a process; nil if they cannot be read or do not arrive
// in time.
func commandLineInTime(pid int) []string {
	read := make(chan []string, 1)
	go func() { read <- CommandLine(pid) }()
	select {
	case argv := <-read:
		return argv
	case <-time.After(commandLineTimeout):
		return nil
	}
}
