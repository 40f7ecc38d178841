package roleview

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// State is the state of an instance.
type State string

// The states of an instance.
const (
	StateWaiting    State = "waiting"    // for the roles before its own
	StateStarting   State = "starting"   // it is not ready yet
	StateReady      State = "ready"      // or it runs, if its role has no probe
	StateUnready    State = "unready"    // its probe fails again
	StateRestarting State = "restarting" // it has exited, and is started again
	StateDone       State = "done"       // it has ended with 0, as it should
	StateLost       State = "lost"       // it has exited, and is not started again
	StateStopped    State = "stopped"    // it was stopped at the end
)

// States lists all states, those of instances that run or will run first.
var States = []State{StateReady, StateStarting, StateWaiting, StateUnready, StateRestarting, StateDone, StateLost, StateStopped}

// Instance is an instance of a role with its state.
type Instance struct {
	*roles.Instance
	State State
	// Generation is 0, and one more for each restart.
	Generation int
	Nodes      []int // indices of its nodes, in the order of its processes
	// LastExit is its newest exit; nil if it has none, or if its record was not read.
	LastExit *record.InstanceExit
}

// Role is a role of a run with its instances.
type Role struct {
	*roles.RolePlan
	Instances []Instance
}

// CountIn returns how many instances of the role are in one of the states.
func (r *Role) CountIn(states ...State) (count int) {
	for i := range r.Instances {
		if slices.Contains(states, r.Instances[i].State) {
			count++
		}
	}
	return count
}

// RestartCount returns how often instances of the role have been started again.
func (r *Role) RestartCount() (sum int) {
	for i := range r.Instances {
		sum += r.Instances[i].Generation
	}
	return sum
}

// IsSatisfied reports whether the role has what the gate and the roles after it require.
func (r *Role) IsSatisfied() bool {
	there := r.CountIn(StateDone)
	if !r.Oneshot {
		there += r.CountIn(StateReady)
	}
	return there >= r.Required.Start.Of(len(r.Instances))
}

// Need returns how many instances the role needs: that are not lost if the gate is open, and
// otherwise that are ready.
func (r *Role) Need(gateOpen bool) int {
	if gateOpen {
		return r.Required.Run.Of(len(r.Instances))
	}
	return r.Required.Start.Of(len(r.Instances))
}

// View has the roles of a run.
type View struct {
	Plan  *roles.Plan
	Roles []Role // in the order of the plan

	members []int // node indices, by place
}

// FindRole returns the role with a name, or nil.
func (v *View) FindRole(name string) *Role {
	for i := range v.Roles {
		if v.Roles[i].Name == name {
			return &v.Roles[i]
		}
	}
	return nil
}

// Names returns the names of the roles.
func (v *View) Names() (names []string) {
	for i := range v.Roles {
		names = append(names, v.Roles[i].Name)
	}
	return names
}

// Primaries returns the names of the primary roles.
func (v *View) Primaries() (names []string) {
	for i := range v.Roles {
		if v.Roles[i].Primary {
			names = append(names, v.Roles[i].Name)
		}
	}
	return names
}

// evidence has what the run directory says about the instances.
type evidence struct {
	members []int // node indices, by place
	control signal.Listing
	marks   map[int][]signal.InstanceMark // by instance
	lost    []int                         // instances that the head has given up
	moved   map[int]int                   // first generation of each instance that a spare has taken over
	// exits has the newest exit of each instance, as far as they were read.
	exits    map[int]*record.InstanceExit
	hasEnded bool // the end of the run is published
}

// newView returns the roles of a plan with the states of their instances.
func newView(plan *roles.Plan, seen evidence) *View {
	v := &View{Plan: plan, members: seen.members}
	for i := range plan.Roles {
		role := Role{RolePlan: &plan.Roles[i]}
		started := len(role.After) == 0 || seen.control.HasName(signal.StartName(role.Name))
		for j := range role.RolePlan.Instances {
			role.Instances = append(role.Instances, seen.newInstance(&role, &role.RolePlan.Instances[j], started))
		}
		v.Roles = append(v.Roles, role)
	}
	return v
}

// newInstance determines the state of an instance.
func (e *evidence) newInstance(role *Role, planned *roles.Instance, started bool) Instance {
	instance := Instance{Instance: planned, State: StateWaiting, LastExit: e.exits[planned.Number]}
	for _, process := range planned.Processes {
		if node := e.members[process.Place]; !slices.Contains(instance.Nodes, node) {
			instance.Nodes = append(instance.Nodes, node)
		}
	}
	if started {
		instance.State = StateStarting
	}
	// Find its newest generation: by its marks, or because the head or a spare has started it.
	marks := e.marks[planned.Number]
	instance.Generation = e.moved[planned.Number]
	for _, mark := range marks {
		instance.Generation = max(instance.Generation, mark.Generation)
	}
	for len(instance.Nodes) > 1 && e.control.HasName(signal.StartInstanceName(planned.Number, instance.Generation+1)) {
		instance.Generation++
	}
	// Determine its state from those on its nodes.
	parts := lastStates(marks, instance.Generation)
	switch {
	case parts.allIn(instance.Nodes, record.InstanceDone):
		instance.State = StateDone
	case slices.Contains(e.lost, planned.Number): // a lost node publishes no exit
		instance.State = StateLost
	case parts.contain(record.InstanceExited):
		instance.State = e.stateAfterExit(role, &instance)
	case e.hasEnded, parts.contain(record.InstanceStopped): // an aborted run has no marks of its end
		instance.State = StateStopped
	case parts.contain(record.InstanceUnready):
		instance.State = StateUnready
	case parts.allIn(instance.Nodes, record.InstanceReady, record.InstanceDone):
		instance.State = StateReady
	}
	return instance
}

// stateAfterExit returns the state of an instance of which a process has exited in its newest
// generation. A node decides alone on an instance that has no processes elsewhere.
func (e *evidence) stateAfterExit(role *Role, instance *Instance) State {
	exit := instance.LastExit
	switch restarts := len(instance.Nodes) > 1 || exit == nil || exit.WillRestart; {
	case role.Restarts.Max == 0, !restarts:
		return StateLost
	case e.hasEnded:
		return StateStopped
	}
	return StateRestarting
}

// newestExit returns the mark of the newest exit among the marks of an instance, or nil if there is
// none.
func newestExit(marks []signal.InstanceMark) (newest *signal.InstanceMark) {
	for _, mark := range marks {
		if mark.State == record.InstanceExited && (newest == nil || mark.Generation > newest.Generation) {
			newest = &mark
		}
	}
	return newest
}

// nodeStates has the last state of a generation on each node.
type nodeStates map[int]signal.InstanceMark

// lastStates returns the last state of a generation on each node. A listing has the marks in any
// order: no state follows the end of the processes, and changes of readiness are numbered.
func lastStates(marks []signal.InstanceMark, generation int) nodeStates {
	last := make(nodeStates)
	for _, mark := range marks {
		if mark.Generation != generation {
			continue
		}
		known, is := last[mark.Node]
		if !is || !hasEndedIn(known.State) && (hasEndedIn(mark.State) || mark.Change >= known.Change) {
			last[mark.Node] = mark
		}
	}
	return last
}

// hasEndedIn reports whether no process is left on a node in this state.
func hasEndedIn(state record.InstanceState) bool {
	return state == record.InstanceDone || state == record.InstanceStopped || state == record.InstanceExited
}

// allIn reports whether the last state on each of the nodes is one of these.
func (s nodeStates) allIn(nodes []int, states ...record.InstanceState) bool {
	for _, node := range nodes {
		if !slices.Contains(states, s[node].State) {
			return false
		}
	}
	return true
}

// contain reports whether the last state on any node is the given one.
func (s nodeStates) contain(state record.InstanceState) bool {
	for _, mark := range s {
		if mark.State == state {
			return true
		}
	}
	return false
}
