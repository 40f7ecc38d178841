package timeline

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// drainPhase is the phase in which a daemon shuts down.
const drainPhase = "drain"

// deriveSpans derives the phases of one daemon from its events, in the order in which they began.
// Some phases run concurrently, and some are ended only by a later phase: a worker stays in its
// driver phase until the end. orderly reports that the run has ended well; it is the result of all
// phases that the end of the run closes.
func deriveSpans(events []Event, orderly bool) []PhaseSpan {
	var spans []PhaseSpan
	var newest Event
	ended := false
	for _, e := range events {
		if e.At.After(newest.At) {
			newest = e
		}
		// The drain phase and the end of the daemon close all phases that are still open.
		switch e.Name {
		case eventlog.PhaseEntered:
			if e.Phase == drainPhase {
				closeOpenSpans(spans, e, orderly)
			}
			spans = append(spans, PhaseSpan{Phase: e.Phase, Daemon: e.Daemon, From: e.At, To: e.At, Open: true})
		case eventlog.PhaseLeft:
			if at := findOpenSpan(spans, string(e.EndedPhase)); at >= 0 {
				spans[at].closeAt(e, e.Succeeded())
			} else if e.EndedPhase != "" { // its start was left out or lost
				spans = append(spans, PhaseSpan{
					Phase: string(e.EndedPhase), Daemon: e.Daemon, OK: e.Succeeded(),
					From: e.At.Add(-e.Took()), To: e.At,
				})
			}
		case eventlog.DaemonEnded:
			closeOpenSpans(spans, e, orderly)
			ended = true
		}
	}
	// Phases without an end last at least until the newest event.
	for i := range spans {
		if spans[i].Open && !ended && newest.At.After(spans[i].From) {
			spans[i].To = newest.At
		}
	}
	slices.SortStableFunc(spans, func(a, b PhaseSpan) int { return a.From.Compare(b.From) })
	return spans
}

// closeAt ends the phase with an event. ok reports whether the phase was successful.
func (s *PhaseSpan) closeAt(e Event, ok bool) {
	s.Open, s.OK = false, ok
	if e.At.After(s.From) {
		s.To = e.At
	}
}

func closeOpenSpans(spans []PhaseSpan, e Event, ok bool) {
	for i := range spans {
		if spans[i].Open {
			spans[i].closeAt(e, ok)
		}
	}
}

// findOpenSpan returns the index of the newest open span of a phase, or -1 if there is none.
func findOpenSpan(spans []PhaseSpan, phase string) int {
	for i, s := range slices.Backward(spans) {
		if s.Open && s.Phase == phase {
			return i
		}
	}
	return -1
}

// SpansOfStates returns the phases of a node of a live run according to its records, for a node whose
// event log has not been written yet. Phases that its records do not separate are one.
func (r *Run) SpansOfStates(n *Node) (spans []PhaseSpan) {
	if r.Job == nil || r.Job.Plan == nil {
		return nil
	}
	isPlanned := func(phase record.Phase) bool { return slices.Contains(r.Job.Plan.Phases, phase) }
	add := func(phase record.Phase, from time.Time, goal record.State) (to time.Time, isOver bool) {
		to = r.ReadAt
		at := slices.IndexFunc(n.States, func(s NodeState) bool { return s.Word == goal })
		if isOver = at >= 0; isOver {
			to = n.States[at].At
		}
		if isPlanned(phase) {
			spans = append(spans, PhaseSpan{
				Phase: string(phase), Daemon: mainDaemonKind, Open: !isOver, OK: isOver,
				From: from, To: laterTime(from, to),
			})
		}
		return to, isOver
	}
	ready, isOver := add(record.PhaseJoin, r.Control.Job.At, record.StateJoined)
	if isOver && isPlanned(record.PhaseCheck) {
		ready, isOver = add(record.PhaseCheck, ready, record.StateChecked)
	}
	if !isOver {
		return spans
	}
	add(record.PhaseSandbox, ready, record.StateSandboxReady)
	add(record.PhaseWorkers, ready, record.StateServiceUp)
	if r.Control.Go.Exists {
		add(record.PhaseDriver, r.Control.Go.At, record.StateDone)
	}
	return spans
}
