package process

import (
	"iter"
	"os"
	"strconv"
	"strings"
	"time"
)

// Relative is one of a process and those below it.
type Relative struct {
	PID, Parent int
	Name        string // as ps has it
}

// Tree returns a process and those that have it among their ancestors, as far as they live, as one look at /proc sees them,
// parents first. Who can't be seen there is none.
func Tree(top int) (found []Relative) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := make(map[int][]Relative)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		p, err := readStat(pid)
		if err != nil || p.dead {
			continue
		}
		one := Relative{PID: pid, Parent: p.ppid, Name: p.name}
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

// CommandLine returns the arguments of a process, the first of which is its program; nil if it cannot
// be read.
func CommandLine(pid int) []string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline") // of one that has ended there is none
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// commandLineTimeout bounds the wait for one process's command line: the kernel takes a lock of that
// process for it, which may be held for as long as a file system hangs.
const commandLineTimeout = 250 * time.Millisecond

// Ancestors yields a process and its ancestors, the nearest first, each by its PID and its arguments:
// of a process without any the name alone, and nothing of one that cannot be seen, which is the last.
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

// commandLineInTime returns the arguments of a process; nil if they do not come in time, either.
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
