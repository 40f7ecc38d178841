package process

import (
	"os"
	"strconv"
	"strings"
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
