package report

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// lanesOfStates returns the phases of a node of a living run according to its records, because its
// event log has not been written yet. They are less precise: the phases of a node that its records do
// not separate are one.
func (l viewBuilder) lanesOfStates(node *timeline.Node) (lanes []PhaseLane) {
	now := l.sinceStart(l.run.ReadAt)
	add := func(phase record.Phase, from, to time.Duration, isOver bool) {
		if !isOver {
			to = now
		}
		lanes = append(lanes, PhaseLane{Phase: string(phase), From: from, To: max(from, to), Open: !isOver})
	}
	joined, hasJoined := l.stateTime(node, record.StateJoined)
	add(record.PhaseJoin, 0, joined, hasJoined)
	if !hasJoined {
		return lanes
	}
	ready := joined
	if l.hasPlannedPhase(record.PhaseCheck) {
		checked, hasChecked := l.stateTime(node, record.StateChecked)
		add(record.PhaseCheck, joined, checked, hasChecked)
		if !hasChecked {
			return lanes
		}
		ready = checked
	}
	if l.hasPlannedPhase(record.PhaseSandbox) {
		at, isReady := l.stateTime(node, record.StateSandboxReady)
		add(record.PhaseSandbox, ready, at, isReady)
	}
	if l.hasPlannedPhase(record.PhaseWorkers) {
		at, isUp := l.stateTime(node, record.StateServiceUp)
		add(record.PhaseWorkers, ready, at, isUp)
	}
	if l.gateAfter > 0 {
		add(record.PhaseDriver, l.gateAfter, 0, false)
	}
	return lanes
}

// stateTime returns when a node reached a state, and whether it has.
func (l viewBuilder) stateTime(node *timeline.Node, word record.State) (time.Duration, bool) {
	for _, state := range node.States {
		if state.Word == word {
			return l.sinceStart(state.At), true
		}
	}
	return 0, false
}

// hasPlannedPhase reports whether the run has a phase, according to its plan.
func (l viewBuilder) hasPlannedPhase(phase record.Phase) bool {
	return l.run.Job != nil && l.run.Job.Plan != nil && slices.Contains(l.run.Job.Plan.Phases, phase)
}
