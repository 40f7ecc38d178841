// Package roleplan shows what a file of roles would do: the placement on assumed nodes, and the job
// script that starts it.
package roleplan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

// assumedPort is the first of the free ports that each node is assumed to offer. Few programs have
// a fixed port in this range.
const assumedPort = 64000

// AssumeNodes returns nodes named n0, n1, …: a number of them for each component of a heterogeneous
// job, each with the GPUs of that component. The last number of GPUs is also that of the components
// after it.
func AssumeNodes(counts, gpus []int) (nodes []roles.NodeFacts) {
	for group, count := range counts {
		own := 0
		if len(gpus) > 0 {
			own = gpus[min(group, len(gpus)-1)]
		}
		for range count {
			host := fmt.Sprint("n", len(nodes))
			nodes = append(nodes, roles.NodeFacts{Host: host, Address: host, Group: group, GPUs: own, FirstPort: assumedPort})
		}
	}
	return nodes
}

// hintGPUs returns a clause for an error if none of the nodes has a GPU.
func hintGPUs(nodes []roles.NodeFacts) string {
	if slices.ContainsFunc(nodes, func(node roles.NodeFacts) bool { return node.GPUs > 0 }) {
		return ""
	}
	return " (without --gpus-per-node, the nodes have no GPUs here)"
}

// NameNodes returns the nodes of the hosts of each component of a job.
func NameNodes(components [][]string, gpus []int) []roles.NodeFacts {
	var counts []int
	var hosts []string
	for _, component := range components {
		counts = append(counts, len(component))
		hosts = append(hosts, component...)
	}
	nodes := AssumeNodes(counts, gpus)
	for at, host := range hosts {
		nodes[at].Host, nodes[at].Address = host, host
	}
	return nodes
}

// DiscoverNodes returns the nodes of the launch that has started this process, or of the Slurm job
// whose script it is. gpus is as in AssumeNodes; nil: those that the launcher has granted on this
// node. It returns nil if there is no launch and no job.
func DiscoverNodes(env launcher.Environment, id *launcher.Identity, gpus []int) ([]roles.NodeFacts, error) {
	components, err := launcher.SlurmComponents(env)
	if err != nil {
		return nil, err
	}
	granted := launcher.RequestedGPUs(env)
	if id != nil {
		granted = id.GPUs
	}
	if gpus == nil {
		gpus = []int{max(0, granted)}
	}
	switch {
	case id == nil:
		return NameNodes(components, gpus), nil
	case id.Hosts == nil:
		return AssumeNodes([]int{id.Size}, gpus), nil
	case len(components) < 2:
		return NameNodes([][]string{id.Hosts}, gpus), nil
	default:
		// The nodes of a step follow one component after the other.
		for at, hosts := range components {
			components[at] = slices.DeleteFunc(hosts, func(host string) bool { return !slices.Contains(id.Hosts, host) })
		}
		return NameNodes(components, gpus), nil
	}
}

// Preview is what the roles of a file would be on some nodes.
type Preview struct {
	rolefile.File
	Plan       *roles.Plan
	SpareNodes []roles.NodeFacts // that no role gets until another node is lost
}

// NewPreview places the roles on the nodes, and checks their probes.
func NewPreview(file rolefile.File, nodes []roles.NodeFacts) (*Preview, error) {
	p := &Preview{File: file}
	var team []roles.NodeFacts
	used, spare := file.Spares.Split(nodes)
	for _, place := range used {
		team = append(team, nodes[place])
	}
	for _, place := range spare {
		p.SpareNodes = append(p.SpareNodes, nodes[place])
	}
	if len(team) == 0 {
		return nil, fmt.Errorf("cannot place the roles: all %d nodes are spare", len(nodes))
	}
	var err error
	if p.Plan, err = roles.MakePlan(file.Roles, team); err != nil {
		return nil, err
	}
	for at := range p.Plan.Roles {
		if err := p.checkProbes(&p.Plan.Roles[at]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// checkProbes returns an error for a probe of the role that cannot work.
func (p *Preview) checkProbes(role *roles.RolePlan) error {
	vars := p.Plan.Variables(role.Name, 0, 0)
	maps.Copy(vars, p.laterVariables())
	for _, probe := range []struct{ key, text string }{{"ready", role.Ready.Probe}, {"alive", role.Alive.Probe}} {
		if probe.text == "" {
			continue
		}
		text, err := roles.ExpandProbe(probe.text, vars)
		if err == nil {
			_, err = health.ParseProbe(text)
		}
		if err != nil {
			return fmt.Errorf("cannot use %s of role %s (line %d): %v", probe.key, role.Name, role.Line, err)
		}
	}
	return nil
}

// laterVariables returns stand-ins for the variables that are known only when a process starts.
func (p *Preview) laterVariables() map[string]string {
	vars := map[string]string{
		"BRINGUPD_GENERATION": "0", "BRINGUPD_NODE_RANK": "0", "BRINGUPD_NODE_COUNT": fmt.Sprint(len(p.Plan.Nodes)),
		"BRINGUPD_NODE_HOST": p.Plan.Nodes[0].Host, "BRINGUPD_NODE_ADDRESS": p.Plan.Nodes[0].Address,
	}
	for _, role := range p.Plan.Roles {
		name := roles.VariableName(role.Name)
		vars["BRINGUPD_ENDPOINTS_FILE_"+name], vars["BRINGUPD_ROLE_"+name+"_KEY"] = "/tmp/endpoints", "key"
	}
	return vars
}
