package roles

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// PlacementError means that the roles do not fit on the nodes.
type PlacementError struct {
	Role    string // empty if several roles together are the reason
	Line    int    // line of the role in its file; 0: unknown
	Problem string
}

func (e *PlacementError) Error() string {
	switch {
	case e.Role == "":
		return "cannot place the roles: " + e.Problem
	case e.Line > 0:
		return fmt.Sprintf("cannot place role %s (line %d): %s", e.Role, e.Line, e.Problem)
	default:
		return fmt.Sprintf("cannot place role %s: %s", e.Role, e.Problem)
	}
}

// refuse returns an error about one role.
func (d *Definition) refuse(format string, args ...any) error {
	return &PlacementError{Role: d.Name, Line: d.Line, Problem: fmt.Sprintf(format, args...)}
}

// refuseAll returns an error about several roles.
func refuseAll(format string, args ...any) error {
	return &PlacementError{Problem: fmt.Sprintf(format, args...)}
}

// maxProcesses is the number of processes of all roles that a node can have, and maxRanks that of ranks
// of a built-in role, whose number the node checks itself.
const (
	maxProcesses = 4096
	maxRanks     = 1 << 16
)

// planner makes one plan.
type planner struct {
	*Plan
	indexes map[string]int // the roles', by name
	claimed []bool         // the places'
	// processes has those of each place, in the order of roles and instances.
	processes [][]placedProcess
	unused    []Process // allocated for further instances: a job may have many small ones
}

// placedProcess is a process with its role.
type placedProcess struct {
	*Definition
	*Process
}

// MakePlan places the roles on the nodes of the team. The result depends on nothing else, so that
// all nodes make the same plan. Its error is a [*PlacementError] with the numbers that do not fit.
func MakePlan(defs []Definition, nodes []NodeFacts) (*Plan, error) {
	p := &planner{
		Plan:    &Plan{Nodes: nodes, Roles: make([]RolePlan, len(defs))},
		indexes: indexByName(defs), claimed: make([]bool, len(nodes)), processes: make([][]placedProcess, len(nodes)),
	}
	for at := range defs {
		p.Roles[at].Definition = &defs[at]
	}
	for _, part := range []func() error{
		p.checkDefinitions, p.claimNodes, p.shareNodes, p.makeInstances, p.checkQuorums,
	} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	for _, assign := range []func(place int) error{p.assignGPUsOf, p.assignPortsOf} {
		for place := range nodes {
			if err := assign(place); err != nil {
				return nil, err
			}
		}
	}
	return p.Plan, nil
}

// checkDefinitions refuses roles of the same name, and those that are with roles that do not exist.
func (p *planner) checkDefinitions() error {
	for at, role := range p.Roles {
		if p.indexes[role.Name] != at {
			return role.refuse("another role has the same name")
		}
		for _, other := range role.Placement.With {
			if _, exists := p.indexes[other]; !exists {
				return role.refuse("it is with %s, and there is no such role", other)
			}
		}
	}
	return nil
}

// claimNodes gives nodes to the roles that claim them, in the order of the list.
func (p *planner) claimNodes() error {
	for at := range p.Roles {
		role := &p.Roles[at]
		if !role.Placement.ClaimsNodes() {
			continue
		}
		rest, err := p.checkClaims(role.Placement.Group)
		if err != nil {
			return err
		}
		count := role.Placement.Nodes
		if count == NodesRest {
			count = rest
		}
		places, err := p.chooseNodes(role.Definition, count)
		if err != nil {
			return err
		}
		for _, place := range places {
			p.claimed[place] = true
		}
		slices.Sort(places)
		role.Nodes = places
	}
	return nil
}

// checkClaims refuses roles that together claim more nodes than a group has, and otherwise returns
// how many nodes are left for the role that claims the rest.
func (p *planner) checkClaims(group int) (rest int, err error) {
	total, sum := 0, 0
	for _, node := range p.Nodes {
		if node.Group == group {
			total++
		}
	}
	var parts []string
	for _, role := range p.Roles {
		place := role.Placement
		if !place.ClaimsNodes() || place.Group != group {
			continue
		}
		least, kind := place.Nodes, ""
		if place.Nodes == NodesRest {
			least, kind = 1, "the rest, at least "
			rest++
		}
		need := fmt.Sprint(kind, least)
		if len(parts) == 0 {
			need = "needs " + kind + countNodes(least)
		}
		sum += least
		parts = append(parts, role.Name+" "+need)
	}
	if sum <= total {
		return rest + total - sum, nil
	}
	return 0, refuseAll("%s: %s in all, and the job has %d%s; give the job more, or the roles fewer",
		strings.Join(parts, ", "), countNodes(sum), total, p.nameGroup(group))
}

// nameGroup returns a clause that names a group, unless there is only one.
func (p *planner) nameGroup(group int) string {
	for _, node := range p.Nodes {
		if node.Group != 0 || group != 0 {
			return fmt.Sprintf(" in group %d", group)
		}
	}
	return ""
}

func countNodes(n int) string { return countOf(n, "node") }

// countOf returns a number of things in words.
func countOf(n int, thing string) string {
	return fmt.Sprintf("%d %s", n, textutil.PluralForm(n, thing))
}

// chooseNodes returns the nodes that a role claims: the first ones that are free, or the first
// whole segments. Nodes whose NVLink domain is unknown count as one domain.
func (p *planner) chooseNodes(def *Definition, count int) (places []int, err error) {
	segment, isRest := max(1, def.Placement.Segment), def.Placement.Nodes == NodesRest
	if count%segment != 0 && !isRest {
		return nil, def.refuse("its %s are not whole segments of %d", countNodes(count), segment)
	}
	var domains []string
	free := make(map[string][]int)
	for place, node := range p.Nodes {
		if node.Group != def.Placement.Group || p.claimed[place] {
			continue
		}
		domain := node.Domain
		if segment == 1 {
			domain = ""
		}
		if free[domain] == nil {
			domains = append(domains, domain)
		}
		free[domain] = append(free[domain], place)
	}
	for _, domain := range domains {
		take := min(len(free[domain]), count-len(places))
		places = append(places, free[domain][:take-take%segment]...)
	}
	if isRest && len(places) > 0 || len(places) == count {
		return places, nil
	}
	var parts []string
	for _, domain := range domains {
		parts = append(parts, fmt.Sprintf("domain %q has %d free", domain, len(free[domain])))
	}
	need := countNodes(count)
	if isRest {
		need = "at least " + countNodes(segment)
	}
	return nil, def.refuse("it needs %s in segments of %d within NVLink domains, and %s: %d",
		need, segment, strings.Join(parts, ", "), len(places))
}

// shareNodes determines the nodes of the roles that claim none. A role can be with one that follows
// it, or that is itself with another.
func (p *planner) shareNodes() error {
	var resolve func(at int) error
	resolve = func(at int) (err error) {
		role := &p.Roles[at]
		place := role.Placement
		if place.ClaimsNodes() || role.Nodes != nil {
			return nil
		}
		role.Nodes = []int{} // a role that is with itself gets none from itself
		for _, name := range place.With {
			other := p.indexes[name]
			if err := resolve(other); err != nil {
				return err
			}
			role.Nodes = append(role.Nodes, p.Roles[other].Nodes...)
		}
		slices.Sort(role.Nodes)
		role.Nodes = slices.Compact(role.Nodes)
		switch {
		case len(place.With) > 0 && place.Nodes > len(role.Nodes):
			return role.refuse("it needs %s of %s, which has %d",
				countNodes(place.Nodes), strings.Join(place.With, " and "), len(role.Nodes))
		case len(place.With) > 0 && place.Nodes > 0:
			role.Nodes = role.Nodes[:place.Nodes]
		case len(place.With) > 0:
		case place.Nodes == NodesHead:
			role.Nodes = []int{0}[:min(1, len(p.Nodes))]
		default:
			for place, node := range p.Nodes {
				if node.Group == role.Placement.Group && (place > 0 || role.Placement.Nodes != NodesOthers) {
					role.Nodes = append(role.Nodes, place)
				}
			}
		}
		if len(role.Nodes) == 0 && role.BuiltIn == "" {
			return role.refuse("there are no nodes%s", p.nameGroup(place.Group))
		}
		return nil
	}
	for at := range p.Roles {
		if err := resolve(at); err != nil {
			return err
		}
	}
	return nil
}

// makeInstances divides the nodes of each role among its instances.
func (p *planner) makeInstances() error {
	number := 0
	counts := make([]int, len(p.Nodes))
	for at := range p.Roles {
		role := &p.Roles[at]
		if role.PlannedLater {
			continue
		}
		span := max(1, role.Placement.NodesPerInstance)
		if role.Placement.NodesPerInstance == NodesAll {
			span = len(role.Nodes)
		}
		if len(role.Nodes)%span != 0 {
			return role.refuse("its %s cannot be divided into instances of %s",
				countNodes(len(role.Nodes)), countNodes(span))
		}
		for nodes := range slices.Chunk(role.Nodes, span) {
			perNode, err := p.countOn(role.Definition, nodes[0], "per-node", role.Placement.InstancesPerNode)
			if err != nil {
				return err
			}
			if role.Instances == nil {
				role.Instances = make([]Instance, 0, len(role.Nodes)/span*min(perNode, maxProcesses))
			}
			for range perNode {
				instance := Instance{Number: number, Index: len(role.Instances)}
				if instance.Processes, err = p.makeProcesses(role.Definition, nodes, counts); err != nil {
					return err
				}
				role.Instances = append(role.Instances, instance)
				number++
			}
		}
	}
	for place, count := range counts {
		p.processes[place] = make([]placedProcess, 0, count)
	}
	for at := range p.Roles {
		role := &p.Roles[at]
		for _, instance := range role.Instances {
			for i := range instance.Processes {
				process := &instance.Processes[i]
				placed := placedProcess{role.Definition, process}
				p.processes[process.Place] = append(p.processes[process.Place], placed)
			}
		}
	}
	return nil
}

// makeProcesses returns the processes of an instance on its nodes, and adds them to the number of
// those of each place.
func (p *planner) makeProcesses(def *Definition, nodes, counts []int) (processes []Process, err error) {
	ranks, err := p.countRanks(def, nodes)
	if err != nil {
		return nil, err
	}
	limit := maxProcesses
	if def.BuiltIn != "" {
		limit = maxRanks
	}
	total := 0
	for i, place := range nodes {
		if counts[place] += ranks[i]; counts[place] > limit {
			return nil, def.refuse("node %s would have more than %d processes", p.Nodes[place].Host, limit)
		}
		total += ranks[i]
	}
	if len(p.unused) < total {
		p.unused = make([]Process, max(total, len(p.Nodes)))
	}
	processes, p.unused = p.unused[:0:total], p.unused[total:]
	for i, place := range nodes {
		for local := range ranks[i] {
			processes = append(processes, Process{Rank: len(processes), Place: place, Local: local})
		}
	}
	return processes, nil
}

// countRanks returns how many processes of an instance each of its nodes gets. A total fills the nodes
// in their order.
func (p *planner) countRanks(def *Definition, nodes []int) (counts []int, err error) {
	counts = make([]int, len(nodes))
	total := def.Placement.Ranks
	left := total
	for i, place := range nodes {
		if counts[i], err = p.countOn(def, place, "ranks-per-node", def.Placement.RanksPerNode); err != nil {
			return nil, err
		}
		if total > 0 {
			counts[i] = min(counts[i], left)
			left -= counts[i]
		}
	}
	if left > 0 && !def.Placement.Oversubscribe {
		return nil, def.refuse("it has %d ranks, and its %s can have %d", total, countNodes(len(nodes)), total-left)
	}
	for i := 0; left > 0; i, left = (i+1)%len(nodes), left-1 {
		counts[i]++
	}
	return counts, nil
}

// countOn returns how many instances or processes a node gets.
func (p *planner) countOn(def *Definition, place int, key string, count int) (int, error) {
	node := p.Nodes[place]
	switch {
	case count == PerSlot && def.BuiltIn != "":
		return node.Slots, nil
	case count == PerNUMA:
		return max(1, node.NUMAs), nil
	case count == PerCore, count == PerSlot && (node.GPUs == 0 || def.Placement.GPUs == 0):
		return max(1, node.Cores), nil
	case count == PerSlot:
		return node.GPUs, nil
	case count != PerGPU:
		return max(1, count), nil
	}
	if node.GPUs <= 0 {
		return 0, def.refuse("%s is gpu, and node %s has no GPUs", key, node.Host)
	}
	return node.GPUs, nil
}

// checkQuorums refuses roles that require more instances than they have.
func (p *planner) checkQuorums() error {
	for _, role := range p.Roles {
		count := len(role.Instances)
		if role.BuiltIn != "" { // the gate waits until there are more, or fails
			continue
		}
		if highest := max(role.Required.Start.Of(count), role.Required.Run.Of(count)); highest > count {
			return role.refuse("it requires %d instances, and has %d on %s",
				highest, count, countNodes(len(role.Nodes)))
		}
	}
	return nil
}
