package roles

import (
	"cmp"
	"slices"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// InstanceStatus is the state of an instance.
type InstanceStatus string

// The states of an instance.
const (
	StatusWaiting    InstanceStatus = "waiting"    // for the roles before its own
	StatusStarting   InstanceStatus = "starting"   // it is not ready yet
	StatusReady      InstanceStatus = "ready"      // or it runs, if its role has no probe
	StatusUnready    InstanceStatus = "unready"    // its probe fails again
	StatusRestarting InstanceStatus = "restarting" // it has exited, and is started again
	StatusDone       InstanceStatus = "done"       // it has ended with 0, as it should
	StatusLost       InstanceStatus = "lost"       // it has exited, and is not started again
	StatusStopped    InstanceStatus = "stopped"    // it was stopped at the end
)

// Marks joins the marks of one instance, by node: of each node the newest generation, whether its
// processes have ended, and otherwise the newest change of their readiness. The order in which marks
// are added does not matter, nor whether one is added again. The zero value has no marks.
type Marks struct{ nodes map[int]nodeMarks }

// nodeMarks joins the marks of one node.
type nodeMarks struct {
	newest record.InstanceMark
	// readyIn is the newest generation that has been ready, plus 1; 0 if none has.
	readyIn int
}

// stateRanks orders the states of a generation on a node that do not follow from numbered changes: the
// first one, and its ends, if it has several.
var stateRanks = map[record.InstanceState]int{
	record.InstanceHead: -1, record.InstanceDone: 1, record.InstanceStopped: 2, record.InstanceExited: 3,
}

// Add adds a mark, and reports whether it says anything new.
func (m *Marks) Add(mark record.InstanceMark) bool {
	if m.nodes == nil {
		m.nodes = make(map[int]nodeMarks)
	}
	known, isKnown := m.nodes[mark.Node]
	next := known
	if !isKnown || isNewerMark(mark, known.newest) {
		next.newest = mark
	}
	if mark.State == record.InstanceReady {
		next.readyIn = max(next.readyIn, mark.Generation+1)
	}
	m.nodes[mark.Node] = next
	return !isKnown || next != known
}

// Newest returns the newest mark of a node.
func (m *Marks) Newest(node int) (mark record.InstanceMark, ok bool) {
	known, ok := m.nodes[node]
	return known.newest, ok
}

// isNewerMark reports whether a mark of a node replaces another one: it is of a later generation, or
// the end of the same one, or a later change of its readiness.
func isNewerMark(mark, known record.InstanceMark) bool {
	return cmp.Or(
		cmp.Compare(mark.Generation, known.Generation),
		cmp.Compare(stateRanks[mark.State], stateRanks[known.State]),
		cmp.Compare(mark.Change, known.Change),
	) > 0
}

// Evidence is all that is known about an instance, from which [Fold] determines its state.
type Evidence struct {
	Role  *RolePlan
	Nodes []int // indices of its nodes in the newest plan, in the order of its processes
	// Started reports that its role has been started.
	Started bool
	// ReadyAtStart reports that the instance counts as ready from then on: see [IsReadyAtStart].
	ReadyAtStart bool
	// Generation is the newest one that a plan or an order of the head has started.
	Generation int
	Marks      Marks
	LostNodes  []int // those of its nodes that are lost with its processes
	// FailedBefore is the generation with which the head replaces all earlier ones: they have failed,
	// or a node of theirs is lost. It is 0 if none has.
	FailedBefore int
	// GivenUp reports that the head does not start the instance again.
	GivenUp bool
	// Exit is its newest exit; nil if its record has not been read.
	Exit *record.InstanceExit
	// ExitGeneration is the generation of Exit.
	ExitGeneration int
	// RunEnded reports that the end of the run is published: a node that was lost or killed then has
	// no mark of the end of its processes.
	RunEnded bool
}

// InstanceState is the state of an instance.
type InstanceState struct {
	Status     InstanceStatus
	Generation int // 0, and one more for each restart
	// Running has the nodes on which processes of the generation run; Unknown those that have not
	// published anything about it.
	Running, Unknown []int
	// HasFailed reports that a process has exited, or that a node was lost, in this generation.
	HasFailed bool
	// IsGone reports that no process of the generation is left on a node that is not lost, and that
	// none of them starts one.
	IsGone bool
	// WasReady reports that all nodes have been ready in one generation.
	WasReady bool
	// LateNode is the first of its nodes on which the generation is not ready; -1 if it is ready on all.
	LateNode int
}

// IsOver reports whether no further generation of the instance follows.
func (s *InstanceState) IsOver() bool {
	return s.Status == StatusDone || s.Status == StatusLost || s.Status == StatusStopped
}

// Fold determines the state of an instance. It is a pure function: the same evidence gives the same
// state, in whatever order it was found.
func Fold(e Evidence) InstanceState {
	s := InstanceState{Generation: e.Generation, IsGone: true, WasReady: e.wasReady(), LateNode: -1}
	for _, node := range e.Nodes {
		if known, is := e.Marks.nodes[node]; is {
			s.Generation = max(s.Generation, known.newest.Generation)
		}
	}
	// Count the nodes in each state.
	states := make(map[record.InstanceState]int)
	for _, node := range e.Nodes {
		state := e.Marks.stateOn(node, s.Generation)
		if state == "" && s.Generation == 0 && e.isReadyAtStart() {
			state = record.InstanceReady
		}
		isLost := slices.Contains(e.LostNodes, node) && state != record.InstanceDone
		switch {
		case isLost:
			state = record.InstanceExited
		case state == "":
			s.Unknown = append(s.Unknown, node)
		case !state.HasEnded():
			s.Running = append(s.Running, node)
		}
		if s.LateNode < 0 && state != record.InstanceReady && state != record.InstanceDone {
			s.LateNode = node
		}
		states[state]++
	}
	s.HasFailed = states[record.InstanceExited] > 0 || s.Generation < e.FailedBefore
	s.Status = e.status(s, states)
	s.IsGone = len(s.Running)+len(s.Unknown) == 0 && !e.nodeRestarts(s)
	return s
}

// status determines the status from the number of nodes in each state.
func (e *Evidence) status(s InstanceState, states map[record.InstanceState]int) InstanceStatus {
	all := len(e.Nodes)
	switch {
	case states[record.InstanceDone] == all:
		return StatusDone
	case e.GivenUp, s.HasFailed && !e.mayRestart(s):
		return StatusLost
	case s.HasFailed && !e.RunEnded:
		return StatusRestarting
	case e.RunEnded, states[record.InstanceStopped] > 0:
		return StatusStopped
	case states[record.InstanceUnready] > 0:
		return StatusUnready
	case states[record.InstanceReady]+states[record.InstanceDone] == all:
		return StatusReady
	case e.Started:
		return StatusStarting
	}
	return StatusWaiting
}

// mayRestart reports whether an instance that has failed in its present generation starts again, as
// far as is known: the node decides alone on an instance that has no processes elsewhere, and the
// head gives up the others.
func (e *Evidence) mayRestart(s InstanceState) bool {
	isFinal := e.isDecidedByNode(s) && e.Exit != nil && e.ExitGeneration == s.Generation && !e.Exit.WillRestart
	return e.Role.Restarts.Max > 0 && !isFinal
}

// nodeRestarts reports whether a node starts the next generation by itself.
func (e *Evidence) nodeRestarts(s InstanceState) bool {
	return s.Status == StatusRestarting && e.isDecidedByNode(s)
}

// isDecidedByNode reports whether a node decides alone what follows from a failure.
func (e *Evidence) isDecidedByNode(s InstanceState) bool {
	return len(e.Nodes) == 1 && !e.Role.IsFlagWorld() && len(e.LostNodes) == 0 && s.Generation >= e.FailedBefore
}

// stateOn returns the state of a generation on a node, or an empty one if nothing is known of it.
func (m *Marks) stateOn(node, generation int) record.InstanceState {
	if known, is := m.nodes[node]; is && known.newest.Generation == generation {
		return known.newest.State
	}
	return ""
}

func (e *Evidence) isReadyAtStart() bool { return e.ReadyAtStart && e.Started }

// wasReady reports whether all nodes have been ready in one generation.
func (e *Evidence) wasReady() bool {
	if e.isReadyAtStart() {
		return true
	}
	generation := e.Marks.nodes[e.Nodes[0]].readyIn
	return generation > 0 && !slices.ContainsFunc(e.Nodes, func(node int) bool {
		return e.Marks.nodes[node].readyIn != generation
	})
}

// Count has the numbers of a role's instances in the states that decide about the run.
type Count struct {
	Ready, Done, Lost int
	Down              int // starting again, or about to
}

// Add counts an instance.
func (c *Count) Add(s InstanceState) {
	switch {
	case s.Status == StatusReady:
		c.Ready++
	case s.Status == StatusDone:
		c.Done++
	case s.Status == StatusLost:
		c.Lost++
	case s.Status == StatusRestarting, s.Status == StatusStarting && s.Generation > 0:
		c.Down++
	}
}

// IsSatisfied reports whether a role with these instances has what the gate and the roles after it
// require.
func (r *RolePlan) IsSatisfied(count Count) bool {
	there := count.Done
	if !r.Oneshot {
		there += count.Ready
	}
	return there >= r.Required.Start.Of(len(r.Instances))
}

// HasEnded reports whether a primary role with these instances has ended as it should: all that are
// not lost are done, and they are as many as it needs.
func (r *RolePlan) HasEnded(count Count) bool {
	all := len(r.Instances)
	return count.Done+count.Lost == all && count.Done >= r.Required.Run.Of(all)
}
