package timeline

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Run is the content of a run directory.
type Run struct {
	Path   string         // absolute path of the run directory
	Name   string         // last part of Path: <job>.<step>[-r<restart>]
	ReadAt time.Time      // time of the call of Read, on the reader's clock
	Job    *record.Job    // nil if it cannot be read
	Result *record.Result // nil if there is none yet
	// OtherVersion reports that the records have another version of the format: nothing but the result
	// is read.
	OtherVersion bool
	Control      Control
	Nodes        []Node // in node order; as many as the job has, even if a node has left no trace
	// Roles has the roles of the run, also the built-in ones; nil if it has none, or if they are not placed
	// yet.
	Roles  *PlacedRoles
	Events []Event // events of all nodes by corrected time; empty if the depth is DepthQuick
	// Attempts are the runs of the same step of the job, as [ReadAttempts] returns them.
	Attempts []Attempt
	// LastLines has the last lines of the logs of what the gate waits for, by their names.
	LastLines map[string]string
	// Problems has a sentence for each thing that could not be read, for people.
	Problems []string
}

// Size returns the number of nodes.
func (r *Run) Size() int { return len(r.Nodes) }

// HasEnded reports whether the job is over. Its daemons may still be cleaning up.
func (r *Run) HasEnded() bool {
	return r.Result != nil || r.Control.Over.Exists || len(r.Control.Aborts) > 0
}

// Verdict returns the outcome of the run as far as it is published: its result or, if there is none
// yet, the content of the first abort record or of the drain record. It returns nil if there is
// none of them.
func (r *Run) Verdict() *record.Result {
	c := &r.Control
	switch {
	case r.Result != nil:
		return r.Result
	case len(c.Aborts) > 0:
		a := &c.Aborts[0]
		return &record.Result{
			Header: a.Header, Code: a.Code, Outcome: a.Outcome, Reason: a.Cause.Message, Cause: &a.Cause,
			BadNodes: a.BadNodes, Succession: record.Succession{NextAttempt: a.NextAttempt},
		}
	case c.DrainRecord != nil:
		return &record.Result{Header: c.DrainRecord.Header, Code: c.DrainRecord.Code, Reason: c.DrainRecord.Reason}
	default:
		return nil
	}
}

// Cause returns the first cause of the outcome, or nil if there is none or no outcome is published.
func (r *Run) Cause() *record.Failure {
	if verdict := r.Verdict(); verdict != nil {
		return verdict.Cause
	}
	return nil
}

func (r *Run) droppedNodes() (dropped []record.DroppedNode) {
	if r.Control.Team != nil {
		dropped = append(dropped, r.Control.Team.Dropped...)
	}
	if r.Result != nil {
		dropped = append(dropped, r.Result.Dropped...)
	}
	return dropped
}

// finalStep returns the step of a node from which the gate requires nothing any more, or an empty
// string if the gate still has requirements.
func (r *Run) finalStep(n *Node) string {
	isOfNode := func(d record.DroppedNode) bool { return d.NodeIndex == n.NodeIndex }
	cause := r.Cause()
	isLost := cause != nil && slices.Contains(cause.LostNodes, n.NodeIndex)
	switch {
	case slices.ContainsFunc(r.droppedNodes(), isOfNode):
		return stepDropped
	case n.ownFailure() != nil || len(n.Failures) == 0 && n.HasReached(record.StateFailed):
		return stepFailed
	case n.isLost, isLost && !n.HasReached(record.StateDone):
		return stepLost
	case n.HasReached(record.StateDone), len(n.Failures) > 0:
		return stepDone
	default:
		return ""
	}
}

// minSilence is the minimum silence after which a run may be taken for dead: the clocks of the file
// server and of the reader may differ.
const minSilence = 3 * time.Minute

// SilentAfter returns for how long a run may give no sign of life before its daemons may be gone.
// It allows for one missed heartbeat of an idle head.
func (r *Run) SilentAfter() time.Duration {
	if r.OtherVersion {
		return maxHeartbeatInterval // its interval is unknown
	}
	if r.Job == nil || r.Job.Plan == nil || r.Job.Plan.MaxHeartbeatInterval > maxHeartbeatInterval {
		return minSilence
	}
	return max(minSilence, 2*r.Job.Plan.MaxHeartbeatInterval)
}

// maxHeartbeatInterval is the maximum plausible heartbeat interval of a head, because a damaged
// record may contain any value.
const maxHeartbeatInterval = 7 * 24 * time.Hour

// NodesInState returns the indices of the nodes that have reached a state, in order.
func (r *Run) NodesInState(state record.State) []int {
	var nodes []int
	for i := range r.Nodes {
		if r.Nodes[i].HasReached(state) {
			nodes = append(nodes, r.Nodes[i].NodeIndex)
		}
	}
	return nodes
}

// ReadDepth selects how much of a run directory is read.
type ReadDepth int

// The values of Depth.
const (
	// DepthQuick reads a few listings, and the few records of the head and of failures. Its cost
	// hardly grows with the number of nodes.
	DepthQuick ReadDepth = iota
	// DepthFull reads all records and events, within limits.
	DepthFull
)

// RecordTime reports whether a record exists, and since when.
type RecordTime struct {
	Exists bool
	// At is the time in the record or, if its name carries all information, the modification time of
	// the file; zero if neither is known.
	At time.Time
}

// Control has the records in control/: those of the head, and the abort records of all nodes.
type Control struct {
	Job, Head, Go, Drain, Over RecordTime

	TimeToGate   time.Duration      // of the head's event log; 0 if unknown
	HeadRecord   *record.Head       // content of Head; nil if it cannot be read
	LingerRecord *record.OrderlyEnd // nil unless services stay up for a while after the driver
	DrainRecord  *record.OrderlyEnd // content of Drain; nil if it cannot be read
	Aborts       []record.Abort     // in node order, so the head's comes first
	Team         *roles.PlanRecord  // the newest plan; nil if there are no spares
	Heartbeat    int64              // number of the head's newest heartbeat; 0 if there is none
	Progress     *record.Progress   // the newest of the program; nil if it reports no steps
}

// Progress returns the newest progress of the program: that of the result or, before the end, of the
// head's newest record. It is nil if the program reports no steps.
func (r *Run) Progress() *record.Progress {
	p := r.Control.Progress
	if r.Result != nil && r.Result.Progress != nil {
		p = r.Result.Progress
	}
	if p == nil || p.Reports == 0 {
		return nil
	}
	return p
}

// Node is the data about one node of the run.
type Node struct {
	NodeIndex int
	// Host is empty if no record that was read contains it.
	Host string
	// States are the states in the names of its records in nodes/, without heartbeats and events.
	States    []NodeState
	Heartbeat int64 // number of its newest heartbeat; 0 if there is none
	// StepDaemons are the numbers of the further job steps whose daemons have joined there.
	StepDaemons []int
	Joined      *record.Joined
	Done        *record.Done
	// Failures are the failures that the node itself has recorded, by time.
	Failures []record.Failure
	// EventRecords are the recorded events that did not end the run, by time.
	EventRecords []record.Event
	Check        *check.Report
	// LastSign is the time of its newest sign of life on the head's clock; zero if the depth does not
	// include it.
	LastSign time.Time
	Phases   []PhaseSpan // phases of the node's daemons, by start time
	Clock    Clock
	isLost   bool // it was lost while the run went on
}

// HasReached reports whether the node has reached a state.
func (n *Node) HasReached(state record.State) bool {
	return slices.ContainsFunc(n.States, func(s NodeState) bool { return s.Word == state })
}

// ownFailure returns the node's first failure of its own, or nil if it has recorded none, or only
// the loss of other nodes.
func (n *Node) ownFailure() *record.Failure {
	at := slices.IndexFunc(n.Failures, func(f record.Failure) bool { return !IsLossOfOthers(f) })
	if at < 0 {
		return nil
	}
	return &n.Failures[at]
}

// IsLossOfOthers reports whether a failure record is only about the loss of other nodes.
func IsLossOfOthers(f record.Failure) bool {
	return !slices.Contains(f.FaultyNodes(), f.NodeIndex)
}

// NodeState is a state that a node has reached.
type NodeState struct {
	Word record.State
	At   time.Time // on the head's clock; zero if the depth does not include it
	// Generation is the membership generation for which the service is up; 0 for other states.
	Generation int
}

// PhaseSpan is a phase of one node.
type PhaseSpan struct {
	Phase string
	// Daemon is the kind of daemon that recorded it: "daemon" or "sandbox-daemon".
	Daemon   string
	From, To time.Time // on the head's clock
	Open     bool      // no end is recorded: To is the time of the node's newest event
	OK       bool      // it ended successfully
}
