package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// StatusVersion is the version of a Status as JSON. It grows where a field goes
// or changes what it means; new fields may come without.
const StatusVersion = 1

// State is how a run is on the whole.
type State string

// The states of a run.
const (
	BringingUp State = "bringing-up"
	IsUp       State = "up"     // the gate is open
	Ending     State = "ending" // the end is published, and not all have told of theirs
	Finished   State = "finished"
	HasFailed  State = "failed"
)

// Exit codes of who asks how a run is.
const (
	StatusGood       = 0 // it is up, or has ended with 0
	StatusFailed     = 1
	StatusInProgress = 2 // or nobody can tell: it gives no sign of life
	StatusNoRun      = 3
)

// Status is how a run is at one moment: what --json prints. Its texts are one
// line each, short, and have nothing in them that moves a cursor.
type Status struct {
	subject
	standing
	counts
	times
	purpose
	Waits []Wait      `json:"waits_for,omitempty"`
	Steps []StepCount `json:"steps"` // where the nodes are, in the order of the sequence
	nodesShown
	// Next is what can happen next, and Deadline when, where that is known.
	Next     string     `json:"next"`
	Deadline *time.Time `json:"deadline,omitempty"`
	End      *End       `json:"end,omitempty"` // nil while it goes on
	life
	Problems []string `json:"problems,omitempty"` // what could not be read
}

// subject is which run is looked at, and when.
type subject struct {
	Version int       `json:"v"`
	Run     string    `json:"run"`
	Path    string    `json:"path"`
	At      time.Time `json:"at"`
}

// standing is how the run is on the whole.
type standing struct {
	State State `json:"state"`
	Code  int   `json:"exit_code"` // that status ends with, not the job's
	// Phase is the one of the sequence that the run is in, or ended in.
	Phase      string      `json:"phase"`
	Conditions []Condition `json:"conditions"`
}

// counts are how many nodes there are, how many the driver needs (less where there
// are spares), and how many have all that the gate asks of them.
type counts struct {
	Nodes int `json:"nodes"`
	Need  int `json:"need"`
	Ready int `json:"ready"`
}

// times count from the head's start; ToGate is 0 where the gate has not opened.
type times struct {
	Elapsed time.Duration `json:"elapsed_ns"`
	ToGate  time.Duration `json:"to_gate_ns,omitempty"`
}

// purpose is what runs on the nodes, and where its pages are.
type purpose struct {
	Driver string `json:"driver,omitempty"`
	World  bool   `json:"world,omitempty"` // the driver runs in ranks on all nodes
	// DriverCode is what the driver has ended with where all else stays for a look; nil: it has not
	// ended, or all ends.
	DriverCode *int   `json:"driver_code,omitempty"`
	Pages      *Pages `json:"dashboard,omitempty"` // nil where there are none, or it is over
}

// nodesShown are those to look at, the worst first, at most 20, and More others;
// and every node, where that was asked for.
type nodesShown struct {
	Abnormal []NodeStatus `json:"abnormal,omitempty"`
	More     int          `json:"abnormal_more,omitempty"`
	All      []NodeStatus `json:"all,omitempty"`
}

// life is whether the run gives signs of it.
type life struct {
	// LastSign is when something last changed in the run directory, by the
	// share's clock, and Unchanged how long nothing has while we looked.
	LastSign  *time.Time    `json:"last_sign,omitempty"`
	Unchanged time.Duration `json:"unchanged_ns,omitempty"`
	// Silent says that a live run would have given a sign by now: there was none
	// for SilentAfter.
	Silent      bool          `json:"silent,omitempty"`
	SilentAfter time.Duration `json:"silent_after_ns"`
}

// Pages are those of the head's service.
type Pages struct {
	URL  string `json:"url"` // as the head's node reaches them
	Host string `json:"host"`
}

// Wait is something that the gate waits for.
type Wait struct {
	Step  string `json:"step"`
	What  string `json:"what"`
	Ranks []int  `json:"ranks,omitempty"` // none where it is no node's
	Nodes string `json:"nodes,omitempty"` // the same for people
}

// StepCount is how many nodes are at a step.
type StepCount struct {
	Step  string `json:"step"`
	Nodes int    `json:"nodes"`
}

// NodeStatus is one node's.
type NodeStatus struct {
	Rank int    `json:"rank"`
	Host string `json:"host,omitempty"`
	Step string `json:"step"`
	// Mark says how it is: waits, failed, lost, slow, dropped, left (something of ours
	// would not die there), befallen or ok.
	Mark string `json:"mark"`
	// For is how long it has been waited for or, of who is slow, how long it
	// took; 0 where that is not known.
	For  time.Duration `json:"for_ns,omitempty"`
	What string        `json:"what,omitempty"`
}

// The marks of nodes.
const (
	markFailed   = "failed"
	markLost     = "lost"
	markLeft     = "left"
	markWaits    = "waits"
	markBefallen = "befallen"
	markDropped  = "dropped"
	markSlow     = "slow"
	markOK       = "ok"
)

// worst is the order of marks.
var worst = []string{markFailed, markLost, markLeft, markWaits, markBefallen, markDropped, markSlow, markOK}

// End is how a run has ended, or is about to.
type End struct {
	Code   int           `json:"code"` // the job's
	Word   string        `json:"word"`
	Why    string        `json:"why"`
	Took   time.Duration `json:"took_ns,omitempty"`
	Rank   *int          `json:"rank,omitempty"` // who has seen the first cause
	Host   string        `json:"host,omitempty"`
	Lost   []int         `json:"lost,omitempty"` // the ranks that are missed, where it is that
	LostOn string        `json:"lost_nodes,omitempty"`
	Phase  string        `json:"phase,omitempty"`
	Cause  string        `json:"cause,omitempty"` // the first cause's sentence
	Log    string        `json:"log,omitempty"`   // the log that speaks of it
	Lines  []string      `json:"lines,omitempty"` // the last ones of it
	Advice []string      `json:"advice,omitempty"`
	Others int           `json:"consequences,omitempty"`
	BadOn  string        `json:"bad_nodes,omitempty"`
}

// Look is what who looks knows besides the run.
type Look struct {
	Now     time.Time // by the clock of who looks
	Verbose bool      // all nodes are wanted
	// LastSign is when something last changed in the run directory, by the
	// share's clock; zero where that is not known.
	LastSign time.Time
	// Unchanged is for how long nothing has changed, by the clock of who looks
	// again and again.
	Unchanged time.Duration
}

// Summarize tells how a run is. It believes nothing that it is given: any run
// has a status.
func Summarize(run *Run, look Look) Status {
	v := newView(run, look.Now)
	s := Status{
		subject:  subject{StatusVersion, tame(run.Name), tame(run.Path), look.Now},
		standing: standing{State: v.state()}, times: times{v.elapsed(), v.toGate()}, purpose: purpose{Driver: tame(v.plan.Driver), World: v.plan.HasRanks}, End: v.end(), Problems: tameAll(run.Problems),
	}
	s.counts = counts{Nodes: run.Size(), Need: v.need}
	s.Steps, s.Ready = v.count(s.Over())
	s.nodesShown = v.shown(s.State, look.Verbose)
	if s.State == BringingUp {
		s.Waits = v.waits()
	}
	if !s.Over() {
		s.Pages = v.pages()
	}
	if look := run.Control.Look; look != nil && s.State == IsUp {
		s.DriverCode = &look.Code
	}
	s.Phase = tame(v.phase(s))
	s.Next, s.Deadline = v.next(s)
	s.Code = statusCodes[s.State]
	s.life = look.life(run.SilentAfter(), s.Over())
	if s.Silent { // one that is up no more than it seems is no success to build upon
		s.Code = StatusInProgress
	}
	s.Conditions = v.conditions(s)
	return s
}

var statusCodes = map[State]int{
	BringingUp: StatusInProgress, IsUp: StatusGood, Ending: StatusInProgress, Finished: StatusGood, HasFailed: StatusFailed,
}

// life tells whether a run that is not over has given no sign for too long.
func (l Look) life(after time.Duration, over bool) life {
	signs := life{Unchanged: l.Unchanged, SilentAfter: after, Silent: !over && l.Unchanged >= after}
	if !l.LastSign.IsZero() {
		signs.LastSign = &l.LastSign
		signs.Silent = signs.Silent || !over && l.Now.Sub(l.LastSign) >= after
	}
	return signs
}

// Over tells whether there is nothing more to wait for.
func (s Status) Over() bool { return s.State == Finished || s.State == HasFailed }

// state is how the run is on the whole. The result is the last word.
func (v *view) state() State {
	c := v.run.Control
	switch {
	case v.run.Result != nil && v.run.Result.Code == 0:
		return Finished
	case v.run.Result != nil, c.Over.There:
		return HasFailed
	case len(c.Aborts) > 0, c.Drain.There:
		return Ending
	case c.Go.There:
		return IsUp
	default:
		return BringingUp
	}
}

func (v *view) elapsed() time.Duration {
	if v.run.Result != nil && v.run.Result.Duration > 0 {
		return v.run.Result.Duration
	}
	if v.start.IsZero() {
		return 0
	}
	return max(0, v.now.Sub(v.start))
}

func (v *view) toGate() time.Duration {
	if v.run.Result != nil {
		return v.run.Result.TimeToGate
	}
	if at := v.run.Control.Go.At; !at.IsZero() && !v.start.IsZero() {
		return max(0, at.Sub(v.start))
	}
	return 0
}

// end is how the run ends, as far as that is published.
func (v *view) end() *End {
	r := v.run.Verdict()
	if r == nil {
		return nil
	}
	end := &End{
		Code: r.Code, Word: tame(r.Outcome), Why: tame(r.Reason), Took: r.Duration, Advice: tameAll(r.Advice),
		Others: len(r.Consequences), BadOn: tame(roles.CompactNodeList(r.BadNodes)),
	}
	end.blame(v, r.Cause)
	return end
}

// blame tells of the first cause, where there is one.
func (e *End) blame(v *view, cause *signal.FailureRecord) {
	if cause == nil {
		return
	}
	e.Rank, e.Host, e.Phase, e.Cause, e.Log = &cause.Rank, tame(cause.Host), tame(cause.Phase), tame(cause.Message), tame(cause.Log)
	if len(cause.LostNodes) > 0 {
		e.Lost, e.LostOn = cause.LostNodes, v.who(cause.LostNodes)
	}
	e.Lines = tameAll(cause.Lines[max(0, len(cause.Lines)-mostQuoted):])
}

// mostQuoted is how many last lines of a log are shown.
const mostQuoted = 10

// phase is the one that the run is in.
func (v *view) phase(s Status) string {
	switch {
	case v.run.Result != nil && v.run.Result.AtPhase != "":
		return v.run.Result.AtPhase
	case s.End != nil && s.End.Phase != "":
		return s.End.Phase
	case v.run.Control.Drain.There, s.Over():
		return "drain"
	case v.run.Control.Go.There:
		return "driver"
	case len(s.Waits) > 0:
		return s.Waits[0].Step
	default:
		return "gate"
	}
}

// mostAbnormal is how many nodes are shown one by one.
const mostAbnormal = 20

// shown are the nodes to look at, and all by rank where that is asked for.
func (v *view) shown(state State, verbose bool) (shown nodesShown) {
	all := make([]NodeStatus, 0, len(v.nodes))
	for _, n := range v.nodes {
		all = append(all, v.status(n, state))
	}
	if verbose {
		shown.All = slices.Clone(all)
	}
	odd := slices.DeleteFunc(all, func(n NodeStatus) bool { return n.Mark == markOK })
	slices.SortStableFunc(odd, worseFirst)
	shown.Abnormal, shown.More = odd[:min(len(odd), mostAbnormal)], max(0, len(odd)-mostAbnormal)
	return shown
}

// worseFirst puts what is wrong for good before what may become well, and that
// before what is past.
func worseFirst(a, b NodeStatus) int {
	return cmp.Or(
		cmp.Compare(slices.Index(worst, a.Mark), slices.Index(worst, b.Mark)),
		cmp.Compare(b.For/time.Second, a.For/time.Second), // as it is shown
		cmp.Compare(a.Rank, b.Rank))
}
