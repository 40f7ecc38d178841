package timeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const maxExits = 1000

// ErrNoPlan reports that a run has no plan of roles: it runs nothing, or has not made the plan yet.
var ErrNoPlan = errors.New("it has published no plan of roles")

// Instance is an instance of a role with its state.
type Instance struct {
	*roles.Instance
	roles.InstanceState
	Nodes []int // indices of its nodes, in the order of its places
	// LastExit is its newest exit; nil if it has none, or if its record was not read.
	LastExit *record.InstanceExit
	// StartedAt is when its newest process was started, on the head's clock; zero if it is not known.
	StartedAt time.Time
}

// Role is a role of a run with its instances.
type Role struct {
	*roles.RolePlan
	Instances []Instance
	StartRule roles.StartRule // what starts the first generation
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

// Progress returns how far the instances of the role have come, in a run of size nodes.
func (r *Role) Progress(size int) roles.Progress {
	progress := roles.Progress{RolePlan: r.RolePlan}
	for i := range r.Instances {
		instance := &r.Instances[i]
		progress.AddInstance(instance.Instance, instance.InstanceState, instance.Nodes, size, instance.StartedAt)
	}
	return progress
}

// RestartCount returns how often instances of the role have been started again.
func (r *Role) RestartCount() (sum int) {
	if r.BuiltIn.IsService() { // their generations say for which team they are up
		return 0
	}
	for i := range r.Instances {
		sum += r.Instances[i].Generation
	}
	return sum
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
	Roles   []Role // in the order of the plan; that of a driver or of ranks of flags is the last
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
	names := textutil.JoinEach(plan.Roles, ", ", func(role roles.RolePlan) string { return role.Name })
	return fmt.Errorf("cannot show role %q: the roles of the run are %s", name, names)
}

// RoleFiles are the listings of a run directory from which its roles are read.
type RoleFiles struct {
	Control, Nodes *signal.DirSnapshot
	Size           int      // number of nodes of the run
	Nonce          string   // the attempt's; empty: any
	Hosts          []string // the nodes', for a plan without them; may be shorter
	HasChecks      bool     // the nodes have checks, before which nothing starts there
}

// LogNodes returns the index of the node of each process of the roles of a file, by the beginning of
// the names of its logs: judge-1, or judge-1.3 if the instance has several processes.
func (p *PlacedRoles) LogNodes() map[string]int {
	nodes := make(map[string]int)
	for _, role := range p.Roles {
		if role.BuiltIn != "" {
			continue // the names of its logs have the index of the node
		}
		for _, instance := range role.Instances {
			for _, process := range instance.Processes {
				log := role.ProcessLogName(instance.Instance, process, 0)
				nodes[strings.TrimSuffix(log, ".log")] = p.Members[process.Place]
			}
		}
	}
	return nodes
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
	rec.Number = newest
	for i := range rec.Offers {
		if node := rec.Offers[i].NodeIndex; node < 0 || node >= f.Size {
			return nil, nil, fmt.Errorf("cannot use the plan of the roles: it has a node %d, and the run has %d nodes",
				node, f.Size)
		}
		if offer := &rec.Offers[i]; offer.Host == "" && offer.NodeIndex < len(f.Hosts) {
			offer.Host = f.Hosts[offer.NodeIndex]
		}
	}
	plan, err := rec.MakePlan(rec.Roles)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot plan the roles of the run again: %w", err)
	}
	for _, role := range plan.Roles {
		isEmpty := func(instance roles.Instance) bool { return len(instance.Processes) == 0 }
		if slices.ContainsFunc(role.Instances, isEmpty) {
			return nil, nil, fmt.Errorf("cannot use the plan of the roles: role %s has an instance without processes",
				role.Name)
		}
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
	return f.readStates(ctx, plan, rec)
}

// readStates reads the states of the instances of a plan.
func (f RoleFiles) readStates(ctx context.Context, plan *roles.Plan, rec *roles.PlanRecord) (*PlacedRoles, error) {
	nodes := f.Nodes.ParseListing(f.Size)
	control, marks := f.Control.ParseListing(f.Size), make(map[int][]record.InstanceMark) // keyed by instance
	for _, mark := range nodes.Instances() {
		marks[mark.Instance] = append(marks[mark.Instance], mark)
	}
	f.addBuiltInMarks(ctx, plan, rec, nodes, marks)
	lost, exits, orders := f.readLost(ctx, control), f.readExits(ctx, marks), control.InstanceOrders()
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("cannot read the roles to the end: %w", err)
	}
	placed := &PlacedRoles{Plan: plan}
	prepared := nodes.NodesIn(record.StateJoined)
	if f.HasChecks {
		prepared = nodes.NodesIn(record.StateChecked)
	}
	for _, offer := range rec.Offers {
		placed.Members = append(placed.Members, offer.NodeIndex)
	}
	for i := range plan.Roles {
		shown, hasProcesses := roles.WithProcesses(&plan.Roles[i])
		if !hasProcesses {
			continue
		}
		role := Role{RolePlan: shown, StartRule: roles.StartRuleOf(rec.Roles, shown.Definition, rec.Early)}
		awaitsHead := role.BuiltIn == roles.BuiltInWorker && len(role.After) > 0 && !control.HasName(signal.NameHead)
		for j := range shown.Instances {
			planned := &shown.Instances[j]
			number := planned.Number
			// The head orders the generations of an instance that spans several nodes.
			order := orders[number]
			role.Instances = append(role.Instances, placed.newInstance(planned, marks[number], roles.Evidence{
				Role:         role.RolePlan,
				Started:      role.hasStarted(control) && !awaitsHead && placed.areAmong(planned, prepared),
				ReadyAtStart: roles.IsReadyAtStart(role.Definition, role.StartRule),
				Generation:   max(0, rec.FirstGeneration(role.RolePlan, planned), order.Start),
				FailedBefore: order.Stop,
				RunEnded:     HasEnd(control), GivenUp: slices.Contains(lost, number), Exit: exits[number],
			}))
		}
		placed.Roles = append(placed.Roles, role)
	}
	// The built-in primary role is the first in the plan, because of the numbers of instances.
	if all := placed.Roles; len(all) > 1 && all[0].Primary && all[0].BuiltIn != "" {
		placed.Roles = slices.Concat(all[1:], all[:1])
	}
	return placed, nil
}

// addBuiltInMarks adds the marks of the instances of built-in services, which the nodes publish as
// states of their own, and that of a driver that has ended.
func (f RoleFiles) addBuiltInMarks(ctx context.Context, plan *roles.Plan, rec *roles.PlanRecord,
	nodes signal.Listing, marks map[int][]record.InstanceMark) {
	published := roles.NewServiceMarks(nodes, f.Control.ParseListing(f.Size).HasName(signal.NameHead))
	for i := range plan.Roles {
		role := &plan.Roles[i]
		if role.BuiltIn == "" {
			continue
		}
		for j := range role.Instances {
			instance := &role.Instances[j]
			node := rec.Offers[instance.Processes[0].Place].NodeIndex
			mark, ok := published.Of(role.BuiltIn, instance.Number, node, rec.FirstGeneration(role, instance))
			if role.BuiltIn == roles.BuiltInDriver && f.hasDriverEnded(ctx) {
				mark.State, ok = record.InstanceDone, true
			}
			if ok {
				marks[instance.Number] = append(marks[instance.Number], mark)
			}
		}
	}
}

// hasDriverEnded reports whether the driver of flags has ended by itself.
func (f RoleFiles) hasDriverEnded(ctx context.Context) bool {
	end := new(record.OrderlyEnd)
	for _, name := range []string{signal.NameOrderlyEnd, signal.NameDriverEnded} {
		if _, exists := slices.BinarySearch(f.Control.Names, name); exists {
			_, err := f.Control.ReadRecord(ctx, name, f.Nonce, end)
			return err == nil && !end.Requested
		}
	}
	return false
}

// areAmong reports whether all nodes of an instance are among these, which must be sorted.
func (p *PlacedRoles) areAmong(planned *roles.Instance, nodes []int) bool {
	return !slices.ContainsFunc(planned.Processes, func(process roles.Process) bool {
		_, is := slices.BinarySearch(nodes, p.Members[process.Place])
		return !is
	})
}

func (r *Role) hasStarted(control signal.Listing) bool {
	return r.StartRule == roles.StartWithPlan || control.HasName(signal.StartName(r.Name)) ||
		r.StartRule == roles.StartAtGate && control.HasName(signal.NameGateOpen)
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

// builtInKey returns the key of a process of a built-in role on a node: of each there is one.
func builtInKey(log string, node int) string { return fmt.Sprintf("%s@%d", log, node) }

// processKeys returns the keys of the instance to which a process of a name on a node may belong: the
// name of a process of a larger instance has its rank, too.
func processKeys(child string, node int) []string {
	parts := strings.Split(child, ".")
	return []string{strings.Join(parts[:min(2, len(parts))], "."), builtInKey(signal.LogPrefix(child), node)}
}

// instanceKey returns the key of an instance of a role whose first process is on a node.
func instanceKey(role *roles.RolePlan, name string, node int) string {
	if role.BuiltIn != "" {
		return builtInKey(role.Program.Log, node)
	}
	return name
}

// addStarts adds when the instances were started.
func (r *runReader) addStarts() {
	if r.Roles == nil {
		return
	}
	starts := make(map[string]time.Time)
	for _, event := range r.Events {
		if event.Name == eventlog.ChildStarted {
			for _, key := range processKeys(event.Child, event.NodeIndex) {
				starts[key] = event.At
			}
		}
	}
	for i := range r.Roles.Roles {
		role := &r.Roles.Roles[i]
		for j := range role.Instances {
			instance := &role.Instances[j]
			name := role.InstanceName(instance.Instance)
			instance.StartedAt = starts[instanceKey(role.RolePlan, name, instance.Nodes[0])]
		}
	}
}
