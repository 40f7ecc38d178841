package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// StatusVersion is the version of a Status as JSON. It increases if a field is removed or changes
// its meaning; new fields do not change it.
const StatusVersion = 1

// RunState is the overall state of a run.
type RunState string

// The states of a run.
const (
	StateBringingUp RunState = "bringing-up"
	StateUp         RunState = "up" // the gate is open
	// the end is published, but not all daemons have reported theirs
	StateEnding   RunState = "ending"
	StateFinished RunState = "finished"
	StateFailed   RunState = "failed"
	// the records have another version of the format, and there is no result
	StateUnknown RunState = "unknown"
)

// Exit codes of bringupd status.
const (
	ExitGood       = 0 // the run is up, or has ended with code 0
	ExitFailed     = 1
	ExitInProgress = 2 // still in progress, or unknown
)

// Status is the state of a run at one moment, as --json prints it. Its texts are short single lines
// without terminal control characters.
type Status struct {
	overallState
	driverInfo
	Roles []RoleStatus `json:"roles,omitempty"`
	Waits []GateWait   `json:"waits_for,omitempty"`
	Steps []StepCount  `json:"steps"` // number of nodes at each step, in the order of the sequence
	// Abnormal has the nodes that need attention, at most 20 with the worst first, More is the number
	// of further ones, and All has all nodes if they were requested.
	Abnormal []NodeStatus `json:"abnormal,omitempty"`
	More     int          `json:"abnormal_more,omitempty"`
	All      []NodeStatus `json:"all,omitempty"`
	nodesInText
	// Next describes what can happen next, and Deadline is the time of it; nil if unknown.
	Next     string     `json:"next"`
	Deadline *time.Time `json:"deadline,omitempty"`
	End      *RunEnd    `json:"end,omitempty"` // nil while the run continues
	signsOfLife
	Progress *ProgressStatus `json:"progress,omitempty"` // nil if the program reports no steps
	Problems []string        `json:"problems,omitempty"` // descriptions of what could not be read
}

// nodesInText has the abnormal nodes that a text shows, and the number of further ones: those that wait
// for an instance are shown with its role.
type nodesInText struct {
	Listed   []NodeStatus `json:"-"`
	Unlisted int          `json:"-"`
}

// overallState is the overall state of the run at the time At.
type overallState struct {
	Version int       `json:"v"`
	Run     string    `json:"run"`
	Path    string    `json:"path"`
	At      time.Time `json:"at"`
	State   RunState  `json:"state"`
	Code    int       `json:"exit_code"` // exit code of bringupd status, not of the job
	// Phase is the phase of the sequence that the run is in, or in which it ended.
	Phase string `json:"phase"`
	succession
	// OtherVersion reports that the records have another version of the format, so that only the
	// result is known. Problems says so.
	OtherVersion bool `json:"other_version,omitempty"`
	Nodes        int  `json:"nodes"`
	Need         int  `json:"need"`  // nodes that the driver needs: less if there are spares
	Ready        int  `json:"ready"` // nodes that meet all requirements of the gate
	// Elapsed and ToGate are measured from the head's start. ToGate is 0 before the gate opens.
	Elapsed time.Duration `json:"elapsed_ns"`
	ToGate  time.Duration `json:"to_gate_ns,omitempty"`
	// EndedAt is when the run ended, by the head's clock; nil if it is not over.
	EndedAt *time.Time `json:"ended_at,omitempty"`
}

// succession describes the other runs of the job.
type succession struct {
	NextAttempt int `json:"next_attempt,omitempty"` // number of the attempt that follows; 0: none
	// Requeued reports that the run has asked for a requeue of its job.
	Requeued bool `json:"requeued,omitempty"`
	// Attempts are those of the same job step: this one, the one before it, and later ones; none if there
	// is only one.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// driverInfo describes what runs on the nodes, and its dashboard.
type driverInfo struct {
	Driver string `json:"driver,omitempty"`
	World  bool   `json:"world,omitempty"` // the driver runs as ranks on all nodes
	// Command is the driver with its arguments, Flags are the settings that are not defaults, and
	// JobName is the user's name of the job at its launcher.
	Command string   `json:"command,omitempty"`
	Flags   []string `json:"flags,omitempty"`
	JobName string   `json:"job_name,omitempty"`
	// DriverCode is the driver's exit code while services stay up after it; nil if it has not ended,
	// or if everything ends with it.
	DriverCode *int       `json:"driver_code,omitempty"`
	Pages      *Dashboard `json:"dashboard,omitempty"` // nil if there is none, or if the run is over
}

type signsOfLife struct {
	// LastSign is the time of the last change in the run directory, by the file server's clock.
	// Unchanged is how long the reader has observed no change.
	LastSign  *time.Time    `json:"last_sign,omitempty"`
	Unchanged time.Duration `json:"unchanged_ns,omitempty"`
	// Silent reports that a live run would have given a sign of life by now: there was none for
	// SilentAfter.
	Silent      bool          `json:"silent,omitempty"`
	SilentAfter time.Duration `json:"silent_after_ns"`
}

// ProgressStatus is the progress of the program, also as a text for people.
type ProgressStatus struct {
	record.Progress
	Text string `json:"text"`
}

// Dashboard is the dashboard of the head's service.
type Dashboard struct {
	URL  string `json:"url"` // valid on the head's node
	Host string `json:"host"`
}

// GateWait is a step that the gate waits for.
type GateWait struct {
	Step        string `json:"step"`
	Role        string `json:"role,omitempty"` // whose instances it concerns; empty: none
	What        string `json:"what"`
	NodeIndices []int  `json:"ranks,omitempty"` // empty if the wait does not concern particular nodes
	Nodes       string `json:"nodes,omitempty"` // the same nodes for people: hosts or ranges of indices
}

// StepCount is the number of nodes at a step.
type StepCount struct {
	Step  string `json:"step"`
	Nodes int    `json:"nodes"`
}

// NodeStatus is the status of one node.
type NodeStatus struct {
	NodeIndex int    `json:"rank"`
	Host      string `json:"host,omitempty"`
	Step      string `json:"step"`
	// Mark is the class of the node: waits, failed, lost, dropped, left (a process of the job
	// could not be ended there), befallen (an event occurred there), or ok.
	Mark string `json:"mark"`
	// For is how long the node has been waited for; 0 if unknown.
	For  time.Duration `json:"for_ns,omitempty"`
	What string        `json:"what,omitempty"`
	// ReadyAt is when the node met all requirements of the gate, by the head's clock; zero if unknown,
	// or if it does not.
	ReadyAt time.Time `json:"-"`
}

// IsFailed reports whether the node has failed, or is lost.
func (n NodeStatus) IsFailed() bool { return n.Mark == markFailed || n.Mark == markLost }

// NeedsAttention reports whether the job has dropped the node, or has left a process there.
func (n NodeStatus) NeedsAttention() bool { return n.Mark == markDropped || n.Mark == markLeftover }

// The marks of nodes.
const (
	markFailed   = "failed"
	markLost     = "lost"
	markLeftover = "left"
	markWaiting  = "waits"
	markEvent    = "befallen"
	markDropped  = "dropped"
	markOK       = "ok"
)

// marksBySeverity lists the marks, the worst first.
var marksBySeverity = []string{
	markFailed, markLost, markLeftover, markWaiting, markEvent, markDropped, markOK,
}

// RunEnd is the outcome of a run that has ended or is about to end.
type RunEnd struct {
	Code int           `json:"code"` // the job's exit code
	Word string        `json:"word"`
	Why  string        `json:"why"`
	Took time.Duration `json:"took_ns,omitempty"`
	firstCause
	Advice []string `json:"advice,omitempty"`
	Others int      `json:"consequences,omitempty"`
	BadOn  string   `json:"bad_nodes,omitempty"`
}

// firstCause is the first cause of an outcome, as far as it is known.
type firstCause struct {
	NodeIndex *int   `json:"rank,omitempty"` // index of the node that observed it
	Host      string `json:"host,omitempty"`
	// indices of the lost nodes, if it is a loss
	Lost   []int    `json:"lost,omitempty"`
	LostOn string   `json:"lost_nodes,omitempty"`
	Phase  string   `json:"phase,omitempty"`
	Cause  string   `json:"cause,omitempty"` // a sentence
	Error  string   `json:"error,omitempty"` // the line of its log that says why it has failed
	Log    string   `json:"log,omitempty"`   // name of the log file to read about it
	Lines  []string `json:"lines,omitempty"` // its last lines
}

// Observation has the input of SummarizeRun besides the run: the options and observations of the
// reader.
type Observation struct {
	Now     time.Time // on the reader's clock
	Verbose bool      // include all nodes
	// LastSign is the time of the last change in the run directory, by the file server's clock; zero
	// if unknown.
	LastSign time.Time
	// Unchanged is how long a reader that polls repeatedly has observed no change, by its own clock.
	Unchanged time.Duration
}

// SummarizeRun returns the status of a run. It does not trust its input: it returns a status for
// any run.
func SummarizeRun(run *Run, seen Observation) Status {
	v := newStatusView(run, seen.Now)
	s := Status{
		overallState: overallState{
			Version: StatusVersion, Run: run.Name, Path: run.Path, At: seen.Now,
			State: v.overallState(), OtherVersion: run.OtherVersion, Nodes: run.Size(), Need: v.need,
			Elapsed: v.elapsedTime(), ToGate: v.timeToGate(), EndedAt: v.endTime(),
		},
		driverInfo: driverInfo{
			Driver: v.plan.Driver, World: v.plan.HasRanks, Command: v.plan.Command,
			Flags: v.plan.Flags, JobName: v.plan.JobName,
		},
		Roles: v.roleStates(), End: v.runEnd(), Problems: run.Problems, Steps: []StepCount{},
	}
	if !run.OtherVersion {
		s.Steps, s.Ready = v.countSteps(s.Over())
		v.selectNodes(&s, seen.Verbose)
	}
	if s.State == StateBringingUp {
		s.Waits = v.gateWaits()
	}
	if !s.Over() {
		s.Pages = v.serviceDashboard()
	}
	// Services stay up after the driver: report its exit code.
	if linger := run.Control.LingerRecord; linger != nil && s.State == StateUp {
		s.DriverCode = &linger.Code
	}
	if verdict := run.Verdict(); verdict != nil {
		s.NextAttempt = verdict.NextAttempt
		s.Requeued = verdict.Requeue != nil && verdict.Requeue.Wanted
	}
	s.Attempts = slices.Clone(run.Attempts)
	// The following fields depend on those above.
	if s.State != StateUnknown {
		s.Phase = v.currentPhase(s)
		s.Next, s.Deadline = v.describeNext(s)
	}
	if p := run.Progress(); p != nil {
		nodeName := func(node int) string { return v.formatNodeList([]int{node}) }
		s.Progress = &ProgressStatus{*p, progress.Describe(*p, nodeName)}
	}
	s.Code = exitCodes[s.State]
	s.signsOfLife = seen.evaluateSigns(run.SilentAfter(), s.Over())
	if s.Silent { // possibly dead: not a success to rely on
		s.Code = ExitInProgress
	}
	// The texts are untrusted: they may move the cursor, reverse the writing direction, or be very long.
	// Only lines of logs are indented.
	textutil.CleanTexts(&s, maxTextLength, textutil.IndentedLine)
	return s
}

// maxTextLength is the maximum length in characters of a text on one line.
const maxTextLength = 400

var exitCodes = map[RunState]int{
	StateBringingUp: ExitInProgress, StateUp: ExitGood, StateEnding: ExitInProgress,
	StateFinished: ExitGood, StateFailed: ExitFailed, StateUnknown: ExitInProgress,
}

// evaluateSigns evaluates the signs of life. A run that is not over is silent if it has given none
// for the given time.
func (l Observation) evaluateSigns(after time.Duration, over bool) signsOfLife {
	signs := signsOfLife{Unchanged: l.Unchanged, SilentAfter: after, Silent: !over && l.Unchanged >= after}
	if !l.LastSign.IsZero() {
		signs.LastSign = &l.LastSign
		signs.Silent = signs.Silent || !over && l.Now.Sub(l.LastSign) >= after
	}
	return signs
}

// minOldAge is the age of a run from which on its status begins with it.
const minOldAge = time.Minute

// Age returns how long ago the run ended, for people: "3 min 07 s", "4 days". It is empty if the run
// is not over, or has just ended.
func (s Status) Age() string {
	const day = 24 * time.Hour
	if s.EndedAt == nil || s.At.Sub(*s.EndedAt) < minOldAge {
		return ""
	}
	age := s.At.Sub(*s.EndedAt)
	if age < 2*day {
		return textutil.BriefDuration(age.Truncate(time.Second))
	}
	return fmt.Sprintf("%d days", age/day)
}

// Over reports whether the run is over, so that there is nothing more to wait for.
func (s Status) Over() bool { return s.State == StateFinished || s.State == StateFailed }

// overallState returns the overall state of the run. The result takes precedence over other
// records.
func (v *statusView) overallState() RunState {
	c := v.run.Control
	switch {
	case v.run.Result != nil && v.run.Result.Code == 0:
		return StateFinished
	case v.run.Result != nil, c.Over.Exists:
		return StateFailed
	case v.run.OtherVersion:
		return StateUnknown
	case len(c.Aborts) > 0, c.Drain.Exists:
		return StateEnding
	case c.Go.Exists:
		return StateUp
	default:
		return StateBringingUp
	}
}

// elapsedTime returns the duration of the run so far, or of the whole run if it is over.
func (v *statusView) elapsedTime() time.Duration {
	if v.run.Result != nil && v.run.Result.Duration > 0 {
		return v.run.Result.Duration
	}
	if v.start.IsZero() {
		return 0
	}
	return max(0, v.now.Sub(v.start))
}

func (v *statusView) endTime() *time.Time {
	at := v.run.Control.Over.At
	if v.run.Result != nil {
		at = v.run.Result.WrittenAt
	}
	if at.IsZero() {
		return nil
	}
	return &at
}

// timeToGate returns the time from the head's start until the gate opened, by the clock of the head:
// that of its result, of its event log or, without them, of its records; 0 if it is not known.
func (v *statusView) timeToGate() time.Duration {
	opened := v.run.Control.Go.At
	switch result := v.run.Result; {
	case result != nil && result.TimeToGate > 0:
		return result.TimeToGate
	case v.run.Control.TimeToGate > 0 || result != nil || opened.IsZero() || v.start.IsZero():
		return v.run.Control.TimeToGate
	default: // the record is an older head's, or the file system is full
		return max(0, opened.Sub(v.start))
	}
}

func (v *statusView) runEnd() *RunEnd {
	r := v.run.Verdict()
	if r == nil {
		return nil
	}
	end := &RunEnd{
		Code: r.Code, Word: r.Outcome, Why: r.Reason, Took: r.Duration,
		Advice: r.Advice, Others: len(r.Consequences),
		BadOn: launcher.CompactNodeList(r.BadNodes),
	}
	end.Error = r.ErrorLine // that of a driver, whose end has no cause
	cause := r.Cause
	if cause == nil {
		return end
	}
	end.NodeIndex, end.Host, end.Phase = &cause.NodeIndex, cause.Host, string(cause.Phase)
	end.Cause, end.Error, end.Log = cause.Message, cause.ErrorLine, cause.Log
	if len(cause.LostNodes) > 0 {
		end.Lost, end.LostOn = cause.LostNodes, v.formatNodeList(cause.LostNodes)
	}
	end.Lines = cause.Lines[max(0, len(cause.Lines)-maxQuotedLines):]
	return end
}

const maxQuotedLines = 10

// currentPhase returns the phase that the run is in, or in which it ended.
func (v *statusView) currentPhase(s Status) string {
	switch {
	case v.run.Result != nil && v.run.Result.AtPhase != "":
		return string(v.run.Result.AtPhase)
	case s.End != nil && s.End.Phase != "":
		return s.End.Phase
	case v.run.Control.Drain.Exists, s.Over():
		return "drain"
	case v.run.Control.Go.Exists:
		return "driver"
	case len(s.Waits) > 0:
		return s.Waits[0].Step
	default:
		return "gate"
	}
}

const maxAbnormalNodes = 20

// selectNodes sets the nodes that need attention and, if verbose is set, all nodes by index.
// Permanent failures come first, then conditions that may still resolve, then past events.
func (v *statusView) selectNodes(s *Status, verbose bool) {
	all := make([]NodeStatus, 0, len(v.nodes))
	for _, n := range v.nodes {
		all = append(all, v.nodeStatus(n, s.State))
	}
	if verbose {
		s.All = slices.Clone(all)
	}
	abnormal := slices.DeleteFunc(all, func(n NodeStatus) bool { return n.Mark == markOK })
	slices.SortStableFunc(abnormal, func(a, b NodeStatus) int {
		return cmp.Or(
			slices.Index(marksBySeverity, a.Mark)-slices.Index(marksBySeverity, b.Mark),
			cmp.Compare(b.For/time.Second, a.For/time.Second), // in whole seconds, as shown
			a.NodeIndex-b.NodeIndex)
	})
	s.Abnormal = abnormal[:min(len(abnormal), maxAbnormalNodes)]
	s.More = len(abnormal) - len(s.Abnormal)
	listed := slices.DeleteFunc(slices.Clone(abnormal), func(n NodeStatus) bool {
		return n.Mark == markWaiting && n.Step != stepJoin && n.Step != stepCheck
	})
	s.Listed = listed[:min(len(listed), maxAbnormalNodes)]
	s.Unlisted = len(listed) - len(s.Listed)
}
