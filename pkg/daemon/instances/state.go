package instances

import (
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// instanceStatus is the state of an instance as the head sees it.
type instanceStatus int

const (
	statusStarting   instanceStatus = iota // waits for its turn, or starts
	statusReady                            // its processes are ready on all of its nodes
	statusUnready                          // its probe fails again
	statusRestarting                       // it has exited, and will start again
	statusDone                             // all of its processes have ended with 0, as they should
	statusLost                             // it has exited, and will not start again
	statusStopped                          // it was stopped at the end
)

// instanceState is what the head knows of an instance.
type instanceState struct {
	role       *roles.RolePlan
	instance   *roles.Instance
	nodes      []int // indices of its nodes
	generation int
	status     instanceStatus
	// parts has the last state of the generation on each node.
	parts    map[int]record.InstanceState
	wasReady bool
	budget   roles.RestartBudget // of an instance that spans several nodes
	pause    time.Duration       // before its next generation
	moving   int                 // number of its nodes whose places spares are about to take
	changes  map[int]int         // number of the newest change of readiness, by node
}

func newInstanceState(role *roles.RolePlan, instance *roles.Instance, members []int) *instanceState {
	s := &instanceState{role: role, instance: instance, parts: make(map[int]record.InstanceState), changes: make(map[int]int)}
	for _, p := range instance.Processes {
		if node := members[p.Place]; !slices.Contains(s.nodes, node) {
			s.nodes = append(s.nodes, node)
		}
	}
	return s
}

// spans reports whether the instance has processes on several nodes, so that the head restarts it.
func (s *instanceState) spans() bool { return len(s.nodes) > 1 }

// begin begins a generation.
func (s *instanceState) begin(generation int) {
	s.generation, s.status = generation, statusStarting
	clear(s.parts)
	clear(s.changes)
}

// record records a mark, unless it is of an earlier generation. The mark of a later one shows that
// the node has started it, or never will.
func (s *instanceState) record(mark signal.InstanceMark) {
	s.beginLater(mark)
	if mark.Generation != s.generation || hasEndedIn(s.parts[mark.Node]) || mark.Change < s.changes[mark.Node] {
		return // a listing has the marks of a generation in any order
	}
	s.parts[mark.Node], s.changes[mark.Node] = mark.State, mark.Change
	switch {
	case s.status == statusLost:
	case s.allIn(record.InstanceDone):
		s.status = statusDone
	case s.allIn(record.InstanceReady, record.InstanceDone):
		s.status, s.wasReady = statusReady, true
	case s.allIn(record.InstanceStopped, record.InstanceDone, record.InstanceExited) && s.status != statusRestarting:
		s.status = statusStopped
	case mark.State == record.InstanceUnready:
		s.status = statusUnready
	}
}

// beginLater begins the generation of a mark if it is a later one that the node has started by
// itself. Those of an instance that spans several nodes begin when the head starts them, and a lost
// instance has no later ones.
func (s *instanceState) beginLater(mark signal.InstanceMark) {
	if mark.Generation > s.generation && !s.spans() && s.status != statusLost {
		s.begin(mark.Generation)
	}
}

// hasEndedIn reports whether no process of an instance is left on a node in this state.
func hasEndedIn(state record.InstanceState) bool {
	return state == record.InstanceDone || state == record.InstanceStopped || state == record.InstanceExited
}

// allIn reports whether the last state on each node is one of these.
func (s *instanceState) allIn(states ...record.InstanceState) bool {
	for _, node := range s.nodes {
		if !slices.Contains(states, s.parts[node]) {
			return false
		}
	}
	return true
}

// isGone reports whether no process of a generation is left on any node.
func (s *instanceState) isGone(generation int) bool {
	return s.generation > generation || s.allIn(record.InstanceStopped, record.InstanceExited, record.InstanceDone)
}

// lose records that the instance is lost because a node is.
func (s *instanceState) lose(node int) {
	s.status, s.parts[node] = statusLost, record.InstanceExited
}

// suspend records that a node is lost, and that the instance will start again with another one.
func (s *instanceState) suspend(node int) {
	s.status, s.parts[node] = statusRestarting, record.InstanceExited
	s.moving++
}

// move replaces a node of the instance, and begins the next generation unless other nodes are still
// to be replaced. It reports whether it does.
func (s *instanceState) move(from, to int) bool {
	for i, node := range s.nodes {
		if node == from {
			s.nodes[i] = to
		}
	}
	s.parts[to] = record.InstanceExited // none of the present generation runs there
	if s.moving--; s.moving > 0 {
		return false
	}
	s.begin(s.generation + 1)
	return true
}

// mayRun reports whether processes of the instance may be running, or be started.
func (s *instanceState) mayRun() bool {
	switch s.status {
	case statusDone, statusStopped:
		return false
	case statusLost:
		return !s.isGone(s.generation)
	case statusRestarting: // the head starts no instance at the end, but a node may
		return !s.spans() || !s.isGone(s.generation)
	}
	return true
}

// recordExit records an exit on a node, and reports whether the instance is lost by it or starts
// again. It is neither if the instance is starting again or lost already.
func (s *instanceState) recordExit(mark signal.InstanceMark, rec *record.InstanceExit, at time.Time) (lost, restarts bool) {
	s.beginLater(mark)
	if mark.Generation != s.generation {
		return false, false
	}
	s.parts[mark.Node] = record.InstanceExited
	if s.status == statusRestarting || s.status == statusLost {
		return false, false
	}
	action := roles.ActionLose
	switch {
	case !s.spans() && rec.WillRestart:
		action, s.pause = roles.ActionRestart, rec.Pause
	case s.spans():
		code := health.OutcomeOfCause(rec.Failure).Code
		action, s.pause = s.role.Decide(roles.Exit{Code: max(code, 1), WasReady: s.wasReady, CannotExecute: isFinal(rec.Failure)}, &s.budget, at)
	}
	s.status = statusLost
	if action == roles.ActionRestart {
		s.status = statusRestarting
	}
	return action != roles.ActionRestart, action == roles.ActionRestart
}
