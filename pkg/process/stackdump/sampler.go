package stackdump

import (
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// CPUSampler measures the processor time of the process trees of a daemon's children. It is not
// safe for concurrent use.
type CPUSampler struct{ scanner *process.FamilyScanner }

// NewCPUSampler returns a CPUSampler.
func NewCPUSampler() *CPUSampler { return &CPUSampler{process.NewFamilyScanner()} }

// CPUTimes returns the total processor time of each child's process tree, from one pass over /proc.
// The tree of a child that has ended is left out. The time grows monotonically, unless a process of
// the tree ends without another process of the tree waiting for it. An error means that some
// processes could not be read; the map is incomplete then.
func (s *CPUSampler) CPUTimes(children []int) (map[int]time.Duration, error) {
	families, err := s.scanner.ScanFamilies(children)
	used := make(map[int]time.Duration, len(families))
	for pid, family := range families {
		for _, member := range family {
			used[pid] += member.CPUTime + member.ReapedCPUTime
		}
	}
	return used, err
}
