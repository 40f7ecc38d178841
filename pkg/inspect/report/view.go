// Package report shows a run, which package timeline has read, as one page, for people who did not
// watch it: the first failure, what to do about it, and the timeline of all nodes. NewView makes a View
// without any input or output; the writers only format what the View contains.
//
// Everything in a run directory is untrusted: a View contains no control characters, and no very
// long lines.
package report

import (
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
)

// ViewVersion is the version of a View's JSON form.
const ViewVersion = 1

// View is the content of a report. Its times are measured from Begin. The tag max is the maximum number
// of characters of a text.
type View struct {
	runIdentity
	Banner   Banner             `json:"banner"`
	Problems []string           `json:"problems,omitempty"` // descriptions of what could not be read
	Facts    []Fact             `json:"facts"`
	Attempts []timeline.Attempt `json:"attempts,omitempty"` // of the job; none if there is only one
	roleData
	progressData
	Phases   []PhaseStat    `json:"phases"`
	Critical []CriticalStep `json:"critical_path,omitempty"`
	Nodes    []NodeRow      `json:"node"` // sorted as rows: failed, never ready, last to be ready
	Checks   []CheckGroup   `json:"checks,omitempty"`
	Config   []Fact         `json:"configuration"`
	Logs     []LogTail      `json:"logs,omitempty"`

	hasEnded bool // its end is recorded
}

// roleData is what a View contains about the roles of the run.
type roleData struct {
	Roles     []timeline.RoleStatus `json:"roles,omitempty"`
	Instances []InstanceRow         `json:"instances,omitempty"`
	Exits     []RoleExit            `json:"role_exits,omitempty"` // by time
}

// RoleExit is the exit of an instance of a role.
type RoleExit struct {
	Instance  string        `json:"instance" max:"80"` // such as judge.1
	NodeIndex int           `json:"rank"`
	Host      string        `json:"host" max:"80"`
	At        time.Duration `json:"at_ns"`
	What      string        `json:"what"`
	Follows   string        `json:"follows,omitempty" max:"80"` // what follows from it, in words
	Lines     []string      `json:"lines,omitempty" max:"600"`  // last lines of its log
}

// runIdentity identifies the run, and has the times from Begin to its milestones; 0 if it has not
// reached them.
type runIdentity struct {
	Version int       `json:"version"`
	Run     string    `json:"run"`
	Path    string    `json:"path"`
	ReadAt  time.Time `json:"read_at"`
	Begin   time.Time `json:"begin"` // first sign of life of any node, on the head's clock
	Size    int       `json:"nodes"`

	Gate time.Duration `json:"gate_ns"` // the gate opened, so the driver could start
	End  time.Duration `json:"end_ns"`  // the run was over
	Last time.Duration `json:"last_ns"` // last sign of life of any node
}

// Severity is a severity. It is shown as a colour, always next to a word.
type Severity string

// The severities.
const (
	SeverityGood      Severity = "good"
	SeverityAttention Severity = "mind" // needs attention
	SeverityBad       Severity = "bad"
	SeverityNeutral   Severity = "idle" // neither good nor bad: still running, or not reached
)

// Banner is the summary at the top of a report.
type Banner struct {
	Tone    Severity `json:"tone"`
	Word    string   `json:"word"`                    // such as Failed
	Title   string   `json:"title"`                   // the reason, as a sentence
	Error   string   `json:"error,omitempty"`         // line of the program that says why it has failed
	Code    *int     `json:"code,omitempty"`          // the job's exit code
	Outcome string   `json:"kind,omitempty" max:"80"` // short name of the exit code
	// meaning of the exit code, and whether a retry is useful
	Meaning string       `json:"means,omitempty"`
	Chain   []CauseEntry `json:"chain,omitempty"` // the first cause and its consequences
	More    int          `json:"more,omitempty"`  // number of consequences that are not in Chain
	Advice  []string     `json:"advice,omitempty"`
	Bad     []string     `json:"bad_nodes,omitempty"` // hosts to avoid in the next job
	Events  []string     `json:"events,omitempty"`    // events on nodes that did not end the run
	Notes   []string     `json:"notes,omitempty"`     // notes on spares and on a retry
}

// CauseEntry is one failure: the first cause or a consequence.
type CauseEntry struct {
	First     bool          `json:"first,omitempty"`
	NodeIndex int           `json:"rank"`
	Host      string        `json:"host" max:"80"`
	Kind      string        `json:"kind" max:"80"`
	Phase     string        `json:"phase,omitempty" max:"80"`
	What      string        `json:"what"`
	At        time.Duration `json:"at_ns"` // 0 if unknown
	// observer of the failure, if it is about another node
	By    string   `json:"seen_by,omitempty"`
	Log   string   `json:"log,omitempty"`
	Error string   `json:"error,omitempty" max:"600"` // the line of its output that says why; may be empty
	Lines []string `json:"lines,omitempty" max:"600"`
}

// Fact is a named value.
type Fact struct {
	Name  string   `json:"name" max:"80"`
	Value string   `json:"value"`
	Note  string   `json:"note,omitempty"`
	Tone  Severity `json:"tone,omitempty"`
}

// PhaseStat has statistics of the durations of a phase on all nodes that entered it.
type PhaseStat struct {
	Phase     string        `json:"phase" max:"80"`
	Nodes     int           `json:"nodes"`
	Open      int           `json:"open,omitempty"`   // number of nodes on which it has no end
	Failed    int           `json:"failed,omitempty"` // number of nodes on which it failed
	Min       time.Duration `json:"min_ns"`
	P50       time.Duration `json:"p50_ns"`
	P90       time.Duration `json:"p90_ns"`
	Max       time.Duration `json:"max_ns"`
	NodeIndex int           `json:"slowest"` // index of the node with the longest duration
	Host      string        `json:"slowest_host" max:"80"`
}

// CriticalStep is a part of the critical path: the phase and the node, or the instance of a role,
// for which all others waited.
type CriticalStep struct {
	Phase     string        `json:"phase" max:"80"`
	Instance  string        `json:"instance,omitempty" max:"80"`
	NodeIndex int           `json:"rank"`
	Host      string        `json:"host" max:"80"`
	From      time.Duration `json:"from_ns"`
	To        time.Duration `json:"to_ns"`
}

// Took returns the duration of the wait.
func (s CriticalStep) Took() time.Duration { return s.To - s.From }

// NodeRow is one row of the report.
type NodeRow struct {
	NodeIndex int           `json:"rank"`
	Host      string        `json:"host,omitempty" max:"80"`
	State     string        `json:"state" max:"80"` // its step, as in bringupd status
	Tone      Severity      `json:"tone"`
	Ready     time.Duration `json:"ready_ns"` // when it became ready; 0 if it never did
	Critical  bool          `json:"critical,omitempty"`
	Lanes     []PhaseLane   `json:"lanes,omitempty"`
	Failures  []CauseEntry  `json:"failures,omitempty"`
	Befell    []string      `json:"befell,omitempty"`
	Checks    []string      `json:"checks,omitempty"` // findings that did not pass
	Facts     []Fact        `json:"facts,omitempty"`
	Logs      []string      `json:"logs,omitempty"` // names of entries in the View's Logs
}

// PhaseLane is a phase of a node.
type PhaseLane struct {
	Phase   string        `json:"phase" max:"80"`
	Sandbox bool          `json:"sandbox,omitempty"` // recorded by the sandbox's own daemon
	From    time.Duration `json:"from_ns"`
	To      time.Duration `json:"to_ns"`
	Open    bool          `json:"open,omitempty"`
	Failed  bool          `json:"failed,omitempty"`
	// the end of the run, caused by another node, ended it
	Cut bool `json:"cut_short,omitempty"`
}

// Took returns the duration of the phase.
func (l PhaseLane) Took() time.Duration { return l.To - l.From }

// CheckGroup is a finding that is equal on several nodes.
type CheckGroup struct {
	ID       string   `json:"id"`
	Verdict  string   `json:"verdict"`
	Tone     Severity `json:"tone"`
	Observed string   `json:"observed,omitempty"`
	Expected string   `json:"expected,omitempty"`
	Hint     string   `json:"hint,omitempty"`
	Count    int      `json:"nodes"`
	On       string   `json:"on"` // the nodes as text
}

// LogTail is the end of a file in logs/.
type LogTail struct {
	Name      string   `json:"name" max:"80"` // name of the file
	NodeIndex int      `json:"rank"`          // node index; -1 if it belongs to no node
	Size      int64    `json:"size"`
	Cut       bool     `json:"cut,omitempty"` // the file has more lines
	Lines     []string `json:"lines" max:"600"`
	Error     string   `json:"error,omitempty"`
}
