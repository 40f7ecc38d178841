package timeline

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/eventlog"
)

// lastPhase is what a daemon does when all else is over.
const lastPhase = "drain"

// spansOf makes phases of one daemon's events, in the order in which they
// began. Some phases run side by side, and some are ended only by what comes
// after them: a worker stays in its driver phase until the end. orderly says
// that the run has ended well.
func spansOf(events []Event, orderly bool) []Span {
	var spans []Span
	var newest Event
	ended := false
	for _, e := range events {
		if e.At.After(newest.At) {
			newest = e
		}
		switch e.Name {
		case eventlog.PhaseEntered:
			if e.Phase == lastPhase {
				closeAll(spans, e, orderly)
			}
			spans = append(spans, Span{Phase: e.Phase, Daemon: e.Daemon, From: e.At, To: e.At, Open: true})
		case eventlog.PhaseLeft:
			if at := openSpan(spans, e.EndedPhase); at >= 0 {
				spans[at].close(e, e.Succeeded())
			} else if e.EndedPhase != "" { // where its begin was left out or lost
				spans = append(spans, Span{Phase: e.EndedPhase, Daemon: e.Daemon, From: e.At.Add(-e.Took()), To: e.At, OK: e.Succeeded()})
			}
		case eventlog.DaemonEnded:
			closeAll(spans, e, orderly)
			ended = true
		}
	}
	for i := range spans {
		if spans[i].Open && !ended && newest.At.After(spans[i].From) {
			spans[i].To = newest.At
		}
	}
	slices.SortStableFunc(spans, func(a, b Span) int { return a.From.Compare(b.From) })
	return spans
}

func (s *Span) close(e Event, ok bool) {
	s.Open, s.OK = false, ok
	if e.At.After(s.From) {
		s.To = e.At
	}
}

func closeAll(spans []Span, e Event, ok bool) {
	for i := range spans {
		if spans[i].Open {
			spans[i].close(e, ok)
		}
	}
}

// openSpan returns the newest span of a phase that is open; -1 where there is none.
func openSpan(spans []Span, phase string) int {
	for i, s := range slices.Backward(spans) {
		if s.Open && s.Phase == phase {
			return i
		}
	}
	return -1
}
