package why

import (
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// Sampler measures the processor time of the process trees of a daemon's children. It is not safe
// for concurrent use.
type Sampler struct{ onlooker *process.Onlooker }

// NewSampler returns a Sampler.
func NewSampler() *Sampler { return &Sampler{process.NewOnlooker()} }

// Used returns the total processor time of each child's process tree, from one pass over /proc. The
// tree of a child that has ended is left out. The time grows monotonically, unless a process of the
// tree ends without another process of the tree waiting for it. An error means that some processes
// could not be read; the map is incomplete then.
func (s *Sampler) Used(children []int) (map[int]time.Duration, error) {
	families, err := s.onlooker.Families(children, false)
	used := make(map[int]time.Duration, len(families))
	for pid, family := range families {
		for _, member := range family {
			used[pid] += member.Used + member.Waited
		}
	}
	return used, err
}
