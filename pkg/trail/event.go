package trail

import (
	"bytes"
	"encoding/json"
)

// Version is the version of the form of the lines.
const Version = 1

// Word is what a line tells of.
type Word string

// The words. docs/run-directory.md has the fields of each.
const (
	Enter   Word = "enter"        // a phase begins
	Leave   Word = "leave"        // a phase has ended
	Told    Word = "published"    // a record of this node's is there for all to see
	Saw     Word = "saw"          // a record of the head's was seen, for the first time
	Reached Word = "reached"      // the head sees that ranks are in a state
	Start   Word = "start"        // a child runs
	Probe   Word = "probe"        // a probe says something else than before
	Exit    Word = "exit"         // a child has ended
	Waits   Word = "check-waits"  // checks wait for something
	Check   Word = "check"        // a check does not pass, or only with a warning
	Checked Word = "checked"      // all checks have been made
	Differs Word = "nodes-differ" // the head finds that nodes are not alike
	Watch   Word = "gpu-watch"    // the GPUs are watched, or can't be
	GPU     Word = "gpu"          // something has befallen a GPU
	Befell  Word = "befallen"     // the head has heard of that
	Line    Word = "lifeline"     // it is up, or down
	Share   Word = "share"        // it does not answer and is outwaited, or it answers again
	Failed  Word = "failed"       // something has failed here
	Failure Word = "failure"      // the head knows of a failure, wherever
	Dropped Word = "dropped"      // the head goes on without a node
	Request Word = "request"      // the head has taken in what somebody outside asks for
	Exec    Word = "exec"         // a command for somebody outside begins
	ExecEnd Word = "exec-exit"    // it has ended
	Fence   Word = "fence"        // the ranks have left a fence
	Spawned Word = "spawned"      // a rank has spawned others
	Context Word = "trace"        // the head has a trace context for all that the run starts
	End     Word = "end"          // the daemon has nothing left to do
)

// Lost stands where lines are missing that the share did not take: as many as
// Fields.Dropped says. No daemon writes the word.
const Lost Word = "lost"

// Fields are what some events have; docs/run-directory.md says which. A pointer
// is nil where the event does not tell.
type Fields struct {
	Left    string `json:"left,omitempty"`   // the phase that has ended
	Record  string `json:"record,omitempty"` // the name that was published or seen
	State   string `json:"state,omitempty"`  // that ranks have reached
	Ranks   string `json:"ranks,omitempty"`  // which: 1-3,7
	Child   string `json:"child,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Request string `json:"request,omitempty"` // its ID
	Nodes   *int   `json:"nodes,omitempty"`   // how many are asked for it
	Fence   string `json:"fence,omitempty"`   // its name
	Round   int    `json:"round,omitempty"`   // how often it was entered
	Check   string `json:"check,omitempty"`   // its ID
	Checks  string `json:"checks,omitempty"`  // what they wait for
	Verdict string `json:"verdict,omitempty"` // check names them
	Passed  *int   `json:"passed,omitempty"`  // how many checks have
	TookNS  int64  `json:"took_ns,omitempty"` // how long it took
	OK      *bool  `json:"ok,omitempty"`      // it went well
	Exit    string `json:"exit,omitempty"`    // how it ended, in words
	Seen    string `json:"seen,omitempty"`    // what a probe saw
	Of      *int   `json:"of,omitempty"`      // the rank that it is about, where that is another
	Kind    string `json:"kind,omitempty"`    // of a failure: health names them
	What    string `json:"what,omitempty"`    // the sentence
	Up      *bool  `json:"up,omitempty"`      // of the lifeline
	How     string `json:"how,omitempty"`     // it ended
	Answers *bool  `json:"answers,omitempty"` // of the share
	GPUs    *int   `json:"gpus,omitempty"`
	Error   string `json:"error,omitempty"`
	GPU     string `json:"gpu,omitempty"` // what has befallen it
	Parent  string `json:"traceparent,omitempty"`
	Outer   string `json:"parent_span,omitempty"`
	Code    *int   `json:"code,omitempty"`    // the daemon's exit code
	Dropped int    `json:"dropped,omitempty"` // lines that the share did not take
}

// Well tells whether the event says that it went well.
func (f Fields) Well() bool { return f.OK != nil && *f.OK }

// Event is one line as it is in the file.
type Event struct {
	At      string `json:"at,omitempty"` // the node's wall clock, by RFC 3339
	Word    Word   `json:"event,omitempty"`
	Version int    `json:"v,omitempty"`
	Rank    *int   `json:"rank,omitempty"` // nil before there is a run directory
	Host    string `json:"host,omitempty"` // likewise empty
	Fields
	SinceNS int64  `json:"since_start_ns,omitempty"` // by the monotonic clock, from the daemon's start
	Phase   string `json:"phase,omitempty"`          // that the node entered last
}

// encode returns the event's line.
func (e Event) encode() ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(e)
	return line.Bytes(), err
}

// Decode reads one line. Fields that are not what they should be are left out;
// ok says that the line is an event at all.
func Decode(line []byte) (e Event, ok bool) {
	// An error may be of one field alone: what was read of the others is kept.
	if err := json.Unmarshal(line, &e); err != nil && e.Word == "" {
		return e, false
	}
	if e.Word == "" && e.Dropped > 0 {
		e.Word = Lost
	}
	return e, e.Word != ""
}
