package timeline

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/eventlog"
)

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
