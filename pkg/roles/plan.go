package roles

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// NodeFacts is what the placement of roles needs to know about a node: the offer of a member of the
// team.
type NodeFacts struct {
	NodeIndex int    `json:"node_index"`
	Host      string `json:"host"`
	Address   string `json:"address"` // at which other nodes reach it
	Group     int    `json:"group,omitempty"`
	GPUs      int    `json:"gpus,omitempty"`
	// FirstPort is the first of BlockSize ports for the processes of the node. For a built-in role of
	// ranks it is only the port at which they meet, on the first node.
	FirstPort int `json:"first_port,omitempty"`
	// BusyPorts are those of these ports that other programs have.
	BusyPorts []int `json:"busy_ports,omitempty"`
	// Domain is the NVLink domain of the node; empty if it is in none.
	Domain string `json:"domain,omitempty"`
	// NUMAs and Cores are the numbers of its NUMA nodes and cores, at least 1; 0: the plan depends on neither.
	NUMAs int `json:"numas,omitempty"`
	Cores int `json:"cores,omitempty"`
	// Slots is the number of ranks of a built-in role that the node can have, if it depends on the node.
	Slots int `json:"slots,omitempty"`
	// Since is the number of the plan since which the node's place and the number of nodes have not
	// changed. Its built-in services, which have both in their environment, run since then.
	Since int `json:"since,omitempty"`
}

// BlockSize is the number of ports that a node offers for its processes.
const BlockSize = 512

// Plan states which process of which role runs where, on which GPUs, and with which ports. All
// nodes make the same plan from the same definitions and the same facts.
type Plan struct {
	Nodes []NodeFacts // the nodes of the team, in the order of their places
	Roles []RolePlan  // in the order of the definitions
}

// RolePlan is the part of a role in a plan.
type RolePlan struct {
	*Definition
	Nodes     []int // places of the role's nodes, sorted
	Instances []Instance
}

// Instance is a set of processes of a role that start, count and fail as one.
type Instance struct {
	Number    int       // number of the instance among those of all roles
	Index     int       // index of the instance in its role
	Processes []Process // sorted by rank
}

// Process is one process of an instance.
type Process struct {
	Rank  int // within the instance
	Place int // place of its node in the team
	Local int // index among the processes of this instance on its node
	// GPUs are the indices of its GPUs on its node. It is nil if the process is not bound and sees all
	// of them, and empty if it must see none.
	GPUs []int
	// Ports has the first number of each port of the definition, in its order.
	Ports []int
}

// LastProcess returns the only process that has not ended, of at least two: ended are the ranks
// that are known to have ended, sorted, and left the places of which not all have.
func (i Instance) LastProcess(ended []int, left map[int]bool) (last Process, is bool) {
	count := 0
	for _, p := range i.Processes {
		if _, isEnded := slices.BinarySearch(ended, p.Rank); !isEnded && left[p.Place] {
			last = p
			count++
		}
	}
	return last, count == 1 && len(i.Processes) > 1
}

// Places returns the places of the nodes of an instance, in the order of its processes.
func (i Instance) Places() (places []int) {
	for _, process := range i.Processes {
		if !slices.Contains(places, process.Place) {
			places = append(places, process.Place)
		}
	}
	return places
}

// FindRole returns the role with a name, or nil.
func (p *Plan) FindRole(name string) *RolePlan {
	for at := range p.Roles {
		if p.Roles[at].Name == name {
			return &p.Roles[at]
		}
	}
	return nil
}

// FindInstance returns the instance with a number, and its role, or nil.
func (p *Plan) FindInstance(number int) (*RolePlan, *Instance) {
	for at := range p.Roles {
		role := &p.Roles[at]
		if number >= 0 && number < len(role.Instances) {
			return role, &role.Instances[number]
		}
		number -= len(role.Instances)
	}
	return nil, nil
}

// IdleNodes returns the places of the nodes on which no process runs.
func (p *Plan) IdleNodes() (places []int) {
	isUsed := make([]bool, len(p.Nodes))
	for _, role := range p.Roles {
		for _, place := range role.Nodes {
			isUsed[place] = true
		}
	}
	for place, used := range isUsed {
		if !used {
			places = append(places, place)
		}
	}
	return places
}

// IdleGPUs describes the GPUs that no process gets, of the nodes with a role, such as "GPUs 0-7 of n0-n1"; it
// is empty if there are none.
func (p *Plan) IdleGPUs() string {
	left := make(map[int]map[int]bool) // GPUs of each place with a role
	for _, role := range p.Roles {
		for _, place := range role.Nodes {
			if left[place] == nil {
				left[place] = make(map[int]bool)
				for gpu := range p.Nodes[place].GPUs {
					left[place][gpu] = true
				}
			}
		}
		for _, instance := range role.Instances {
			for _, process := range instance.Processes {
				if process.GPUs == nil { // it sees all
					clear(left[process.Place])
				}
				for _, gpu := range process.GPUs {
					delete(left[process.Place], gpu)
				}
			}
		}
	}
	// Join neighbours with the same GPUs.
	var parts []string
	for place := 0; place < len(p.Nodes); {
		first, idle := place, textutil.FormatRanges(slices.Sorted(maps.Keys(left[place])))
		for place++; place < len(p.Nodes) && idle == textutil.FormatRanges(slices.Sorted(maps.Keys(left[place]))); {
			place++
		}
		hosts := p.Nodes[first].Host
		if place > first+1 {
			hosts += "-" + p.Nodes[place-1].Host
		}
		if idle != "" {
			parts = append(parts, fmt.Sprintf("GPUs %s of %s", idle, hosts))
		}
	}
	return textutil.JoinLimited(parts, 4, ", ")
}

// PlanRecord is the record with the facts from which each node makes the same plan of the roles.
type PlanRecord struct {
	record.Header
	// Offers are those of the members of the team, in the order of their places.
	Offers []NodeFacts `json:"offers"`
	// Generations has the first generation of each instance that a spare node has taken over, by the
	// number of the instance.
	Generations map[int]int `json:"generations,omitempty"`
	// Roles has what observers need to make the same plan, as [Describe] returns it.
	Roles []Definition `json:"roles,omitempty"`
	// Early reports that the head has made the plan before any node had joined, from facts that it
	// has assumed: see [NeedsAgreement].
	Early bool `json:"early,omitempty"`
	// Dropped has the nodes that were dropped from a team that has spares, because of a fault.
	Dropped []record.DroppedNode `json:"dropped,omitempty"`
	// Without has the kinds of built-in roles whose instances only a later plan has, before the gate.
	Without []BuiltIn `json:"without,omitempty"`
	// RestartCount is the number of restarts of the job before this run, for the ranks of a built-in role.
	RestartCount int `json:"restart_count,omitempty"`
	Number       int `json:"-"` // the record's
}

// MakePlan makes the plan of the roles from the facts of the record.
func (r *PlanRecord) MakePlan(defs []Definition) (*Plan, error) {
	if len(r.Without) > 0 {
		defs = slices.Clone(defs)
		for i := range defs {
			defs[i].PlannedLater = defs[i].BuiltIn != "" && slices.Contains(r.Without, defs[i].BuiltIn)
		}
	}
	return MakePlan(defs, r.Offers)
}

// PlaceOf returns the place of a node in the plan, or -1 if it has none.
func (r *PlanRecord) PlaceOf(node int) int {
	return slices.IndexFunc(r.Offers, func(o NodeFacts) bool { return o.NodeIndex == node })
}

// FirstGeneration returns the generation with which an instance begins by the plan: 0 unless a spare has
// taken it over, or the team has changed before the service of a node started. It is negative if the
// instance is over.
func (r *PlanRecord) FirstGeneration(role *RolePlan, instance *Instance) int {
	if role.BuiltIn == BuiltInWorker {
		return r.Offers[instance.Processes[0].Place].Since
	}
	return r.Generations[instance.Number]
}

// DropReason returns the reason for which a node was dropped from the team.
func (r *PlanRecord) DropReason(node int) string {
	for _, dropped := range r.Dropped {
		if dropped.NodeIndex == node {
			return dropped.Reason
		}
	}
	return "the head does not say why"
}

// Describe returns the definitions for a [PlanRecord]. Commands and variables, which may contain
// secrets, are never a part of their JSON form.
func Describe(defs []Definition) []Definition {
	described := slices.Clone(defs)
	for i := range described {
		ready := &described[i].Ready
		if ready.Probe == "" && !described[i].BuiltIn.IsService() {
			*ready = ReadyProbe{}
		}
		ready.Probe = describeProbe(ready.Probe)
	}
	return described
}

// describeProbe returns a probe without secrets: of a command only that it is one.
func describeProbe(probe string) string {
	if kind, _, isCommand := strings.Cut(probe, ":"); isCommand && kind == "exec" {
		return kind
	}
	return textutil.RedactText(probe)
}

// Spares is the number of nodes of each group that no role claims until a node is lost.
type Spares map[int]int

// Split returns the places of the nodes that the roles get, and those of the spare ones: the last
// of each group. A group that has no more nodes than spares has no node left for roles.
func (s Spares) Split(nodes []NodeFacts) (used, spare []int) {
	left := make(map[int]int)
	for _, node := range nodes {
		left[node.Group]++
	}
	for place, node := range nodes {
		if left[node.Group] > s[node.Group] {
			used = append(used, place)
		} else {
			spare = append(spare, place)
		}
		left[node.Group]--
	}
	return used, spare
}

// UnclaimedGroup returns a group that has spare nodes although no role has nodes of it, and those of the
// roles; -1 if there is none.
func (s Spares) UnclaimedGroup(defs []Definition) (group int, known []int) {
	for _, def := range defs {
		if len(def.Placement.With) == 0 && !slices.Contains(known, def.Placement.Group) {
			known = append(known, def.Placement.Group)
		}
	}
	slices.Sort(known)
	for _, group := range slices.Sorted(maps.Keys(s)) {
		if s[group] > 0 && !slices.Contains(known, group) {
			return group, known
		}
	}
	return -1, known
}

// Remaining returns the number of spare nodes of each group without those that have replaced nodes
// which are not members of the team. members is sorted, and hosts has those of all nodes.
func (s Spares) Remaining(members []int, hosts []string, env launcher.Environment) Spares {
	left := maps.Clone(s)
	for node, host := range hosts {
		if _, isMember := slices.BinarySearch(members, node); !isMember && len(left) > 0 {
			group := launcher.ComponentOf(env, host)
			left[group] = max(0, left[group]-1)
		}
	}
	return left
}

// SurvivesNodeLoss reports whether a run of these roles may go on after the loss of a node: a spare
// can take its place, or a role does not need all of its instances.
func (s Spares) SurvivesNodeLoss(defs []Definition) bool {
	hasSpare := false
	for _, count := range s {
		hasSpare = hasSpare || count > 0
	}
	return slices.ContainsFunc(defs, func(d Definition) bool {
		return d.Restarts.Max > 0 && hasSpare || d.Required.Run != QuorumAll
	})
}
