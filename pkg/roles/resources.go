package roles

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// assignGPUsOf gives the processes of a node their GPUs: first those that need a number of them,
// then those that divide what is left.
func (p *planner) assignGPUsOf(place int) error {
	node, processes := p.Nodes[place], p.processes[place]
	needed, sharers := 0, 0
	for _, process := range processes {
		switch need := process.Placement.GPUs; {
		case need == GPUsDivided:
			sharers++
		case need > 0:
			needed += need
		}
	}
	left := node.GPUs - needed
	switch {
	case left < 0:
		return refuseAll("node %s has %s: %s: %d of %d",
			node.Host, countGPUs(node.GPUs), describeNeeds(processes, neededGPUs), needed, node.GPUs)
	case sharers > 0 && left%sharers != 0 || left == 0 && hasProcessPerGPU(processes):
		rest := "these"
		if needed > 0 {
			rest = fmt.Sprintf("%s: the %d that are left", describeNeeds(processes, neededGPUs), left)
		}
		return refuseAll("node %s has %s: %s cannot be divided among %d processes (%s): give gpus to "+
			"each of these roles, 0 for none",
			node.Host, countGPUs(node.GPUs), rest, sharers, describeSharers(processes))
	}
	next := 0
	assign := func(process placedProcess, count int) {
		process.GPUs = take(next, count)
		next += count
	}
	for _, process := range processes {
		if need := process.Placement.GPUs; need >= 0 {
			assign(process, need)
		}
	}
	for _, process := range processes {
		if process.Placement.GPUs == GPUsDivided {
			assign(process, left/sharers)
		}
	}
	return p.shareGPUs(place, next)
}

// shareGPUs gives the processes that share GPUs on a node those of others. The first process of a
// role that is with others gets those of their first process, and so on; after the last one it
// begins again. The processes of another role all get those from next on, which no process has.
func (p *planner) shareGPUs(place, next int) error {
	node, processes := p.Nodes[place], p.processes[place]
	_, counts := countByRole(processes)
	shared := make(map[*Definition]int)
	for _, process := range processes {
		def := process.Definition
		if def.Placement.GPUs != GPUsShared {
			continue
		}
		var owners []placedProcess
		for _, other := range processes {
			if slices.Contains(def.Placement.With, other.Name) {
				owners = append(owners, other)
			}
		}
		switch {
		case len(def.Placement.With) == 0 && next >= node.GPUs:
			return def.refuse("node %s has %s, and other roles leave none to share: place it with a "+
				"role whose GPUs it shares", node.Host, countGPUs(node.GPUs))
		case len(def.Placement.With) == 0:
			process.GPUs = take(next, node.GPUs-next)
		case len(owners) == 0 || counts[def]%len(owners) != 0:
			return def.refuse("its %d processes on node %s cannot share the GPUs of %d of %s: give "+
				"as many, or a multiple",
				counts[def], node.Host, len(owners), strings.Join(def.Placement.With, " and "))
		default:
			process.GPUs = owners[shared[def]%len(owners)].GPUs
			shared[def]++
		}
	}
	return nil
}

// take returns count numbers from next on.
func take(next, count int) []int {
	taken := make([]int, count)
	for i := range taken {
		taken[i] = next + i
	}
	return taken
}

// hasProcessPerGPU reports whether a role has a process for each GPU of the node and divides what
// others have left.
func hasProcessPerGPU(processes []placedProcess) bool {
	for _, process := range processes {
		place := process.Placement
		if place.GPUs == GPUsDivided && (place.InstancesPerNode == PerGPU || place.RanksPerNode == PerGPU) {
			return true
		}
	}
	return false
}

func countGPUs(n int) string { return countOf(n, "GPU") }

// countByRole returns the roles of processes, in their order, and the number of processes of each.
func countByRole(processes []placedProcess) (order []*Definition, counts map[*Definition]int) {
	counts = make(map[*Definition]int)
	for _, process := range processes {
		if counts[process.Definition]++; counts[process.Definition] == 1 {
			order = append(order, process.Definition)
		}
	}
	return order, counts
}

// describeRoles lists something of the processes of each role that has it on a node: "prefill needs
// 3 x 2, decode 1 x 2".
func describeRoles(processes []placedProcess, verb string, of func(def *Definition, count int) string) string {
	var parts []string
	order, counts := countByRole(processes)
	for _, def := range order {
		if text := of(def, counts[def]); text != "" {
			parts = append(parts, def.Name+verb+" "+text)
			verb = ""
		}
	}
	return strings.Join(parts, ", ")
}

// describeNeeds lists how many of something the processes of each role need.
func describeNeeds(processes []placedProcess, need func(*Definition) int) string {
	return describeRoles(processes, " needs", func(def *Definition, count int) string {
		if n := need(def); n > 0 {
			return fmt.Sprintf("%d x %d", count, n)
		}
		return ""
	})
}

func neededGPUs(def *Definition) int { return max(0, def.Placement.GPUs) }

// neededPorts returns how many ports of its node's block a process of the role needs.
func neededPorts(def *Definition) (ports int) {
	for _, request := range def.Program.Ports {
		if request.Number == 0 {
			ports += max(1, request.Count)
		}
	}
	return ports
}

// describeSharers lists how many processes of each role divide the GPUs that are left.
func describeSharers(processes []placedProcess) string {
	return describeRoles(processes, "", func(def *Definition, count int) string {
		if def.Placement.GPUs == GPUsDivided {
			return strconv.Itoa(count)
		}
		return ""
	})
}

// assignPortsOf gives the processes of a node their ports. Those that the file does not fix are the
// first ones of the node's block that no process has.
func (p *planner) assignPortsOf(place int) error {
	node, processes := p.Nodes[place], p.processes[place]
	fixed, err := fixedPorts(node, processes)
	if err != nil {
		return err
	}
	next := node.FirstPort
	needed := 0
	for _, process := range processes {
		needed += neededPorts(process.Definition)
		for _, request := range process.Program.Ports {
			count := max(1, request.Count)
			first := request.Number
			if first == 0 {
				first = node.firstFree(next, count, fixed)
				next = first + count
			}
			process.Ports = append(process.Ports, first)
		}
	}
	switch free := BlockSize - len(node.BusyPorts); {
	case needed == 0:
		return nil
	case node.FirstPort <= 0:
		return refuseAll("node %s has offered no ports", node.Host)
	case next > node.FirstPort+BlockSize:
		return refuseAll("node %s has %d free ports for its processes: %s: %d of %d",
			node.Host, free, describeNeeds(processes, neededPorts), needed, free)
	default:
		return nil
	}
}

// firstFree returns the first port from which on a number of ports are neither fixed nor busy.
func (n NodeFacts) firstFree(from, count int, fixed map[int]*Definition) int {
	for port := from; port < from+count; port++ {
		if fixed[port] != nil || slices.Contains(n.BusyPorts, port) {
			from = port + 1
		}
	}
	return from
}

// fixedPorts returns the roles that have fixed ports on a node, by port, and refuses a port that
// two processes have.
func fixedPorts(node NodeFacts, processes []placedProcess) (map[int]*Definition, error) {
	fixed := make(map[int]*Definition)
	for _, process := range processes {
		for _, request := range process.Program.Ports {
			if request.Number == 0 {
				continue
			}
			for port := request.Number; port < request.Number+max(1, request.Count); port++ {
				switch other := fixed[port]; {
				case other == process.Definition:
					return nil, other.refuse("port %s is %d for more than one process on node %s: give auto",
						request.Name, port, node.Host)
				case other != nil:
					return nil, refuseAll("port %d is that of %s and of %s on node %s: give auto to one of them",
						port, other.Name, process.Name, node.Host)
				}
				fixed[port] = process.Definition
			}
		}
	}
	return fixed, nil
}
