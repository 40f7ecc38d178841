package eventlog

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

type phaseHistory []phasePeriod

type phasePeriod struct {
	phase record.Phase
	since time.Time
	took  time.Duration
	ended bool
}

// implicitPhases lists the phases that are not left explicitly. Entering one of them ends those
// that precede it in the list.
var implicitPhases = [...]record.Phase{record.PhaseStandby, record.PhaseDriver, record.PhaseEnd}

func (s *phaseHistory) enterPhase(phase record.Phase, now time.Time) {
	next := slices.Index(implicitPhases[:], phase)
	for i, period := range *s {
		if before := slices.Index(implicitPhases[:], period.phase); !period.ended && before >= 0 && before <= next {
			(*s)[i].took, (*s)[i].ended = now.Sub(period.since), true
		}
	}
	*s = append(*s, phasePeriod{phase: phase, since: now})
}

func (s phaseHistory) leavePhase(phase record.Phase, took time.Duration) {
	for i, period := range s {
		if period.phase == phase && !period.ended {
			s[i].took, s[i].ended = took, true
		}
	}
}

func (s phaseHistory) newestPhase() record.Phase {
	if len(s) == 0 {
		return "start"
	}
	return s[len(s)-1].phase
}

// phaseDurations returns the total time in each phase up to now.
func (s phaseHistory) phaseDurations(now time.Time) (phases []record.PhaseDuration) {
	for _, period := range s {
		took := period.took
		if !period.ended {
			took = now.Sub(period.since)
		}
		at := slices.IndexFunc(phases, func(p record.PhaseDuration) bool { return p.Phase == period.phase })
		if at < 0 {
			phases = append(phases, record.PhaseDuration{Phase: period.phase, Took: took})
			continue
		}
		phases[at].Took += took
	}
	return phases
}
