package eventlog

import (
	"bytes"
	"encoding/json"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// FormatVersion is the version of the event format.
const FormatVersion = 2

// EventType is the type of an event.
type EventType string

// Event types. docs/run-directory.md lists the fields of each.
const (
	PhaseEntered     EventType = "enter"        // a phase begins
	PhaseLeft        EventType = "leave"        // a phase has ended
	RecordPublished  EventType = "published"    // a record of this node has been published
	RecordSeen       EventType = "saw"          // a record of the head was seen for the first time
	StateReached     EventType = "reached"      // the head sees that nodes have reached a state
	ChildStarted     EventType = "start"        // a child has been started
	ProbeChanged     EventType = "probe"        // the result of a probe has changed
	ChildExited      EventType = "exit"         // a child has ended
	ChecksWaiting    EventType = "check-waits"  // checks are waiting for a condition
	CheckNotPassed   EventType = "check"        // a check has failed or passed with a warning
	ChecksDone       EventType = "checked"      // all checks are done
	NodesDiffer      EventType = "nodes-differ" // the head has found differences between nodes
	GPUWatch         EventType = "gpu-watch"    // the GPUs are being watched, or cannot be
	GPUEvent         EventType = "gpu"          // an event of a GPU on this node
	GPUEventReceived EventType = "gpu-received" // the head has received a GPU event of a node
	// a process has printed an error and nothing since, or has gone on
	ChildSilent EventType = "silent"
	Warned      EventType = "warned"    // a warning for status and the result, here or on another node
	LinkChanged EventType = "peer-link" // the peer link is up or down
	// the shared file system is unresponsive and tolerated, or responsive again
	ShareChanged    EventType = "share"
	NodeFailed      EventType = "failed"        // a failure on this node
	FailureReceived EventType = "failure"       // the head has received a failure of any node
	InstanceExited  EventType = "instance-exit" // the head sees that an instance of a role has exited
	NodeDropped     EventType = "dropped"       // the head continues without a node
	RequestAccepted EventType = "request"       // the head has accepted a request from outside the job
	ExecStarted     EventType = "exec"          // a requested command has started
	ExecEnded       EventType = "exec-exit"     // a requested command has ended
	FenceLeft       EventType = "fence"         // the node's ranks have left a fence
	RanksSpawned    EventType = "spawned"       // a rank has spawned other ranks
	StepReached     EventType = "step"          // the head knows that the program has reached a step
	DaemonEnded     EventType = "end"           // the daemon has nothing left to do
)

// LinesLost marks a gap of Fields.Dropped lines, which the shared file system did not accept.
// Daemons do not write this type; [DecodeEvent] sets it.
const LinesLost EventType = "lost"

// Fields are the optional fields of events; docs/run-directory.md lists which event has which. A
// nil pointer means that the event does not have the field. The order is that of the JSON object.
type Fields struct {
	ObjectFields
	CheckFields
	TookNS int64  `json:"took_ns,omitempty"` // duration in nanoseconds
	OK     *bool  `json:"ok,omitempty"`      // success or failure
	Exit   string `json:"exit,omitempty"`    // description of the exit
	Seen   string `json:"seen,omitempty"`    // result of a probe
	FailureFields
	LinkFields
	GPUs  *int     `json:"gpus,omitempty"`
	Error string   `json:"error,omitempty"`
	GPU   string   `json:"gpu,omitempty"`  // description of the GPU event
	Code  *int     `json:"code,omitempty"` // exit code of the daemon
	Step  *float64 `json:"step,omitempty"` // step that the program has reached
	// number of lines that the shared file system did not accept
	Dropped int `json:"dropped,omitempty"`
}

// ObjectFields name what the event is about: a phase, a record, a child, a request, or a fence.
type ObjectFields struct {
	EndedPhase  record.Phase `json:"ended_phase,omitempty"`  // the phase that has ended
	Record      string       `json:"record,omitempty"`       // name of the record that was published or seen
	State       record.State `json:"state,omitempty"`        // state that the nodes have reached
	NodeIndices string       `json:"node_indices,omitempty"` // their indices, such as 1-3,7
	Ranks       string       `json:"ranks,omitempty"`        // numbers of spawned ranks
	Child       string       `json:"child,omitempty"`
	PID         int          `json:"pid,omitempty"`
	Request     string       `json:"request,omitempty"` // ID of the request
	Nodes       *int         `json:"nodes,omitempty"`   // number of nodes it is for
	Fence       string       `json:"fence,omitempty"`   // name of the fence
	Round       int          `json:"round,omitempty"`   // number of times it has been entered
}

// CheckFields describe checks.
type CheckFields struct {
	Check   string `json:"check,omitempty"`   // ID of the check
	Checks  string `json:"checks,omitempty"`  // conditions that the checks are waiting for
	Verdict string `json:"verdict,omitempty"` // verdict as named by package check
	Passed  *int   `json:"passed,omitempty"`  // number of checks passed
}

// FailureFields describe a failure or another event of a rank or a node.
type FailureFields struct {
	// rank or node that the event is about, if not this node
	Subject *int        `json:"subject,omitempty"`
	Kind    record.Kind `json:"kind,omitempty"`  // kind of failure as named by package health
	What    string      `json:"what,omitempty"`  // description of the event
	Lines   []string    `json:"lines,omitempty"` // last lines of a log
}

// LinkFields describe the peer link and the shared file system.
type LinkFields struct {
	Up         *bool  `json:"up,omitempty"`         // state of the peer link
	Reason     string `json:"reason,omitempty"`     // reason of its end, or what follows from an exit
	Responsive *bool  `json:"responsive,omitempty"` // whether the shared file system responds
}

// Succeeded reports whether the event describes a success.
func (f Fields) Succeeded() bool { return f.OK != nil && *f.OK }

// Event is one line of the event log.
type Event struct {
	At      string    `json:"at,omitempty"` // wall clock of the node, in RFC 3339 format
	Type    EventType `json:"event,omitempty"`
	Version int       `json:"v,omitempty"`
	// index of the node; nil before the run directory exists
	NodeIndex *int   `json:"node_index,omitempty"`
	Host      string `json:"host,omitempty"` // empty before the run directory exists
	Fields
	// monotonic time since the daemon's start, in nanoseconds
	SinceStartNS int64        `json:"since_start_ns,omitempty"`
	Phase        record.Phase `json:"phase,omitempty"` // phase that the node has entered last
}

func (e Event) encodeLine() ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(e)
	return line.Bytes(), err
}

// DecodeEvent parses one line. Invalid fields are left out. ok is false if the line is not an
// event.
func DecodeEvent(line []byte) (e Event, ok bool) {
	// The error may concern a single field: the other fields have been decoded.
	if err := json.Unmarshal(line, &e); err != nil && e.Type == "" {
		return e, false
	}
	if e.Type == "" && e.Dropped > 0 {
		e.Type = LinesLost
	}
	return e, e.Type != ""
}
