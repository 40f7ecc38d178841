package timeline

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Event is one line of a node's timeline.
type Event struct {
	// At is when, on the head's clock as far as the node's clock is known.
	At     time.Time
	Wrote  time.Time          // the same as the node's own clock had it
	Since  time.Duration      // the same by the monotonic clock from the daemon's start
	Name   eventlog.EventType // eventlog.PhaseEntered and so on; a newer daemon may have others
	Rank   int
	Host   string
	Phase  string // that the node was in
	Daemon string // the kind that wrote it: "daemon" or "sandbox-daemon"
	eventlog.Fields
}

// Took returns how long what the event tells of took.
func (e Event) Took() time.Duration { return time.Duration(e.TookNS) }

const (
	// longestLine bounds a line of a timeline.
	longestLine = 64 << 10
	// longestRun bounds what a daemon is believed to have lived for.
	longestRun = 10 * 365 * 24 * time.Hour
)

// The years that are believed: others are not the time of a run, and not all of
// them can be written again.
const firstYear, lastYear = 1990, 2100

func believable(at time.Time) bool { return at.Year() >= firstYear && at.Year() <= lastYear }

// decodeLine reads one line; ok says that it is an event that can be believed.
func decodeLine(data []byte) (e Event, version int, ok bool) {
	l, ok := eventlog.DecodeEvent(data)
	e = Event{Name: l.Word, Host: l.Host, Phase: l.Phase, Fields: l.Fields}
	if since := time.Duration(l.SinceNS); since > 0 && since < longestRun {
		e.Since = since
	}
	if e.TookNS < 0 || e.Took() > longestRun {
		e.TookNS = 0
	}
	if !ok || e.Name == eventlog.LinesLost {
		return e, l.Version, ok
	}
	at, err := time.Parse(time.RFC3339Nano, l.At)
	if err != nil || !believable(at) {
		return e, l.Version, false
	}
	e.At, e.Wrote = at, at
	return e, l.Version, true
}

// told is what one file of a timeline has.
type told struct {
	rank     int
	daemon   string
	events   []Event
	problems []string
}

// decodeTrail reads a file of which the middle may have been left out. It takes
// no more than most lines of each part.
func decodeTrail(name string, content signal.FileContent, most int) told {
	var t told
	t.rank, t.daemon, _ = signal.ParseEventsName(name)
	damaged, newer, more := 0, 0, content.Tail != nil
	_, end, _ := bytes.Cut(content.Tail, []byte("\n")) // it begins in the middle of a line
	for _, part := range [][]byte{content.Data, end} {
		taken := 0
		for line := range bytes.Lines(part) {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			if taken++; taken > most {
				more = true
				break
			}
			if !bytes.HasSuffix(line, []byte("\n")) {
				break // somebody is writing it
			}
			e, version, ok := decodeLine(line)
			if !ok || len(line) > longestLine {
				damaged++
				continue
			}
			e.Rank, e.Daemon = t.rank, t.daemon
			t.events = append(t.events, e)
			newer = max(newer, version)
		}
	}
	if damaged > 0 {
		t.problems = append(t.problems, fmt.Sprintf("%d lines of events/%s are no events", damaged, name))
	}
	if more {
		t.problems = append(t.problems, fmt.Sprintf("events/%s is large: a part of it is left out", name))
	}
	if newer > eventlog.FormatVersion {
		t.problems = append(t.problems, fmt.Sprintf("events/%s is of version %d, and this bringupd knows %d: what is new in it is not shown", name, newer, eventlog.FormatVersion))
	}
	t.steady()
	return t
}

// steady times all events by the daemon's monotonic clock, from one start: its
// wall clock may have been set meanwhile. One start is as good as any other, and
// the one in the middle is believed.
func (t *told) steady() {
	var starts []time.Time
	for _, e := range t.events {
		if !e.At.IsZero() && e.Since > 0 {
			starts = append(starts, e.At.Add(-e.Since))
		}
	}
	var start time.Time
	if len(starts) > 0 {
		slices.SortFunc(starts, time.Time.Compare)
		start = starts[len(starts)/2]
	}
	last := start
	for i := range t.events {
		e := &t.events[i]
		switch {
		case e.Name == eventlog.LinesLost:
			e.At, e.Wrote = last, last
		case e.Since > 0:
			e.At = start.Add(e.Since)
			e.Wrote = e.At
		}
		last = e.At
	}
}

// began returns when what the event tells of began, on the node's clock.
func (e Event) began() time.Time { return e.Wrote.Add(-e.Took()) }
