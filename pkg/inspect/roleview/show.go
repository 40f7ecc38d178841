package roleview

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Version is the version of a [Report] as JSON. It increases if a field is removed or changes its
// meaning.
const Version = 1

// Report has the roles of a run, as --json prints them.
type Report struct {
	Version int          `json:"v"`
	Run     string       `json:"run"`
	Roles   []RoleReport `json:"roles"`
}

// RoleReport describes a role. Its counts are numbers of instances.
type RoleReport struct {
	Name      string           `json:"role"`
	Primary   bool             `json:"primary,omitempty"`
	Oneshot   bool             `json:"oneshot,omitempty"`
	After     []string         `json:"after,omitempty"`
	NeedStart int              `json:"need_start"` // that the gate needs
	NeedRun   int              `json:"need_run"`   // that must not be lost
	Ready     int              `json:"ready"`
	Restarts  int              `json:"restarts"` // of all instances so far
	Instances []InstanceReport `json:"instances"`
}

// InstanceReport describes an instance.
type InstanceReport struct {
	Index      int                  `json:"index"`
	State      roles.InstanceStatus `json:"state"`
	Generation int                  `json:"generation"`
	Nodes      []int                `json:"nodes"` // indices
	Hosts      []string             `json:"hosts"`
	// Endpoints are the planned addresses, also of an instance that is not ready.
	Endpoints []string             `json:"endpoints"`
	Ports     []map[string]int     `json:"ports,omitempty"` // of each process, by name
	LastExit  *record.InstanceExit `json:"last_exit,omitempty"`
}

// Report returns the roles, or the one with the given name, as data. The error says that there is no
// such role.
func (v *View) Report(run, name string) (Report, error) {
	report := Report{Version: Version, Run: run, Roles: []RoleReport{}}
	if name != "" && v.FindRole(name) == nil {
		return report, v.refuseRole(name)
	}
	for i := range v.Roles {
		role := &v.Roles[i]
		if name != "" && role.Name != name {
			continue
		}
		shown := RoleReport{
			Name: role.Name, Primary: role.Primary, Oneshot: role.Oneshot, After: role.After, NeedStart: role.Need(false), NeedRun: role.Need(true),
			Ready: role.CountIn(roles.StatusReady), Restarts: role.RestartCount(), Instances: []InstanceReport{},
		}
		endpoints := v.Plan.Endpoints(role.RolePlan)
		for j := range role.Instances {
			shown.Instances = append(shown.Instances, v.reportInstance(role, &role.Instances[j], endpoints))
		}
		report.Roles = append(report.Roles, shown)
	}
	return report, nil
}

func (v *View) reportInstance(role *Role, instance *Instance, endpoints []roles.Endpoint) InstanceReport {
	shown := InstanceReport{
		Index: instance.Index, State: instance.Status, Generation: instance.Generation, Nodes: instance.Nodes,
		Hosts: v.hostsOf(instance), Endpoints: []string{}, LastExit: instance.LastExit,
	}
	for _, endpoint := range endpoints {
		if endpoint.Instance == instance.Index {
			shown.Endpoints = append(shown.Endpoints, endpoint.HostPort())
		}
	}
	for _, process := range instance.Processes {
		ports := make(map[string]int)
		for at, port := range process.Ports {
			ports[role.Program.Ports[at].Name] = port
		}
		shown.Ports = append(shown.Ports, ports)
	}
	return shown
}

// hostsOf returns the hosts of an instance, in the order of its processes.
func (v *View) hostsOf(instance *Instance) (hosts []string) {
	for _, process := range instance.Processes {
		if host := v.Plan.Nodes[process.Place].Host; !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// maxTextLength is the length of a text in the table.
const maxTextLength = 200

// FormatText formats the report as a table for people, one line for each instance.
func (r Report) FormatText() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "INSTANCE\tSTATE\tRESTARTS\tHOSTS\tENDPOINT\tLAST-EXIT") // to a strings.Builder
	for _, role := range r.Roles {
		for _, instance := range role.Instances {
			endpoint, exit := "-", ""
			if len(instance.Endpoints) > 0 {
				endpoint = instance.Endpoints[0]
			}
			if instance.LastExit != nil {
				exit = textutil.SingleLine(instance.LastExit.Message, maxTextLength)
			}
			_, _ = fmt.Fprintf(table, "%s.%d\t%s\t%d\t%s\t%s\t%s\n", role.Name, instance.Index, instance.State, instance.Generation,
				textutil.SingleLine(textutil.JoinLimited(instance.Hosts, 4, ","), maxTextLength), endpoint, exit)
		}
	}
	_ = table.Flush() // to a strings.Builder
	// The last column of most lines is empty.
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
