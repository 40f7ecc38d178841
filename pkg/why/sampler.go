package why

import (
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// Sampler tells how much processor time the families of a daemon's children have used. It is for one goroutine.
type Sampler struct{ onlooker *process.Onlooker }

// NewSampler returns one that has looked at nothing yet.
func NewSampler() *Sampler { return &Sampler{process.NewOnlooker()} }

// Used returns the processor time of each child's family up to now, by one pass over /proc; what is gone is not in it.
// It grows as long as no process of the family ends that another one of it has not waited for. The error means that not
// all processes could be seen.
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
