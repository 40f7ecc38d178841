package timeline

import (
	"encoding/json"
	"time"
)

// Event is one line of a node's timeline.
type Event struct {
	// At is when, on the head's clock as far as the node's clock is known.
	At     time.Time
	Wrote  time.Time     // the same as the node's own clock had it
	Since  time.Duration // the same by the monotonic clock from the daemon's start
	Name   string        // EventEnter and so on; others may come, of newer daemons
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
	Child   string          `json:"child,omitempty"`
	PID     int             `json:"pid,omitempty"`
	Exit    string          `json:"exit,omitempty"`
	Kind    string          `json:"kind,omitempty"` // of a failure: health names them
	What    string          `json:"what,omitempty"` // the sentence
	Of      *int            `json:"of,omitempty"`   // the rank that it is about, where that is another
	Check   string          `json:"check,omitempty"`
	Checks  string          `json:"checks,omitempty"`
	Verdict string          `json:"verdict,omitempty"`
	Record  string          `json:"record,omitempty"` // the name that was published or seen
	Probe   string          `json:"probe,omitempty"`  // what is probed
	Up      *bool           `json:"up,omitempty"`     // of the lifeline
	How     string          `json:"how,omitempty"`
	GPUs    int             `json:"gpus,omitempty"`
	Error   string          `json:"error,omitempty"`
	GPU     json.RawMessage `json:"gpu,omitempty"`   // pkg/gpu's event
	Dropped int             `json:"-"`               // lines that the share did not take here
}

// Took returns how long it took.
func (f Fields) Took() time.Duration { return time.Duration(f.TookNS) }
