package report

import "time"

// ViewVersion is the version of a View's JSON form.
const ViewVersion = 1

// View is the content of a report. Its times are measured from Begin.
type View struct {
	subject
	moments

	Banner   Banner       `json:"banner"`
	Problems []string     `json:"problems,omitempty"` // descriptions of what could not be read
	Facts    []Fact       `json:"facts"`
	Phases   []PhaseStat  `json:"phases"`
	Critical []Step       `json:"critical_path,omitempty"`
	Nodes    []Node       `json:"node"` // sorted as rows: failed, never ready, last to be ready
	Seen     []Arrow      `json:"seen,omitempty"`
	Checks   []CheckGroup `json:"checks,omitempty"`
	Config   []Fact       `json:"configuration"`
	Logs     []Log        `json:"logs,omitempty"`
}

// subject identifies the run.
type subject struct {
	Version int       `json:"version"`
	Run     string    `json:"run"`
	Path    string    `json:"path"`
	ReadAt  time.Time `json:"read_at"`
	Begin   time.Time `json:"begin"` // first sign of life of any node, on the head's clock
	Size    int       `json:"nodes"`
}

// moments has the times from Begin to the milestones of the run; 0 if it has not reached them.
type moments struct {
	Gate time.Duration `json:"gate_ns"` // the gate opened, so the driver could start
	End  time.Duration `json:"end_ns"`  // the run was over
	Last time.Duration `json:"last_ns"` // last sign of life of any node
}

// Tone is a severity. It is shown as a colour, always next to a word.
type Tone string

// The severities.
const (
	Good Tone = "good"
	Mind Tone = "mind" // needs attention
	Bad  Tone = "bad"
	Idle Tone = "idle" // neither good nor bad: still running, or not reached
)

// Banner is the summary at the top of a report.
type Banner struct {
	Tone    Tone     `json:"tone"`
	Word    string   `json:"word"`            // such as Failed
	Title   string   `json:"title"`           // the reason, as a sentence
	Code    *int     `json:"code,omitempty"`  // the job's exit code
	Outcome string   `json:"kind,omitempty"`  // short name of the exit code
	Meaning string   `json:"means,omitempty"` // meaning of the exit code, and whether a retry is useful
	Chain   []Link   `json:"chain,omitempty"` // the first cause and its consequences
	More    int      `json:"more,omitempty"`  // number of consequences that are not in Chain
	Advice  []string `json:"advice,omitempty"`
	Bad     []string `json:"bad_nodes,omitempty"` // hosts to avoid in the next job
	Events  []string `json:"events,omitempty"`    // events on nodes that did not end the run
	Notes   []string `json:"notes,omitempty"`     // notes on spares and on a retry
}

// Link is one failure: the first cause or a consequence.
type Link struct {
	First bool          `json:"first,omitempty"`
	Rank  int           `json:"rank"`
	Host  string        `json:"host"`
	Kind  string        `json:"kind"`
	Phase string        `json:"phase,omitempty"`
	What  string        `json:"what"`
	At    time.Duration `json:"at_ns"`             // 0 if unknown
	By    string        `json:"seen_by,omitempty"` // observer of the failure, if it is about another node
	Log   string        `json:"log,omitempty"`
	Lines []string      `json:"lines,omitempty"`
}

// Fact is a named value.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Note  string `json:"note,omitempty"`
	Tone  Tone   `json:"tone,omitempty"`
}

// PhaseStat has statistics of the durations of a phase on all nodes that entered it.
type PhaseStat struct {
	Phase  string        `json:"phase"`
	Nodes  int           `json:"nodes"`
	Open   int           `json:"open,omitempty"`   // number of nodes on which it has no end
	Failed int           `json:"failed,omitempty"` // number of nodes on which it failed
	Min    time.Duration `json:"min_ns"`
	P50    time.Duration `json:"p50_ns"`
	P90    time.Duration `json:"p90_ns"`
	Max    time.Duration `json:"max_ns"`
	Rank   int           `json:"slowest"` // index of the node with the longest duration
	Host   string        `json:"slowest_host"`
}

// Step is a part of the critical path: the phase and the node for which all others waited.
type Step struct {
	Phase string        `json:"phase"`
	Rank  int           `json:"rank"`
	Host  string        `json:"host"`
	From  time.Duration `json:"from_ns"`
	To    time.Duration `json:"to_ns"`
}

// Took returns the duration of the wait.
func (s Step) Took() time.Duration { return s.To - s.From }

// Node is one row of the report.
type Node struct {
	Rank     int           `json:"rank"`
	Host     string        `json:"host,omitempty"`
	State    string        `json:"state"` // in words
	Tone     Tone          `json:"tone"`
	Ready    time.Duration `json:"ready_ns"` // when it became ready; 0 if it never did
	Slow     []string      `json:"slow,omitempty"`
	Critical bool          `json:"critical,omitempty"`
	Lanes    []Lane        `json:"lanes,omitempty"`
	Failures []Link        `json:"failures,omitempty"`
	Befell   []string      `json:"befell,omitempty"`
	Checks   []string      `json:"checks,omitempty"` // findings that did not pass
	Facts    []Fact        `json:"facts,omitempty"`
	Logs     []string      `json:"logs,omitempty"` // names of entries in the View's Logs
}

// Lane is a phase of a node.
type Lane struct {
	Phase   string        `json:"phase"`
	Sandbox bool          `json:"sandbox,omitempty"` // recorded by the sandbox's own daemon
	From    time.Duration `json:"from_ns"`
	To      time.Duration `json:"to_ns"`
	Open    bool          `json:"open,omitempty"`
	Failed  bool          `json:"failed,omitempty"`
	Cut     bool          `json:"cut_short,omitempty"` // the end of the run, caused by another node, ended it
}

// Took returns the duration of the phase.
func (l Lane) Took() time.Duration { return l.To - l.From }

// Arrow is a record of the head, and when a worker read it.
type Arrow struct {
	Record string        `json:"record"`
	Rank   int           `json:"rank"`
	Wrote  time.Duration `json:"wrote_ns"`
	Saw    time.Duration `json:"saw_ns"`
}

// CheckGroup is a finding that is equal on several nodes.
type CheckGroup struct {
	ID       string `json:"id"`
	Verdict  string `json:"verdict"`
	Tone     Tone   `json:"tone"`
	Observed string `json:"observed,omitempty"`
	Expected string `json:"expected,omitempty"`
	Hint     string `json:"hint,omitempty"`
	Count    int    `json:"nodes"`
	On       string `json:"on"` // the nodes as text

	ranks []int
}

// Log is the end of a file in logs/.
type Log struct {
	Name  string   `json:"name"` // name of the file
	Rank  int      `json:"rank"` // node index; -1 if it belongs to no node
	Size  int64    `json:"size"`
	Cut   bool     `json:"cut,omitempty"` // the file has more lines
	Lines []string `json:"lines"`
	Error string   `json:"error,omitempty"`
}
