package report

import "time"

// ViewVersion is the version of the form that a View has as JSON.
const ViewVersion = 1

// View is what a report shows of a run. Times are counted from Begin.
type View struct {
	subject
	moments

	Banner   Banner       `json:"banner"`
	Problems []string     `json:"problems,omitempty"` // what could not be read
	Facts    []Fact       `json:"facts"`
	Phases   []PhaseStat  `json:"phases"`
	Critical []Step       `json:"critical_path,omitempty"`
	Nodes    []Node       `json:"node"` // by when they were ready
	Seen     []Arrow      `json:"seen,omitempty"`
	Checks   []CheckGroup `json:"checks,omitempty"`
	Config   []Fact       `json:"configuration"`
	Logs     []Log        `json:"logs,omitempty"`
}

// subject is which run it is.
type subject struct {
	Version int       `json:"version"`
	Run     string    `json:"run"`
	Path    string    `json:"path"`
	ReadAt  time.Time `json:"read_at"`
	Begin   time.Time `json:"begin"` // the first sign of any node, on the head's clock
	Size    int       `json:"nodes"`
}

// moments are how long after Begin it came this far; 0 where it never did.
type moments struct {
	Gate time.Duration `json:"gate_ns"` // the driver could start
	End  time.Duration `json:"end_ns"`  // the run was over
	Last time.Duration `json:"last_ns"` // the last sign of anybody
}

// Tone is how good something is: a colour, always beside a word.
type Tone string

// The tones.
const (
	Good Tone = "good"
	Mind Tone = "mind" // worth a look
	Bad  Tone = "bad"
	Idle Tone = "idle" // neither: it goes on, or never came to it
)

// Banner is what somebody with ten seconds reads.
type Banner struct {
	Tone    Tone   `json:"tone"`
	Word    string `json:"word"`           // Failed
	Title   string `json:"title"`          // why, in a sentence
	Code    *int   `json:"code,omitempty"` // the job's exit code
	Outcome string `json:"kind,omitempty"` // the code as a word
	// what the code says, and whether another try is worth it
	Meaning string   `json:"means,omitempty"`
	Chain   []Link   `json:"chain,omitempty"` // the first cause, and what came of it
	More    int      `json:"more,omitempty"`  // consequences that are not in Chain
	Advice  []string `json:"advice,omitempty"`
	Bad     []string `json:"bad_nodes,omitempty"` // hosts to stay away from
	Events  []string `json:"events,omitempty"`    // what befell nodes and ended nothing
	Notes   []string `json:"notes,omitempty"`     // of spares, and of another try
}

// Link is one failure.
type Link struct {
	First bool          `json:"first,omitempty"`
	Rank  int           `json:"rank"`
	Host  string        `json:"host"`
	Kind  string        `json:"kind"`
	Phase string        `json:"phase,omitempty"`
	What  string        `json:"what"`
	At    time.Duration `json:"at_ns"`             // 0 where it is not known
	By    string        `json:"seen_by,omitempty"` // who has seen it, where it is about another node
	Log   string        `json:"log,omitempty"`
	Lines []string      `json:"lines,omitempty"`
}

// Fact is a name and what it is.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Note  string `json:"note,omitempty"`
	Tone  Tone   `json:"tone,omitempty"`
}

// PhaseStat is how long a phase took on all nodes that went through it.
type PhaseStat struct {
	Phase  string        `json:"phase"`
	Nodes  int           `json:"nodes"`
	Open   int           `json:"open,omitempty"`   // that have not come out of it
	Failed int           `json:"failed,omitempty"` // that it went wrong on
	Min    time.Duration `json:"min_ns"`
	P50    time.Duration `json:"p50_ns"`
	P90    time.Duration `json:"p90_ns"`
	Max    time.Duration `json:"max_ns"`
	Rank   int           `json:"slowest"` // whose is Max
	Host   string        `json:"slowest_host"`
}

// Step is a part of the critical path: what all waited for at that time.
type Step struct {
	Phase string        `json:"phase"`
	Rank  int           `json:"rank"`
	Host  string        `json:"host"`
	From  time.Duration `json:"from_ns"`
	To    time.Duration `json:"to_ns"`
}

// Took returns how long it was waited for.
func (s Step) Took() time.Duration { return s.To - s.From }

// Node is one row.
type Node struct {
	Rank     int           `json:"rank"`
	Host     string        `json:"host,omitempty"`
	State    string        `json:"state"` // in words
	Tone     Tone          `json:"tone"`
	Ready    time.Duration `json:"ready_ns"` // 0: never
	Slow     []string      `json:"slow,omitempty"`
	Critical bool          `json:"critical,omitempty"`
	Lanes    []Lane        `json:"lanes,omitempty"`
	Failures []Link        `json:"failures,omitempty"`
	Befell   []string      `json:"befell,omitempty"`
	Checks   []string      `json:"checks,omitempty"` // those that did not pass
	Facts    []Fact        `json:"facts,omitempty"`
	Logs     []string      `json:"logs,omitempty"` // names in the View's Logs
}

// Lane is a phase of a node.
type Lane struct {
	Phase   string        `json:"phase"`
	Sandbox bool          `json:"sandbox,omitempty"` // of the sandbox's own daemon
	From    time.Duration `json:"from_ns"`
	To      time.Duration `json:"to_ns"`
	Open    bool          `json:"open,omitempty"`
	Failed  bool          `json:"failed,omitempty"`
	Cut     bool          `json:"cut_short,omitempty"` // by the end that something else brought
}

// Took returns how long it went on.
func (l Lane) Took() time.Duration { return l.To - l.From }

// Arrow is a record of the head's that a worker has seen.
type Arrow struct {
	Record string        `json:"record"`
	Rank   int           `json:"rank"`
	Wrote  time.Duration `json:"wrote_ns"`
	Saw    time.Duration `json:"saw_ns"`
}

// CheckGroup is what one check says alike of several nodes.
type CheckGroup struct {
	ID       string `json:"id"`
	Verdict  string `json:"verdict"`
	Tone     Tone   `json:"tone"`
	Observed string `json:"observed,omitempty"`
	Expected string `json:"expected,omitempty"`
	Hint     string `json:"hint,omitempty"`
	Count    int    `json:"nodes"`
	On       string `json:"on"` // the nodes, in words

	ranks []int
}

// Log is the end of a file in logs/.
type Log struct {
	Name  string   `json:"name"` // of the file
	Rank  int      `json:"rank"` // -1 where it is nobody's
	Size  int64    `json:"size"`
	Cut   bool     `json:"cut,omitempty"` // there is more of it
	Lines []string `json:"lines"`
	Error string   `json:"error,omitempty"`
}
