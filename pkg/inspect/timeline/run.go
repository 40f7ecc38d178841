package timeline

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Run is what a run directory shows.
type Run struct {
	Path    string            // the run directory, absolute
	Name    string            // its last part: <job>.<step>[-r<restart>]
	ReadAt  time.Time         // on the clock of who reads
	Job     *signal.JobRecord // nil where it can't be read
	Result  *signal.Result    // nil while there is none
	Control Control
	Nodes   []Node  // by rank; as many as the job has, with or without a trace of them
	Events  []Event // of all nodes by corrected time; none where the depth is Quick
	// Problems are sentences about what could not be read, for people.
	Problems []string
}

// Size returns the number of nodes.
func (r *Run) Size() int { return len(r.Nodes) }

// Ended tells whether the job is over: nothing more is to be expected of it but
// what its daemons still tidy up.
func (r *Run) Ended() bool {
	return r.Result != nil || r.Control.Over.There || len(r.Control.Aborts) > 0
}

// Verdict is how the run ends, as far as that is published: its result or, where
// there is none, what the head has said; nil where nothing is.
func (r *Run) Verdict() *signal.Result {
	c := &r.Control
	switch {
	case r.Result != nil:
		return r.Result
	case len(c.Aborts) > 0:
		a := &c.Aborts[0]
		return &signal.Result{Header: a.Header, Code: a.Code, Outcome: a.Outcome, Reason: a.Cause.Message, Cause: &a.Cause, BadNodes: a.BadNodes, NextAttempt: a.NextAttempt}
	case c.Ending != nil:
		return &signal.Result{Header: c.Ending.Header, Code: c.Ending.Code, Reason: c.Ending.Reason}
	default:
		return nil
	}
}

// Cause is the first cause, as far as an end is published; nil where there is none.
func (r *Run) Cause() *signal.FailureRecord {
	if verdict := r.Verdict(); verdict != nil {
		return verdict.Cause
	}
	return nil
}

// Lost tells whether the first cause is that the rank is missed.
func (r *Run) Lost(rank int) bool {
	cause := r.Cause()
	return cause != nil && slices.Contains(cause.LostNodes, rank)
}

// Dropped are the nodes that the job does without.
func (r *Run) Dropped() (dropped []signal.DroppedNode) {
	if r.Control.Team != nil {
		dropped = append(dropped, r.Control.Team.Dropped...)
	}
	if r.Result != nil {
		dropped = append(dropped, r.Result.Dropped...)
	}
	return dropped
}

// leastSilence is for how long nobody takes a run for dead: the clocks of the share
// and of who looks may differ, and older heads don't tell how long theirs rest.
const leastSilence = 3 * time.Minute

// SilentAfter is for how long a run may give no sign of life before its daemons may
// be gone: one beat of a head at rest may be missed.
func (r *Run) SilentAfter() time.Duration {
	if r.Job == nil || r.Job.Plan == nil || r.Job.Plan.MaxHeartbeatInterval > longestRest {
		return leastSilence
	}
	return max(leastSilence, 2*r.Job.Plan.MaxHeartbeatInterval)
}

// longestRest is what is believed of a head's: a damaged record may say anything.
const longestRest = 7 * 24 * time.Hour

// In returns the ranks that have reached a state, in order.
func (r *Run) In(state string) []int {
	var ranks []int
	for i := range r.Nodes {
		if r.Nodes[i].In(state) {
			ranks = append(ranks, r.Nodes[i].Rank)
		}
	}
	return ranks
}

// Depth is how much of a run directory is read.
type Depth int

// The depths.
const (
	// Quick reads what a few listings and the few records of the head and of
	// failures tell: its cost hardly grows with the number of nodes.
	Quick Depth = iota
	// Full reads all records and events, within bounds.
	Full
)

// Mark is something that is there from some moment on.
type Mark struct {
	There bool
	// At is when: by the record or, where its name says all, by the file
	// system's clock; zero where neither tells.
	At time.Time
}

// Control is what the head, and who speaks to all, has published.
type Control struct {
	Job, Head, Go, Drain, Over Mark

	Service *signal.HeadRecord       // what Head says, where it can be read
	Look    *signal.OrderlyEndRecord // nil unless all stays for a look behind the driver
	Ending  *signal.OrderlyEndRecord // what Drain says
	Aborts  []signal.AbortRecord     // by rank: the head's comes first
	Team    *signal.TeamRecord       // the newest; nil where there are no spares
	Beat    int64                    // the head's newest; 0 where there is none
}

// Node is what is known of one rank.
type Node struct {
	Rank int
	// Host is empty where nothing that was read names it.
	Host string
	// States are the words of its names in Nodes, in the order in which a node
	// comes through them, without beats and events.
	States []NodeState
	Beat   int64 // the newest; 0 where there is none
	// SandboxBeat is that of its sandbox's daemon in another step; 0 if none has appeared.
	SandboxBeat int64
	Joined      *signal.JoinedRecord
	Done        *signal.DoneRecord
	// Failures are what the node itself has recorded.
	Failures []signal.FailureRecord
	// Befell are things that ended nothing.
	Befell []signal.EventRecord
	Check  *check.Report
	// Seen is the newest sign of it, on the head's clock; zero where the depth
	// doesn't tell.
	Seen   time.Time
	Phases []Span // as the node's daemon went through them, by when they began
	Clock  Clock

	// when it began to publish a state, by its own clock, until all is put on one
	told map[string]time.Time
}

// In tells whether the node has reached a state.
func (n *Node) In(state string) bool {
	return slices.ContainsFunc(n.States, func(s NodeState) bool { return s.Word == state })
}

// Blamed is what failed on the node first; nil where it has recorded nothing but
// that it misses others.
func (n *Node) Blamed() *signal.FailureRecord {
	at := slices.IndexFunc(n.Failures, func(f signal.FailureRecord) bool { return !OfOthers(f) })
	if at < 0 {
		return nil
	}
	return &n.Failures[at]
}

// OfOthers tells whether a node has recorded that it misses others, and no
// failure of its own.
func OfOthers(f signal.FailureRecord) bool {
	return len(f.LostNodes) > 0 && !slices.Contains(f.LostNodes, f.Rank)
}

// NodeState is a state that a node has reached.
type NodeState struct {
	Word string    // signal.StateJoined and so on
	At   time.Time // on the head's clock; zero where the depth doesn't tell
	// Generation is the team's since which the service is up in its place.
	Generation int
}

// Span is a phase of one node.
type Span struct {
	Phase string
	// Daemon is the kind of daemon that tells: "daemon" or "sandbox-daemon".
	Daemon   string
	From, To time.Time // on the head's clock
	Open     bool      // it has not ended, as far as was written: To is the newest sign of the node
	OK       bool      // it ended well
}

// Took returns for how long the phase went on, as far as was written.
func (s Span) Took() time.Duration { return s.To.Sub(s.From) }
