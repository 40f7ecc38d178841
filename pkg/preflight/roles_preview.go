package preflight

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

// PreviewRequest is what a user wants to know of a file of roles.
type PreviewRequest struct {
	Path         string
	Fault        string // whose consequences are shown; empty: the placement
	Counts, GPUs []int  // nodes of each component, and GPUs of each of these; nil: unknown
	// Identify returns the identity of this process in its launch.
	Identify func() (launcher.Identity, error)
	Env      launcher.Environment
}

// FormatText returns the placement of the roles of the file, or the consequences of the fault: on the
// given nodes, or on those of this launch or job. It returns nothing on all nodes of a launch but the
// first one.
func (q PreviewRequest) FormatText(file rolefile.File) (text string, err error) {
	nodes := AssumeNodes(q.Counts, q.GPUs)
	if nodes == nil {
		if nodes, err = q.discoverNodes(); err != nil || nodes == nil {
			return "", err
		}
	}
	preview, err := NewRolePreview(file, nodes)
	switch {
	case err != nil && !slices.ContainsFunc(nodes, func(n roles.NodeFacts) bool { return n.GPUs > 0 }):
		return "", fmt.Errorf("%w (without --gpus-per-node, the nodes have no GPUs here)", err)
	case err != nil:
		return "", err
	case q.Fault != "":
		return preview.describeFault(q.Fault)
	default:
		return preview.formatTable(), nil
	}
}

// errNoJob means that the nodes are neither given nor known.
var errNoJob = errors.New("cannot place the roles: this is no job: " +
	"give the nodes, for example --nodes=8 --gpus-per-node=8")

// discoverNodes returns the nodes of the launch that has started this process, or of the Slurm job
// whose script it is. It returns nil on all nodes of a launch but the first one.
func (q PreviewRequest) discoverNodes() ([]roles.NodeFacts, error) {
	id, err := q.Identify()
	isLaunched := err == nil
	if launch, wrong := errors.AsType[*launcher.LaunchError](err); !isLaunched && (!wrong || !launch.InShell) {
		return nil, err
	}
	components, err := launcher.SlurmComponents(q.Env)
	if err != nil {
		return nil, err
	}
	gpus := q.GPUs
	switch {
	case gpus == nil && isLaunched:
		gpus = []int{max(0, id.GPUs)}
	case gpus == nil:
		gpus = []int{max(0, launcher.RequestedGPUs(q.Env))}
	}
	switch {
	case id.NodeIndex > 0:
		return nil, nil
	case !isLaunched && len(components) == 0:
		return nil, errNoJob
	case !isLaunched:
	case id.Hosts == nil:
		return AssumeNodes([]int{id.Size}, gpus), nil
	case len(components) < 2:
		components = [][]string{id.Hosts}
	default:
		// The nodes of a step follow one component after the other.
		for at, hosts := range components {
			components[at] = slices.DeleteFunc(hosts,
				func(host string) bool { return !slices.Contains(id.Hosts, host) })
		}
	}
	counts := textutil.MapSlice(components, func(component []string) int { return len(component) })
	nodes := AssumeNodes(counts, gpus)
	for at, host := range slices.Concat(components...) {
		nodes[at].Host, nodes[at].Address = host, host
	}
	return nodes, nil
}

// assumedPort is the first of the free ports that each node is assumed to offer. Few programs have
// a fixed port in this range.
const assumedPort = 64000

// AssumeNodes returns nodes named n0, n1, …: a number of them for each component of a heterogeneous
// job, each with the GPUs of that component.
func AssumeNodes(counts, gpus []int) (nodes []roles.NodeFacts) {
	for group, count := range counts {
		own := componentGPUs(gpus, group)
		for range count {
			host := fmt.Sprint("n", len(nodes))
			node := roles.NodeFacts{Host: host, Address: host, Group: group, GPUs: own, FirstPort: assumedPort}
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// componentGPUs returns the GPUs of each node of a component. The last number is also that of the
// components after it.
func componentGPUs(gpus []int, group int) int {
	if len(gpus) == 0 {
		return 0
	}
	return gpus[min(group, len(gpus)-1)]
}

// RolePreview is what the roles of a file would be on some nodes.
type RolePreview struct {
	Plan  *roles.Plan
	roles []roles.Definition
	spare []roles.NodeFacts // that no role gets until another node is lost
}

// NewRolePreview places the roles on the nodes.
func NewRolePreview(file rolefile.File, nodes []roles.NodeFacts) (*RolePreview, error) {
	p := &RolePreview{roles: file.Roles}
	var team []roles.NodeFacts
	used, spare := file.Spares.Split(nodes)
	for _, place := range used {
		team = append(team, nodes[place])
	}
	for _, place := range spare {
		p.spare = append(p.spare, nodes[place])
	}
	if len(team) == 0 {
		return nil, fmt.Errorf("cannot place the roles: all %d nodes are spare", len(nodes))
	}
	var err error
	if p.Plan, err = roles.MakePlan(file.Roles, team); err != nil {
		return nil, err
	}
	return p, nil
}
