package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

// formatTable returns the placement as a table with a row for each instance on each of its nodes,
// and below it the order of start and end, and the nodes without roles.
func (p *RolePreview) formatTable() string {
	rows := [][]string{{"role", "instance", "node", "processes", "GPUs", "ports"}}
	for at := range p.Plan.Roles {
		role := &p.Plan.Roles[at]
		for _, instance := range role.Instances {
			for _, place := range instance.Places() {
				own := slices.DeleteFunc(slices.Clone(instance.Processes),
					func(p roles.Process) bool { return p.Place != place })
				rows = append(rows, []string{
					role.Name, fmt.Sprint(instance.Index), p.Plan.Nodes[place].Host, fmt.Sprint(len(own)),
					describeGPUs(own), describePorts(role.Definition),
				})
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nstart: %s\nend:   %s\n", textutil.FormatTable(rows),
		describeLevels(roles.StartLevels(p.roles)), describeLevels(roles.EndLevels(p.roles)))
	for _, step := range roles.StepNames(p.roles) {
		var hosts []string
		for place, node := range p.Plan.Nodes {
			isOfStep := func(r roles.RolePlan) bool { return r.Program.Step == step && slices.Contains(r.Nodes, place) }
			if slices.ContainsFunc(p.Plan.Roles, isOfStep) {
				hosts = append(hosts, node.Host)
			}
		}
		fmt.Fprintf(&b, "step:  %s on %s\n", step, listHosts(hosts))
	}
	p.describeExceptions(&b)
	return b.String()
}

// describeGPUs returns the GPUs of processes on one node.
func describeGPUs(processes []roles.Process) string {
	var gpus []int
	for _, process := range processes {
		if process.GPUs == nil {
			return "all"
		}
		gpus = append(gpus, process.GPUs...)
	}
	slices.Sort(gpus)
	ranges := textutil.FormatRanges(slices.Compact(gpus)) // processes may share them
	switch {
	case len(gpus) == 0:
		return "-"
	case len(processes) > 1:
		return fmt.Sprintf("%s, %d each", ranges, len(processes[0].GPUs))
	default:
		return ranges
	}
}

// describePorts returns the ports of each process of a role: those that the file fixes, and auto for
// those that are known only when the nodes have offered theirs.
func describePorts(def *roles.Definition) string {
	var parts []string
	for _, request := range def.Program.Ports {
		port := "auto"
		switch {
		case request.Number > 0:
			port = fmt.Sprint(request.Number)
		case request.Count > 1:
			port = fmt.Sprintf("auto x %d", request.Count)
		}
		parts = append(parts, request.Name+" "+port)
	}
	return strings.Join(parts, ", ")
}

// describeLevels returns levels of roles in their order.
func describeLevels(levels [][]string) string {
	return textutil.JoinEach(levels, " → ", func(names []string) string {
		return strings.Join(names, ", ")
	})
}

// describeExceptions writes lines about the roles whose endpoints no probe proves, and about the
// nodes without roles.
func (p *RolePreview) describeExceptions(b *strings.Builder) {
	var unprobed, idle, spare []string
	restarts, hasPrimary := false, false
	for i := range p.roles {
		hasPrimary = hasPrimary || p.roles[i].Primary
		if p.roles[i].IsUnprobed() {
			unprobed = append(unprobed, p.roles[i].Name)
		}
		restarts = restarts || p.roles[i].Restarts.Max > 0
	}
	for _, place := range p.Plan.IdleNodes() {
		idle = append(idle, p.Plan.Nodes[place].Host)
	}
	for _, node := range p.spare {
		spare = append(spare, node.Host)
	}
	if len(unprobed) > 0 {
		fmt.Fprintf(b, "no probe: %s: ready once it runs; an endpoint is listed once its process listens there\n",
			strings.Join(unprobed, ", "))
	}
	if len(idle) > 0 {
		fmt.Fprintf(b, "idle:  %d of %d nodes have no role: %s\n", len(idle), len(p.Plan.Nodes), listHosts(idle))
	}
	if gpus := p.Plan.IdleGPUs(); gpus != "" {
		fmt.Fprintf(b, "idle:  %s: no process gets them\n", gpus)
	}
	if len(spare) > 0 {
		fmt.Fprintf(b, "spare: %s\n", listHosts(spare))
	}
	if len(spare) > 0 && restarts {
		b.WriteString("A spare replaces a lost node only with sbatch --no-kill and srun " +
			"--no-kill --kill-on-bad-exit=0.\n")
	}
	if !hasPrimary { // no mistake if all roles are servers
		b.WriteString("warning: no role is primary, so the run goes on until bringupd stop: give primary: true " +
			"to a role whose end ends it\n")
	}
	for _, sentence := range rolefile.Warnings(p.roles, func(string) bool { return false }) {
		fmt.Fprintf(b, "warning: %s\n", sentence)
	}
}

// listHosts returns the first of some hosts, and the number of the others.
func listHosts(hosts []string) string { return textutil.JoinLimited(hosts, 8, " ") }
