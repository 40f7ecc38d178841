package trail

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// stays lists the phases of a daemon, in the order in which it entered them.
type stays []stay

// stay is one period in a phase.
type stay struct {
	phase string
	from  time.Time
	took  time.Duration
	over  bool
}

// lone lists the phases that are not left explicitly. Entering one of them ends those that precede
// it in the list.
var lone = [...]string{"stand-by", "driver", "drain"}

// enter begins a phase at time now.
func (s *stays) enter(phase string, now time.Time) {
	next := slices.Index(lone[:], phase)
	for i, stay := range *s {
		if before := slices.Index(lone[:], stay.phase); !stay.over && before >= 0 && before <= next {
			(*s)[i].took, (*s)[i].over = now.Sub(stay.from), true
		}
	}
	*s = append(*s, stay{phase: phase, from: now})
}

// leave ends a phase that took the given time.
func (s stays) leave(phase string, took time.Duration) {
	for i, stay := range s {
		if stay.phase == phase && !stay.over {
			s[i].took, s[i].over = took, true
		}
	}
}

// newest returns the phase entered last.
func (s stays) newest() string {
	if len(s) == 0 {
		return "start"
	}
	return s[len(s)-1].phase
}

// lasted returns the total time in each phase up to now.
func (s stays) lasted(now time.Time) (phases []signal.PhaseTime) {
	for _, stay := range s {
		took := stay.took
		if !stay.over {
			took = now.Sub(stay.from)
		}
		at := slices.IndexFunc(phases, func(p signal.PhaseTime) bool { return p.Phase == stay.phase })
		if at < 0 {
			phases = append(phases, signal.PhaseTime{Phase: stay.phase, Took: took})
			continue
		}
		phases[at].Took += took
	}
	return phases
}
