package roleview

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Instance is an instance of a role with its state.
type Instance struct {
	*roles.Instance
	roles.InstanceState
	Nodes []int // indices of its nodes, in the order of its processes
	// LastExit is its newest exit; nil if it has none, or if its record was not read.
	LastExit *record.InstanceExit
}

// Role is a role of a run with its instances.
type Role struct {
	*roles.RolePlan
	Instances []Instance
}

// CountIn returns how many instances of the role are in one of the states.
func (r *Role) CountIn(statuses ...roles.InstanceStatus) (count int) {
	for i := range r.Instances {
		if slices.Contains(statuses, r.Instances[i].Status) {
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
	var count roles.Count
	for i := range r.Instances {
		count.Add(r.Instances[i].InstanceState)
	}
	return r.RolePlan.IsSatisfied(count)
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
	orders  map[int]signal.InstanceOrders // by instance
	marks   map[int][]record.InstanceMark // by instance
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
	number := planned.Number
	seen := roles.Evidence{
		Role: role.RolePlan, Started: started, Generation: max(0, e.moved[number]), RunEnded: e.hasEnded,
		GivenUp: slices.Contains(e.lost, number), Exit: e.exits[number],
	}
	for _, place := range planned.Places() {
		seen.Nodes = append(seen.Nodes, e.members[place])
	}
	for _, mark := range e.marks[number] {
		seen.Marks.Add(mark)
	}
	if exit := newestExit(e.marks[number]); exit != nil {
		seen.ExitGeneration = exit.Generation
	}
	// The head orders the generations of an instance that spans several nodes.
	order := e.orders[number]
	seen.Generation, seen.FailedBefore = max(seen.Generation, order.Start), order.Stop
	return Instance{Instance: planned, InstanceState: roles.Fold(seen), Nodes: seen.Nodes, LastExit: seen.Exit}
}

// newestExit returns the mark of the newest exit among the marks of an instance, or nil if there is
// none.
func newestExit(marks []record.InstanceMark) (newest *record.InstanceMark) {
	for _, mark := range marks {
		if mark.State == record.InstanceExited && (newest == nil || mark.Generation > newest.Generation) {
			newest = &mark
		}
	}
	return newest
}
