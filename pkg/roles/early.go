package roles

import "slices"

// StartRule states what starts the first generation of the instances of a role.
type StartRule int

// The rules by which roles start.
const (
	StartWithPlan StartRule = iota // the plan: the role starts after no other one
	StartByOrder                   // an order of the head, when the roles before it have what they require
	StartAtGate                    // the open gate: a primary role after all that are not primary
)

// StartRuleOf returns what starts a role by a plan. If the nodes must agree to an early plan, no
// role starts with it. A built-in service waits by itself for that of the head.
func StartRuleOf(defs []Definition, def *Definition, isEarly bool) StartRule {
	isAfterAll := def.Primary && !slices.ContainsFunc(defs, func(other Definition) bool {
		return other.Primary == slices.Contains(def.After, other.Name)
	})
	switch {
	case def.BuiltIn.IsService():
		return StartWithPlan
	case isAfterAll:
		return StartAtGate
	case len(def.After) > 0 || isEarly && NeedsAgreement(defs):
		return StartByOrder
	default:
		return StartWithPlan
	}
}

// IsReadyAtStart reports whether the first generation of the instances of a role is ready when the gate
// opens: no probe says more. The nodes publish only its end.
func IsReadyAtStart(def *Definition, rule StartRule) bool {
	return rule == StartAtGate && def.Ready.Probe == "" && def.Program.Framework == ""
}

// NeedsPorts reports whether one of the roles needs ports that its file does not fix.
func NeedsPorts(defs []Definition) bool {
	return slices.ContainsFunc(defs, func(d Definition) bool {
		return d.Placement.HasRanks && d.BuiltIn == "" || d.Program.Framework != "" || neededPorts(&d) > 0
	})
}

// NeedsAgreement reports whether the roles need facts of nodes that an early plan only assumes: free
// ports, the addresses of others, or GPUs. Those of a built-in role need only the head's.
func NeedsAgreement(defs []Definition) bool {
	return NeedsPorts(defs) || DependsOnGPUs(defs) || slices.ContainsFunc(defs, func(d Definition) bool {
		return d.Placement.NodesPerInstance != 1 && d.BuiltIn == "" || len(d.Program.Ports) > 0
	})
}

// DependsOnGPUs reports whether the plan of the roles depends on how many GPUs the nodes have.
func DependsOnGPUs(defs []Definition) bool {
	return slices.ContainsFunc(defs, func(d Definition) bool {
		p := d.Placement
		return p.GPUs != GPUsAll && p.GPUs != 0 || p.InstancesPerNode == PerGPU || p.RanksPerNode == PerGPU
	})
}

// NeedsOffers reports whether the plan of the roles depends on facts that only the nodes know: their
// NVLink domains, or how many NUMA nodes or cores they have.
func NeedsOffers(defs []Definition) bool {
	return slices.ContainsFunc(defs, func(d Definition) bool {
		p := d.Placement
		return p.Segment > 1 || p.RanksPerNode == PerNUMA || p.RanksPerNode == PerCore || p.RanksPerNode == PerSlot
	})
}

// AreOnHead reports whether the processes of all roles run on the first node.
func AreOnHead(defs []Definition) bool {
	return !slices.ContainsFunc(defs, func(d Definition) bool { return d.Placement.Nodes != NodesHead })
}

// AddressedPlaces returns the sorted places of the nodes whose addresses the processes of other
// nodes may use: those of endpoints with ports, and of the first processes of instances that span
// several nodes.
func (p *Plan) AddressedPlaces() (places []int) {
	for i := range p.Roles {
		role := &p.Roles[i]
		for _, instance := range role.Instances {
			all := instance.Places()
			switch {
			case len(role.Program.Ports) > 0 && role.Program.AllEndpoints:
				places = append(places, all...)
			case len(role.Program.Ports) > 0 || len(all) > 1:
				places = append(places, all[0])
			}
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// Accepts reports whether an early plan is right for the node at a place, which has these GPUs and
// this address. Its ports must be free, too.
func (p *Plan) Accepts(place, gpus int, address string) bool {
	var defs []Definition
	for i := range p.Roles {
		defs = append(defs, *p.Roles[i].Definition)
	}
	assumed := p.Nodes[place]
	_, isAddressed := slices.BinarySearch(p.AddressedPlaces(), place)
	return (assumed.GPUs == gpus || !DependsOnGPUs(defs)) && (assumed.Address == address || !isAddressed)
}

// WithOffers returns a plan's record in which the facts of nodes are those that they have offered
// themselves, so that they need not agree to it.
func (r *PlanRecord) WithOffers(offers []NodeFacts) *PlanRecord {
	next := &PlanRecord{Offers: slices.Clone(r.Offers), Roles: r.Roles, Number: r.Number + 1}
	for _, offer := range offers {
		place := slices.IndexFunc(next.Offers, func(known NodeFacts) bool { return known.NodeIndex == offer.NodeIndex })
		next.Offers[place] = offer
	}
	return next
}

// HasNamed reports whether a role is not built in.
func HasNamed(defs []Definition) bool {
	return slices.ContainsFunc(defs, func(d Definition) bool { return d.BuiltIn == "" })
}
