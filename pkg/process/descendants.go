package process

import (
	"os"
	"slices"
	"strconv"
)

// Relative is a process below another.
type Relative struct {
	PID, Parent int
	Name        string // as ps has it
}

// Descendants returns the processes that have one among their ancestors and live, as one look at /proc sees them, parents
// first. Who can't be seen there is none.
func Descendants(of int) (found []Relative) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := make(map[int][]Relative)
	for _, entry := range names {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, err := readStat(pid); err == nil && !p.dead {
			children[p.ppid] = append(children[p.ppid], Relative{PID: pid, Parent: p.ppid, Name: p.name})
		}
	}
	found = slices.Clone(children[of])
	for at := 0; at < len(found); at++ {
		found = append(found, children[found[at].PID]...)
	}
	return found
}
