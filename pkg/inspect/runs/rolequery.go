package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// EndpointFormat is a text with placeholders for an endpoint: %h is the host, %p the port, %a both as
// the address under which other nodes reach it, %i the index of the instance, and %% a percent sign.
type EndpointFormat string

// ParseEndpointFormat returns a text as a format. It refuses unknown placeholders.
func ParseEndpointFormat(text string) (EndpointFormat, error) {
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return EndpointFormat(text), nil
		}
		if after == "" || !strings.Contains("hpai%", after[:1]) {
			return "", fmt.Errorf("cannot use --format=%s: after %% there must be h (host), p (port), a (both), "+
				"i (index of the instance) or %%", text)
		}
		rest = after[1:]
	}
}

// Of returns the text for an endpoint.
func (f EndpointFormat) Of(e roles.Endpoint) string {
	return strings.NewReplacer("%%", "%", "%h", e.Address, "%p", strconv.Itoa(e.Port), "%a", e.HostPort(),
		"%i", strconv.Itoa(e.Instance)).Replace(string(f))
}

// RoleQuery is a question about the roles of a run.
type RoleQuery struct {
	Path   string         // the run directory's
	Role   string         // name of the only role that is shown; empty: all
	Format EndpointFormat // of endpoints; empty: none
	AsJSON bool
	Watch  bool // print the endpoints that are ready, whenever they change, until the run ends
	// EndpointsFile is the node's file of the endpoints that are ready, for a process of the run;
	// empty if there is none.
	EndpointsFile string
	Out           io.Writer
}

// Print answers the query.
func (q RoleQuery) Print(ctx context.Context) error {
	if q.Watch {
		return q.watch(ctx)
	}
	placed, err := readRoles(ctx, q.Path)
	if err != nil {
		return err
	}
	shown := placed.Roles
	if q.Role != "" {
		role, err := placed.FindRole(q.Role)
		if err != nil {
			return err
		}
		shown = []timeline.Role{*role}
	}
	if q.Format != "" {
		var lines strings.Builder
		for i := range shown {
			for _, endpoint := range placed.Plan.Endpoints(shown[i].RolePlan) {
				lines.WriteString(q.Format.Of(endpoint) + "\n")
			}
		}
		_, err := io.WriteString(q.Out, lines.String())
		return err
	}
	report := rolesReport{Version: rolesReportVersion, Run: filepath.Base(q.Path), Roles: []roleReport{}}
	for i := range shown {
		report.Roles = append(report.Roles, newRoleReport(placed.Plan, &shown[i]))
	}
	if !q.AsJSON {
		return report.writeText(q.Out)
	}
	encoder := json.NewEncoder(q.Out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}

// rolesReportVersion is the version of a rolesReport as JSON. It increases if a field is removed or
// changes its meaning.
const rolesReportVersion = 1

type rolesReport struct {
	Version int          `json:"v"`
	Run     string       `json:"run"`
	Roles   []roleReport `json:"roles"`
}

// roleReport describes a role. Its counts are numbers of instances.
type roleReport struct {
	Name      string           `json:"role"`
	Primary   bool             `json:"primary,omitempty"`
	Oneshot   bool             `json:"oneshot,omitempty"`
	After     []string         `json:"after,omitempty"`
	NeedStart int              `json:"need_start"` // that the gate needs
	NeedRun   int              `json:"need_run"`   // that must not be lost
	Ready     int              `json:"ready"`
	Restarts  int              `json:"restarts"` // of all instances so far
	Instances []instanceReport `json:"instances"`
}

type instanceReport struct {
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

func newRoleReport(plan *roles.Plan, role *timeline.Role) roleReport {
	shown := roleReport{
		Name: role.Name, Primary: role.Primary, Oneshot: role.Oneshot, After: role.After,
		NeedStart: role.Need(false), NeedRun: role.Need(true), Ready: role.CountIn(roles.StatusReady),
		Restarts: role.RestartCount(), Instances: []instanceReport{},
	}
	endpoints := make(map[int][]string) // keyed by instance
	for _, endpoint := range plan.Endpoints(role.RolePlan) {
		endpoints[endpoint.Instance] = append(endpoints[endpoint.Instance], endpoint.HostPort())
	}
	for i := range role.Instances {
		instance := &role.Instances[i]
		one := instanceReport{
			Index: instance.Index, State: instance.Status, Generation: instance.Generation, Nodes: instance.Nodes,
			Endpoints: append([]string{}, endpoints[instance.Index]...), LastExit: instance.LastExit,
		}
		for _, process := range instance.Processes {
			if host := plan.Nodes[process.Place].Host; !slices.Contains(one.Hosts, host) {
				one.Hosts = append(one.Hosts, host)
			}
			ports := make(map[string]int)
			for at, port := range process.Ports {
				ports[role.Program.Ports[at].Name] = port
			}
			one.Ports = append(one.Ports, ports)
		}
		shown.Instances = append(shown.Instances, one)
	}
	return shown
}

const (
	maxCellLength = 200 // characters of a text in a table
	maxCellHosts  = 4
)

// writeText writes the report as a table for people, one line for each instance.
func (r rolesReport) writeText(out io.Writer) error {
	rows := [][]string{{"INSTANCE", "STATE", "RESTARTS", "HOSTS", "ENDPOINT", "LAST-EXIT"}}
	for _, role := range r.Roles {
		for _, instance := range role.Instances {
			endpoint, exit := "-", ""
			if len(instance.Endpoints) > 0 {
				endpoint = instance.Endpoints[0]
			}
			if instance.LastExit != nil {
				exit = textutil.SingleLine(instance.LastExit.Message, maxCellLength)
			}
			hosts := textutil.SingleLine(textutil.JoinLimited(instance.Hosts, maxCellHosts, ","), maxCellLength)
			rows = append(rows, []string{
				fmt.Sprintf("%s.%d", role.Name, instance.Index), string(instance.State),
				strconv.Itoa(instance.Generation), hosts, endpoint, exit,
			})
		}
	}
	_, err := io.WriteString(out, textutil.FormatTable(rows))
	return err
}
