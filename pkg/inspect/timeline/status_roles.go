package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
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
	// For is how long it has been starting, and Limit how long it may; 0 if unknown.
	For   time.Duration `json:"for_ns,omitempty"`
	Limit time.Duration `json:"limit_ns,omitempty"`
	// What describes why it is not ready or how it has exited, or is the last line of its log.
	What string `json:"what,omitempty"`
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
	for i := range v.run.Roles.Roles {
		all = append(all, v.roleStatus(&v.run.Roles.Roles[i], &v.progress[i]))
	}
	return all
}

func (v *statusView) roleStatus(role *Role, progress *roles.Progress) RoleStatus {
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
			s.Waits = append(s.Waits, v.instanceStatus(role, instance, progress))
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
func (v *statusView) instanceStatus(role *Role, instance *Instance, progress *roles.Progress) InstanceStatus {
	s := InstanceStatus{Instance: role.InstanceName(instance.Instance), State: instance.Status,
		Nodes: v.formatNodeList(instance.Nodes)}
	isOf := func(late roles.LateInstance) bool { return late.Name == s.Instance }
	if at := slices.IndexFunc(progress.Late, isOf); at >= 0 {
		late := &progress.Late[at]
		s.What = late.Last
		if instance.Status == roles.StatusStarting && !late.Since.IsZero() {
			s.For, s.Limit = max(0, v.now.Sub(late.Since)), role.StartTimeout()
		}
	}
	switch {
	case instance.Status == roles.StatusLost, instance.Status == roles.StatusRestarting:
		if instance.LastExit != nil {
			s.What = instance.LastExit.Message
		}
	case instance.Status == roles.StatusStarting && v.lacksStepDaemon(role.Program.Step, instance.Nodes):
		s.What = role.MissingStep()
	case s.What == "" && instance.Status == roles.StatusStarting && role.Oneshot:
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
			lines = append(lines, "    "+instance.Describe())
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

// statusWord returns the word for a state in texts for people: an instance that is lost has failed, and
// its node may be fine.
func statusWord(status roles.InstanceStatus) string {
	if status == roles.StatusLost {
		return "failed"
	}
	return string(status)
}

// Describe describes the state of the instance in a line.
func (i InstanceStatus) Describe() string {
	line := fmt.Sprintf("%s %s on %s", i.Instance, statusWord(i.State), cmp.Or(i.Nodes, "?"))
	if i.For > 0 {
		line += fmt.Sprintf(" for %s of %s", formatClock(i.For), textutil.FlagDuration(i.Limit))
	}
	if i.What != "" {
		line += ": " + i.What
	}
	return line
}

// Describe describes the state of the role in a line.
func (r RoleStatus) Describe() string {
	if r.Instances == 0 {
		return "not placed yet"
	}
	word := "ready"
	if r.Primary {
		word = "running"
	}
	parts := []string{fmt.Sprintf("%d/%d %s", r.Ready, r.Instances, word)}
	for _, other := range r.countsByStatus()[1:] {
		if *other.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", *other.count, statusWord(other.status)))
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
