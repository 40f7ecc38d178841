package timeline

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Event is one line of a node's event log.
type Event struct {
	// At is the time on the head's clock, as far as the node's clock offset is known.
	At        time.Time
	Wrote     time.Time          // the same time on the node's own clock
	Since     time.Duration      // monotonic time since the daemon's start
	Name      eventlog.EventType // eventlog.PhaseEntered and so on; newer daemons may use other names
	NodeIndex int
	Host      string
	Phase     string // the node's phase at that time
	Daemon    string // kind of the daemon that wrote it: "daemon" or "sandbox-daemon"
	eventlog.Fields
}

// Took returns the duration that the event reports, such as the length of a phase that has ended.
func (e Event) Took() time.Duration { return time.Duration(e.TookNS) }

const (
	// maxLineLength is the maximum length in bytes of a line of an event log.
	maxLineLength = 64 << 10
	// maxDaemonLifetime is the maximum plausible lifetime of a daemon.
	maxDaemonLifetime = 10 * 365 * 24 * time.Hour
)

// minPlausibleYear and maxPlausibleYear bound the years that are plausible for a run. Some times
// outside of them could not even be encoded again.
const minPlausibleYear, maxPlausibleYear = 1990, 2100

func isPlausibleTime(at time.Time) bool {
	return at.Year() >= minPlausibleYear && at.Year() <= maxPlausibleYear
}

// decodeLine decodes one line of an event log. ok reports whether it is a plausible event.
func decodeLine(data []byte) (e Event, ok bool) {
	l, ok := eventlog.DecodeEvent(data)
	e = Event{Name: l.Type, Host: l.Host, Phase: string(l.Phase), Fields: l.Fields}
	if since := time.Duration(l.SinceStartNS); since > 0 && since < maxDaemonLifetime {
		e.Since = since
	}
	if e.TookNS < 0 || e.Took() > maxDaemonLifetime {
		e.TookNS = 0
	}
	if !ok || e.Name == eventlog.LinesLost {
		return e, ok
	}
	at, err := time.Parse(time.RFC3339Nano, l.At)
	if err != nil || !isPlausibleTime(at) {
		return e, false
	}
	e.At, e.Wrote = at, at
	return e, true
}

type decodedLog struct {
	nodeIndex int
	daemon    string
	events    []Event
}

// decodeEventLog decodes an event log. If the log was too large, its middle is missing. At most the
// given number of lines of each part are decoded.
func decodeEventLog(
	name string, content signal.FileContent, maxLines int,
) (t decodedLog, problems []error) {
	t.nodeIndex, t.daemon, _ = signal.ParseEventsName(name)
	damaged, isCut := 0, content.Tail != nil
	_, end, _ := bytes.Cut(content.Tail, []byte("\n")) // it starts in the middle of a line
	for _, part := range [][]byte{content.Data, end} {
		taken := 0
		for line := range bytes.Lines(part) {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			if taken++; taken > maxLines {
				isCut = true
				break
			}
			if !bytes.HasSuffix(line, []byte("\n")) {
				break // the line is still being written
			}
			e, ok := decodeLine(line)
			if !ok || len(line) > maxLineLength {
				damaged++
				continue
			}
			e.NodeIndex, e.Daemon = t.nodeIndex, t.daemon
			t.events = append(t.events, e)
		}
	}
	if damaged > 0 {
		problems = append(problems, fmt.Errorf("%d lines of events/%s are not events", damaged, name))
	}
	if isCut {
		problems = append(problems, fmt.Errorf("events/%s is large: part of it is not shown", name))
	}
	t.normalizeTimes()
	return t, problems
}

// normalizeTimes recomputes the times of all events from the daemon's monotonic clock and a single
// start time, because its wall clock may have been set in the meantime. Each event implies a start
// time; the median of them is used.
func (t *decodedLog) normalizeTimes() {
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
	// Recompute the times. An event that marks lost lines has none, and gets the time of the event
	// before it.
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

func (e Event) startTime() time.Time { return e.Wrote.Add(-e.Took()) }
