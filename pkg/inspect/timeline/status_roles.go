package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// RoleStatus is the state of a role. Instances is 0 until the roles are placed.
type RoleStatus struct {
	Name      string `json:"role"`
	Primary   bool   `json:"primary,omitempty"`
	Instances int    `json:"instances"`
	// Need is the number of instances that the gate needs, or, once it is open, that must not be lost.
	Need int `json:"need"`
	instanceCounts
	Restarts int `json:"restarts"` // of all instances so far
	// Waits has the instances that need attention, at most 5, and MoreWaits is the number of others.
	Waits     []InstanceStatus `json:"waits_for,omitempty"`
	MoreWaits int              `json:"waits_more,omitempty"`
	LastExit  string           `json:"last_exit,omitempty"` // newest exit of an instance, as a sentence
}

type instanceCounts struct {
	Ready      int `json:"ready"`
	Starting   int `json:"starting,omitempty"`
	Waiting    int `json:"waiting,omitempty"` // for the roles before theirs
	Unready    int `json:"unready,omitempty"` // their probes fail again
	Restarting int `json:"restarting,omitempty"`
	Done       int `json:"done,omitempty"` // ended with 0, as they should
	Lost       int `json:"lost,omitempty"` // not started again
	Stopped    int `json:"stopped,omitempty"`
}

// InstanceStatus is the state of an instance that needs attention.
type InstanceStatus struct {
	Instance string               `json:"instance"` // such as judge.1
	State    roles.InstanceStatus `json:"state"`
	Nodes    string               `json:"nodes"` // hosts, for people
	What     string               `json:"what,omitempty"`
}

const maxInstancesShown = 5

// roleStates returns the states of the roles. Before they are placed, only their names are known.
func (v *statusView) roleStates() (all []RoleStatus) {
	if v.run.Roles == nil {
		for _, name := range v.plan.Roles {
			all = append(all, RoleStatus{Name: name})
		}
		return all
	}
	probes := v.lastProbes()
	for i := range v.run.Roles.Roles {
		all = append(all, v.roleStatus(&v.run.Roles.Roles[i], probes))
	}
	return all
}

func (v *statusView) roleStatus(role *Role, probes map[string]string) RoleStatus {
	s := RoleStatus{
		Name: role.Name, Primary: role.Primary, Instances: len(role.Instances),
		Need: role.Need(v.run.Control.Go.Exists), Restarts: role.RestartCount(),
	}
	for _, c := range s.countsByStatus() {
		*c.count = role.CountIn(c.status)
	}
	// Show the instances that need attention, and the newest exit.
	var newest *record.InstanceExit
	for i := range role.Instances {
		instance := &role.Instances[i]
		if exit := instance.LastExit; exit != nil && (newest == nil || exit.WrittenAt.After(newest.WrittenAt)) {
			newest = exit
		}
		switch {
		case !slices.Contains(abnormalStatuses, instance.Status):
		case len(s.Waits) == maxInstancesShown:
			s.MoreWaits++
		default:
			s.Waits = append(s.Waits, v.instanceStatus(role, instance, probes))
		}
	}
	if newest != nil {
		s.LastExit = newest.Message
	}
	return s
}

type statusCount struct {
	status roles.InstanceStatus
	count  *int
}

func (c *instanceCounts) countsByStatus() []statusCount {
	return []statusCount{
		{roles.StatusReady, &c.Ready}, {roles.StatusStarting, &c.Starting}, {roles.StatusWaiting, &c.Waiting},
		{roles.StatusUnready, &c.Unready}, {roles.StatusRestarting, &c.Restarting}, {roles.StatusDone, &c.Done},
		{roles.StatusLost, &c.Lost}, {roles.StatusStopped, &c.Stopped},
	}
}

var abnormalStatuses = []roles.InstanceStatus{
	roles.StatusStarting, roles.StatusUnready, roles.StatusRestarting, roles.StatusLost,
}

// instanceStatus describes an instance: why it is not ready, or how it has exited.
func (v *statusView) instanceStatus(role *Role, instance *Instance, probes map[string]string) InstanceStatus {
	name := fmt.Sprintf("%s.%d", role.Name, instance.Index)
	s := InstanceStatus{Instance: name, State: instance.Status, Nodes: v.formatNodeList(instance.Nodes)}
	switch reported := probes[name]; {
	case instance.Status == roles.StatusLost, instance.Status == roles.StatusRestarting:
		if instance.LastExit != nil {
			s.What = instance.LastExit.Message
		}
	case instance.Status == roles.StatusStarting && v.lacksStepDaemon(role.Program.Step, instance.Nodes):
		s.What = "no daemon of step " + role.Program.Step + " has joined there: check that step"
	case reported != "":
		s.What = reported
	case instance.Status == roles.StatusStarting && role.Oneshot:
		s.What = "it has not ended yet"
	}
	return s
}

func (v *statusView) lacksStepDaemon(step string, nodes []int) bool {
	if step == "" || v.run.Job == nil {
		return false
	}
	number := 1 + slices.Index(v.run.Job.Steps, step)
	return slices.ContainsFunc(nodes, func(node int) bool {
		return node < len(v.nodes) && !slices.Contains(v.nodes[node].StepDaemons, number)
	})
}

// lastProbes returns what the probe of each instance has last reported, for those that are not ready.
func (v *statusView) lastProbes() map[string]string {
	last := make(map[string]string)
	for _, event := range v.run.Events {
		if event.Name != eventlog.ProbeChanged {
			continue
		}
		// The name of a process of a larger instance has its rank, too.
		parts := strings.Split(event.Child, ".")
		instance := strings.Join(parts[:min(2, len(parts))], ".")
		if event.Seen != "" || instance == event.Child {
			last[instance] = event.Seen // empty for a successful probe
		}
	}
	return last
}

// waitingRoles returns the step in which the gate waits for roles, or nil if it waits for none.
func (v *statusView) waitingRoles() *GateWait {
	if v.run.Roles == nil {
		return &GateWait{Step: stepWorkers, What: "waiting for the placement of the roles"}
	}
	var parts []string
	for i := range v.run.Roles.Roles {
		role := &v.run.Roles.Roles[i]
		if role.Primary || role.IsSatisfied() {
			continue
		}
		state := roles.StatusReady
		if role.Oneshot {
			state = roles.StatusDone
		}
		count := role.CountIn(roles.StatusReady, roles.StatusDone)
		part := fmt.Sprintf("%s (%d of %d %s", role.Name, count, len(role.Instances), state)
		if need := role.Need(false); need < len(role.Instances) {
			part += fmt.Sprintf(", needs %d", need)
		}
		parts = append(parts, part+")")
	}
	if len(parts) == 0 {
		return nil
	}
	what := "waiting for " + textutil.JoinLimited(parts, maxRolesShown, ", ")
	return &GateWait{Step: stepWorkers, What: what}
}

const maxRolesShown = 8

// RoleNames returns the names of the roles in a sentence, or an empty string if there are none.
func (s Status) RoleNames() string {
	names := listRoles(s.Roles, func(RoleStatus) bool { return true })
	if names == "" {
		return ""
	}
	return "roles: " + names
}

func listRoles(all []RoleStatus, applies func(RoleStatus) bool) string {
	var names []string
	for _, role := range all {
		if applies(role) {
			names = append(names, role.Name)
		}
	}
	return textutil.JoinLimited(names, maxRolesShown, ", ")
}

// RoleLines returns a line for each role, and below it one for each instance that needs attention.
func RoleLines(all []RoleStatus) (lines []string) {
	names := 0
	for _, role := range all {
		names = max(names, len(role.Name))
	}
	for _, role := range all {
		lines = append(lines, fmt.Sprintf("  role %-*s  %s", names, role.Name, role.Describe()))
		for _, instance := range role.Waits {
			line := fmt.Sprintf("    %s %s on %s", instance.Instance, instance.State, cmp.Or(instance.Nodes, "?"))
			if instance.What != "" {
				line += ": " + instance.What
			}
			lines = append(lines, line)
		}
		isLast := func(i InstanceStatus) bool { return i.What == role.LastExit }
		switch shown := slices.ContainsFunc(role.Waits, isLast); {
		case role.MoreWaits > 0:
			lines = append(lines, fmt.Sprintf("    +%d more", role.MoreWaits))
		case role.LastExit != "" && !shown:
			lines = append(lines, "    last exit: "+role.LastExit)
		}
	}
	return lines
}

// Describe describes the state of the role in a line.
func (r RoleStatus) Describe() string {
	if r.Instances == 0 {
		return "not placed yet"
	}
	parts := []string{fmt.Sprintf("%d/%d ready", r.Ready, r.Instances)}
	for _, other := range r.countsByStatus()[1:] {
		if *other.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", *other.count, other.status))
		}
	}
	if r.Ready == 0 && len(parts) > 1 {
		parts = parts[1:] // all are done, for example
	}
	if r.Need < r.Instances {
		parts = append(parts, fmt.Sprintf("needs %d", r.Need))
	}
	if r.Restarts > 0 {
		parts = append(parts, fmt.Sprintf("%d %s", r.Restarts, textutil.PluralForm(r.Restarts, "restart")))
	}
	return strings.Join(parts, ", ")
}
