package roleplan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/bringupd/bringupd/pkg/roles"
)

// FormatTable returns the placement as a table with a row for each instance on each of its nodes,
// and below it the order of start and end, and the nodes without roles.
func (p *Preview) FormatTable() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "role\tinstance\tnode\tprocesses\tGPUs\tports")
	for at := range p.Plan.Roles {
		role := &p.Plan.Roles[at]
		for _, instance := range role.Instances {
			for processes := range chunkByPlace(instance.Processes) {
				fmt.Fprintf(table, "%s\t%d\t%s\t%d\t%s\t%s\n", role.Name, instance.Index, p.Plan.Nodes[processes[0].Place].Host,
					len(processes), describeGPUs(processes), describePorts(role.Definition))
			}
		}
	}
	_ = table.Flush() // a strings.Builder accepts everything
	fmt.Fprintf(&b, "\nstart: %s\nend:   %s\n", describeLevels(roles.StartLevels(p.Roles)), describeLevels(roles.EndLevels(p.Roles)))
	for _, step := range roles.StepNames(p.Roles) {
		var hosts []string
		for place, node := range p.Plan.Nodes {
			isOfStep := func(r roles.RolePlan) bool { return r.Program.Step == step && slices.Contains(r.Nodes, place) }
			if slices.ContainsFunc(p.Plan.Roles, isOfStep) {
				hosts = append(hosts, node.Host)
			}
		}
		fmt.Fprintf(&b, "step:  %s on %s\n", step, listHosts(len(hosts), func(i int) string { return hosts[i] }))
	}
	b.WriteString(p.describeUnprobed() + p.describeOtherNodes())
	return trimLines(b.String())
}

// trimLines removes the spaces at the ends of lines, which an empty last column leaves.
func trimLines(text string) string {
	lines := strings.Split(text, "\n")
	for at, line := range lines {
		lines[at] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// chunkByPlace yields the processes of each node. Those of one node follow each other.
func chunkByPlace(processes []roles.Process) func(yield func([]roles.Process) bool) {
	return func(yield func([]roles.Process) bool) {
		for len(processes) > 0 {
			count := slices.IndexFunc(processes, func(p roles.Process) bool { return p.Place != processes[0].Place })
			if count < 0 {
				count = len(processes)
			}
			if !yield(processes[:count]) {
				return
			}
			processes = processes[count:]
		}
	}
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
	gpus = slices.Compact(gpus) // processes may share them
	switch count := len(processes[0].GPUs); {
	case len(gpus) == 0:
		return "-"
	case len(processes) > 1:
		return fmt.Sprintf("%s, %d each", formatRanges(gpus), count)
	default:
		return formatRanges(gpus)
	}
}

// formatRanges returns sorted numbers as "0-3,5".
func formatRanges(numbers []int) string {
	var parts []string
	for at := 0; at < len(numbers); {
		end := at
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		part := strconv.Itoa(numbers[at])
		if end > at {
			part += "-" + strconv.Itoa(numbers[end])
		}
		parts = append(parts, part)
		at = end + 1
	}
	return strings.Join(parts, ",")
}

// describePorts returns the ports of each process of a role: those that the file fixes, and auto for
// those that are known only when the nodes have offered theirs.
func describePorts(def *roles.Definition) string {
	var parts []string
	for _, request := range def.Program.Ports {
		switch {
		case request.Number > 0:
			parts = append(parts, fmt.Sprintf("%s %d", request.Name, request.Number))
		case request.Count > 1:
			parts = append(parts, fmt.Sprintf("%s auto x %d", request.Name, request.Count))
		default:
			parts = append(parts, request.Name+" auto")
		}
	}
	return strings.Join(parts, ", ")
}

// describeLevels returns levels of roles in their order.
func describeLevels(levels [][]string) string {
	var parts []string
	for _, names := range levels {
		parts = append(parts, strings.Join(names, ", "))
	}
	return strings.Join(parts, " → ")
}

// describeUnprobed returns a line about the roles whose endpoints no probe proves.
func (p *Preview) describeUnprobed() string {
	var names []string
	for i := range p.Roles {
		if p.Roles[i].IsUnprobed() {
			names = append(names, p.Roles[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("no probe: %s: ready once it runs; an endpoint is listed once its process listens there\n", strings.Join(names, ", "))
}

// describeOtherNodes returns lines about the nodes without roles.
func (p *Preview) describeOtherNodes() string {
	var b strings.Builder
	if idle := p.Plan.IdleNodes(); len(idle) > 0 {
		fmt.Fprintf(&b, "idle:  %d of %d nodes have no role: %s\n", len(idle), len(p.Plan.Nodes), listHosts(len(idle), func(i int) string { return p.Plan.Nodes[idle[i]].Host }))
	}
	if len(p.SpareNodes) > 0 {
		fmt.Fprintf(&b, "spare: %s\n", listHosts(len(p.SpareNodes), func(i int) string { return p.SpareNodes[i].Host }))
		if slices.ContainsFunc(p.Roles, func(d roles.Definition) bool { return d.Restarts.Max > 0 }) {
			b.WriteString("A spare replaces a lost node only with sbatch --no-kill and srun --no-kill --kill-on-bad-exit=0.\n")
		}
	}
	return b.String()
}

// listHosts returns the first hosts of a number of them.
func listHosts(count int, host func(i int) string) string {
	const shown = 8
	var hosts []string
	for i := range min(count, shown) {
		hosts = append(hosts, host(i))
	}
	if count > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(hosts, " "), count-shown)
	}
	return strings.Join(hosts, " ")
}
