package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// Event is one line of a node's timeline.
type Event struct {
	// At is when, on the head's clock as far as the node's clock is known.
	At     time.Time
	Wrote  time.Time        // the same as the node's own clock had it
	Since  time.Duration    // the same by the monotonic clock from the daemon's start
	Name   signal.EventWord // signal.EventEnter and so on; a newer daemon may have others
	Rank   int
	Host   string
	Phase  string // that the node was in
	Daemon string // the kind that wrote it: "daemon" or "sandbox-daemon"
	Fields
}

// Fields are what some events have; docs/run-directory.md says which.
type Fields struct {
	Left    string          `json:"left,omitempty"`    // the phase that has ended
	TookNS  int64           `json:"took_ns,omitempty"` // how long it took
	OK      bool            `json:"ok,omitempty"`      // it went well
	Record  string          `json:"record,omitempty"`  // the name that was published or seen
	State   string          `json:"state,omitempty"`   // that ranks have reached
	Ranks   string          `json:"ranks,omitempty"`   // which: 1-3,7
	Child   string          `json:"child,omitempty"`
	PID     int             `json:"pid,omitempty"`
	Exit    string          `json:"exit,omitempty"`    // how it ended, in words
	Seen    string          `json:"seen,omitempty"`    // what a probe saw
	Kind    string          `json:"kind,omitempty"`    // of a failure: health names them
	What    string          `json:"what,omitempty"`    // the sentence
	Of      *int            `json:"of,omitempty"`      // the rank that it is about, where that is another
	Check   string          `json:"check,omitempty"`   // its ID
	Checks  string          `json:"checks,omitempty"`  // what they wait for
	Verdict string          `json:"verdict,omitempty"` // check names them
	Passed  int             `json:"passed,omitempty"`  // how many checks have
	Up      *bool           `json:"up,omitempty"`      // of the lifeline
	How     string          `json:"how,omitempty"`     // it ended
	GPUs    int             `json:"gpus,omitempty"`
	Code    int             `json:"code,omitempty"` // the daemon's exit code
	Error   string          `json:"error,omitempty"`
	GPU     json.RawMessage `json:"gpu,omitempty"`     // pkg/gpu's event
	Dropped int             `json:"dropped,omitempty"` // lines that the share did not take
}

// Took returns how long it took.
func (f Fields) Took() time.Duration { return time.Duration(f.TookNS) }

// EventLost stands where lines are missing that the share did not take: Dropped
// of them.
const EventLost signal.EventWord = "lost"

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

// line is how an event is written.
type line struct {
	Version int    `json:"v"`
	At      string `json:"at"`
	Event   string `json:"event"`
	Host    string `json:"host"`
	Phase   string `json:"phase"`
	Since   int64  `json:"since_start_ns"`
	Fields
}

// decodeLine reads one line. Fields that are not what they should be are left
// out; ok says that the line is an event at all.
func decodeLine(data []byte) (e Event, version int, ok bool) {
	var l line
	// An error may be of one field alone: what was read of the others is kept.
	if err := json.Unmarshal(data, &l); err != nil && l.Event == "" {
		return e, 0, false
	}
	e = Event{Name: signal.EventWord(l.Event), Host: l.Host, Phase: l.Phase, Fields: l.Fields}
	if since := time.Duration(l.Since); since > 0 && since < longestRun {
		e.Since = since
	}
	if e.TookNS < 0 || e.Took() > longestRun {
		e.TookNS = 0
	}
	if e.Name == "" && e.Dropped > 0 {
		e.Name = EventLost
		return e, l.Version, true
	}
	at, err := time.Parse(time.RFC3339Nano, l.At)
	if err != nil || !believable(at) || e.Name == "" {
		return e, l.Version, false
	}
	e.At, e.Wrote = at, at
	return e, l.Version, true
}

// trail is what one file of a timeline has.
type trail struct {
	rank     int
	daemon   string
	events   []Event
	problems []string
}

// decodeTrail reads a file of which the middle may have been left out. It takes
// no more than most lines of each part.
func decodeTrail(name string, content signal.Content, most int) trail {
	var t trail
	t.rank, t.daemon, _ = signal.ParseEventsName(name)
	damaged, newer, more := 0, 0, false
	part := func(data []byte) {
		taken := 0
		for len(data) > 0 {
			raw, rest, whole := bytes.Cut(data, []byte("\n"))
			data = rest
			if len(bytes.TrimSpace(raw)) == 0 {
				continue
			}
			if taken++; taken > most {
				more = true
				return
			}
			e, version, ok := Event{}, 0, false
			if whole && len(raw) <= longestLine {
				e, version, ok = decodeLine(raw)
			}
			switch {
			case ok:
				e.Rank, e.Daemon = t.rank, t.daemon
				t.events = append(t.events, e)
				newer = max(newer, version)
			case whole:
				damaged++
			}
		}
	}
	part(content.Data)
	if content.End != nil {
		more = true
		// It begins in the middle of a line.
		_, end, _ := bytes.Cut(content.End, []byte("\n"))
		part(end)
	}
	if damaged > 0 {
		t.problems = append(t.problems, fmt.Sprintf("%d lines of events/%s are no events", damaged, name))
	}
	if more {
		t.problems = append(t.problems, fmt.Sprintf("events/%s is large: a part of it is left out", name))
	}
	if newer > signal.EventVersion {
		t.problems = append(t.problems, fmt.Sprintf("events/%s is of version %d, and this bringupd knows %d: what is new in it is not shown", name, newer, signal.EventVersion))
	}
	t.steady()
	return t
}

// steady times all events by the daemon's monotonic clock, from one start: its
// wall clock may have been set meanwhile. One start is as good as any other, and
// the one in the middle is believed.
func (t *trail) steady() {
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
		case e.Name == EventLost:
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
