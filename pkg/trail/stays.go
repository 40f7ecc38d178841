package trail

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// stays are the phases that a daemon was in, in the order in which it entered
// them.
type stays []stay

// stay is a time that a daemon is in a phase for.
type stay struct {
	phase string
	from  time.Time
	took  time.Duration
	over  bool
}

// lone are the phases that no part of the sequence leaves: each ends those that
// come before it.
var lone = [...]string{"stand-by", "driver", "drain"}

func (s *stays) enter(phase string, now time.Time) {
	next := slices.Index(lone[:], phase)
	for i, stay := range *s {
		if before := slices.Index(lone[:], stay.phase); !stay.over && before >= 0 && before <= next {
			(*s)[i].took, (*s)[i].over = now.Sub(stay.from), true
		}
	}
	*s = append(*s, stay{phase: phase, from: now})
}

func (s stays) leave(phase string, took time.Duration) {
	for i, stay := range s {
		if stay.phase == phase && !stay.over {
			s[i].took, s[i].over = took, true
		}
	}
}

// newest is the phase entered last.
func (s stays) newest() string {
	if len(s) == 0 {
		return "start"
	}
	return s[len(s)-1].phase
}

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
