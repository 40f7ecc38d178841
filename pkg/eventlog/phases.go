package eventlog

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// phaseHistory lists the phases of a daemon, in the order in which it entered them.
type phaseHistory []phasePeriod

// phasePeriod is one period in a phase.
type phasePeriod struct {
	phase record.Phase
	since time.Time
	took  time.Duration
	ended bool
}

// implicitPhases lists the phases that are not left explicitly. Entering one of them ends those
// that precede it in the list.
var implicitPhases = [...]record.Phase{record.PhaseStandby, record.PhaseDriver, record.PhaseEnd}

// enterPhase begins a phase at time now.
func (s *phaseHistory) enterPhase(phase record.Phase, now time.Time) {
	next := slices.Index(implicitPhases[:], phase)
	for i, stay := range *s {
		if before := slices.Index(implicitPhases[:], stay.phase); !stay.ended && before >= 0 && before <= next {
			(*s)[i].took, (*s)[i].ended = now.Sub(stay.since), true
		}
	}
	*s = append(*s, phasePeriod{phase: phase, since: now})
}

// leavePhase ends a phase that took the given time.
func (s phaseHistory) leavePhase(phase record.Phase, took time.Duration) {
	for i, stay := range s {
		if stay.phase == phase && !stay.ended {
			s[i].took, s[i].ended = took, true
		}
	}
}

// newestPhase returns the phase entered last.
func (s phaseHistory) newestPhase() record.Phase {
	if len(s) == 0 {
		return "start"
	}
	return s[len(s)-1].phase
}

// phaseDurations returns the total time in each phase up to now.
func (s phaseHistory) phaseDurations(now time.Time) (phases []record.PhaseDuration) {
	for _, stay := range s {
		took := stay.took
		if !stay.ended {
			took = now.Sub(stay.since)
		}
		at := slices.IndexFunc(phases, func(p record.PhaseDuration) bool { return p.Phase == stay.phase })
		if at < 0 {
			phases = append(phases, record.PhaseDuration{Phase: stay.phase, Took: took})
			continue
		}
		phases[at].Took += took
	}
	return phases
}
