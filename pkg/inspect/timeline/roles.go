package timeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const maxExits = 1000

// ErrNoPlan reports that a run has no plan of roles: it has none, or has not made the plan yet.
var ErrNoPlan = errors.New("it has published no plan of roles")

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

// PlacedRoles has the roles of a run, read from its run directory alone.
type PlacedRoles struct {
	Plan    *roles.Plan
	Roles   []Role // in the order of the plan
	Members []int  // node indices, by place
}

// FindRole returns the role with a name. The error lists the roles of the run.
func (p *PlacedRoles) FindRole(name string) (*Role, error) {
	for i := range p.Roles {
		if p.Roles[i].Name == name {
			return &p.Roles[i], nil
		}
	}
	return nil, UnknownRoleError(p.Plan, name)
}

// UnknownRoleError returns the error for a role that the plan does not have.
func UnknownRoleError(plan *roles.Plan, name string) error {
	var names []string
	for _, role := range plan.Roles {
		names = append(names, role.Name)
	}
	return fmt.Errorf("cannot show role %q: the roles of the run are %s", name, strings.Join(names, ", "))
}

// RoleFiles are the listings of a run directory from which its roles are read.
type RoleFiles struct {
	Control, Nodes *signal.DirSnapshot
	Size           int    // number of nodes of the run
	Nonce          string // the attempt's; empty: any
}

// ReadPlan reads the newest plan of the roles. If there is none, the error is [ErrNoPlan].
func (f RoleFiles) ReadPlan(ctx context.Context) (*roles.Plan, *roles.PlanRecord, error) {
	newest := f.Control.ParseListing(f.Size).Newest(signal.SeriesPlan)
	if newest < 0 {
		return nil, nil, ErrNoPlan
	}
	rec := new(roles.PlanRecord)
	if _, err := f.Control.ReadRecord(ctx, signal.SeriesPlan.Name(newest), f.Nonce, rec); err != nil {
		return nil, nil, err
	}
	if len(rec.Roles) == 0 {
		return nil, nil, ErrNoPlan
	}
	plan, err := roles.MakePlan(rec.Roles, rec.Offers)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot plan the roles of the run again: %w", err)
	}
	return plan, rec, nil
}

// ReadRoles reads the roles of a run and the states of their instances. If the run has no plan, the
// error is [ErrNoPlan].
func (f RoleFiles) ReadRoles(ctx context.Context) (*PlacedRoles, error) {
	plan, rec, err := f.ReadPlan(ctx)
	if err != nil {
		return nil, err
	}
	control, marks := f.Control.ParseListing(f.Size), make(map[int][]record.InstanceMark) // keyed by instance
	for _, mark := range f.Nodes.ParseListing(f.Size).Instances() {
		marks[mark.Instance] = append(marks[mark.Instance], mark)
	}
	lost, exits, orders := f.readLost(ctx, control), f.readExits(ctx, marks), control.InstanceOrders()
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("cannot read the roles to the end: %w", err)
	}
	placed := &PlacedRoles{Plan: plan}
	for _, offer := range rec.Offers {
		placed.Members = append(placed.Members, offer.NodeIndex)
	}
	for i := range plan.Roles {
		role := Role{RolePlan: &plan.Roles[i]}
		for j := range role.RolePlan.Instances {
			planned := &role.RolePlan.Instances[j]
			number := planned.Number
			// The head orders the generations of an instance that spans several nodes.
			order := orders[number]
			role.Instances = append(role.Instances, placed.newInstance(planned, marks[number], roles.Evidence{
				Role: role.RolePlan, Started: hasStarted(control, rec, role.Definition),
				ReadyAtStart: roles.IsReadyAtStart(role.Definition,
					roles.StartRuleOf(rec.Roles, role.Definition, rec.Early)),
				Generation: max(0, rec.Generations[number], order.Start), FailedBefore: order.Stop,
				RunEnded: HasEnd(control), GivenUp: slices.Contains(lost, number), Exit: exits[number],
			}))
		}
		placed.Roles = append(placed.Roles, role)
	}
	return placed, nil
}

func hasStarted(control signal.Listing, rec *roles.PlanRecord, role *roles.Definition) bool {
	rule := roles.StartRuleOf(rec.Roles, role, rec.Early)
	return rule == roles.StartWithPlan || control.HasName(signal.StartName(role.Name)) ||
		rule == roles.StartAtGate && control.HasName(signal.NameGateOpen)
}

// newInstance returns an instance with its state, which follows from its marks and the other evidence.
func (p *PlacedRoles) newInstance(
	planned *roles.Instance, marks []record.InstanceMark, seen roles.Evidence,
) Instance {
	for _, place := range planned.Places() {
		seen.Nodes = append(seen.Nodes, p.Members[place])
	}
	for _, mark := range marks {
		seen.Marks.Add(mark)
	}
	if exit := newestExit(marks); exit != nil {
		seen.ExitGeneration = exit.Generation
	}
	return Instance{Instance: planned, InstanceState: roles.Fold(seen), Nodes: seen.Nodes, LastExit: seen.Exit}
}

// readLost returns the instances that the head has given up. Without its record, the exits say which
// instances are lost.
func (f RoleFiles) readLost(ctx context.Context, control signal.Listing) []int {
	live := new(record.LiveInstances)
	newest := control.Newest(signal.SeriesLive)
	if newest < 0 {
		return nil
	}
	if _, err := f.Control.ReadRecord(ctx, signal.SeriesLive.Name(newest), f.Nonce, live); err != nil {
		return nil
	}
	return live.Lost
}

// HasEnd reports whether a listing of the control directory shows the end of the run.
func HasEnd(control signal.Listing) bool {
	return control.HasName(signal.NameOrderlyEnd) || control.HasName(signal.NameHeadFinished) ||
		len(control.NodesWithAbort()) > 0
}

// readExits reads the newest exit of each instance, as far as that is possible.
func (f RoleFiles) readExits(ctx context.Context, marks map[int][]record.InstanceMark) map[int]*record.InstanceExit {
	var newest []record.InstanceMark
	for _, of := range marks {
		if exit := newestExit(of); exit != nil {
			newest = append(newest, *exit)
		}
	}
	slices.SortFunc(newest, func(a, b record.InstanceMark) int { return a.Instance - b.Instance })
	newest = newest[:min(len(newest), maxExits)]
	records := make([]*record.InstanceExit, len(newest))
	forEachConcurrently(ctx, len(newest), func(i int) {
		rec := new(record.InstanceExit)
		_, err := f.Nodes.ReadRecord(ctx, signal.InstanceName(newest[i], f.Size), f.Nonce, rec)
		if err == nil {
			records[i] = rec
		}
	})
	exits := make(map[int]*record.InstanceExit)
	for i, mark := range newest {
		if records[i] != nil {
			exits[mark.Instance] = records[i]
		}
	}
	return exits
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
