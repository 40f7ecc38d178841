package signal

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Listing is the result of one poll of a directory. It never changes, and is safe for concurrent
// use; callers own the results of its methods.
type Listing struct {
	names        []string                     // without temporaries, unsorted
	byState      map[record.State][]StateName // of this job's nodes, unsorted
	stepsByState map[record.State][]StateName // of the members of further steps
	instances    []record.InstanceMark        // unsorted
	// steps and changes of idleness, of nodes and of instances, unsorted
	counts        []StateName
	abortingNodes []int     // sorted, without duplicates
	Polls         int       // number of polls so far, including this one
	PolledAt      time.Time // when the poll ended, by this node's clock
	// SeenAt is PolledAt, or later if names were reported since then.
	SeenAt time.Time
}

// newListing parses the names of a poll of the run directory of size nodes. They are parsed once,
// because the head of thousands of nodes makes a dozen queries per poll.
func newListing(names []string, size, polls int, at time.Time) Listing {
	l := Listing{
		names: names, Polls: polls, PolledAt: at,
		byState: make(map[record.State][]StateName), stepsByState: make(map[record.State][]StateName),
	}
	for _, name := range names {
		n, ok := ParseStateName(name, size)
		switch {
		case !ok:
			text, isAbort := strings.CutPrefix(name, abortPrefix+".")
			if member, ok := parseMember(text, size); ok && isAbort {
				l.abortingNodes = append(l.abortingNodes, member)
			}
		case isCount(n.State):
			l.counts = append(l.counts, n)
		case n.Instance != NoInstance:
			l.instances = append(l.instances, record.InstanceMark{
				Node: n.Member, Instance: n.Instance, Generation: n.Generation,
				State: record.InstanceState(n.State), Change: int(n.Number),
			})
		case n.Member < size:
			l.byState[n.State] = append(l.byState[n.State], n)
		case size > 0:
			l.stepsByState[n.State] = append(l.stepsByState[n.State], n)
		}
	}
	l.abortingNodes = sortUnique(l.abortingNodes)
	return l
}

// OfSteps returns a listing of the names of the members of further steps. Its methods return member
// indices in place of node indices.
func (l Listing) OfSteps() Listing {
	return Listing{byState: l.stepsByState, Polls: l.Polls, PolledAt: l.PolledAt}
}

// IsIn reports whether a member is in one of the states, in a listing of NodesDir.
func (l Listing) IsIn(member int, states ...record.State) bool {
	return slices.ContainsFunc(states, func(state record.State) bool {
		is := func(m StateName) bool { return m.Member == member }
		return slices.ContainsFunc(l.byState[state], is) || slices.ContainsFunc(l.stepsByState[state], is)
	})
}

// sortUnique sorts numbers and removes duplicates. A directory that changes while it is read may
// show a name twice.
func sortUnique(numbers []int) []int {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// AllNames returns all names, unsorted.
func (l Listing) AllNames() []string { return slices.Clone(l.names) }

// HasName reports whether the listing contains a name. It searches all names.
func (l Listing) HasName(name string) bool { return slices.Contains(l.names, name) }

// NodesIn returns the sorted indices of the nodes in state, in a listing of NodesDir.
func (l Listing) NodesIn(state record.State) []int {
	nodes := slices.Grow([]int(nil), len(l.byState[state]))
	for _, m := range l.byState[state] {
		nodes = append(nodes, m.Member)
	}
	return sortUnique(nodes)
}

// NodeStates returns the states of all nodes in a listing of NodesDir, without those whose names have
// numbers of their own.
func (l Listing) NodeStates() []record.State {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(l.byState)), hasNumber)
}

// NodesNotIn returns the sorted indices below size of nodes that are not in state, in a listing of
// Nodes.
func (l Listing) NodesNotIn(state record.State, size int) (missing []int) {
	there := l.NodesIn(state)
	for node := range size {
		if len(there) > 0 && there[0] == node {
			there = there[1:]
			continue
		}
		missing = append(missing, node)
	}
	return missing
}

// WithoutNodes returns, as a new slice, the nodes that are not in others. Both must be sorted.
func WithoutNodes(nodes, others []int) []int {
	return slices.DeleteFunc(slices.Clone(nodes), func(node int) bool {
		_, among := slices.BinarySearch(others, node)
		return among
	})
}

// Heartbeats returns the number of each node's newest heartbeat, by node index. The numbers of
// different nodes cannot be compared.
func (l Listing) Heartbeats() map[int]int64 {
	beats := make(map[int]int64, len(l.byState[record.StateHeartbeat]))
	for _, m := range l.byState[record.StateHeartbeat] {
		beats[m.Member] = max(beats[m.Member], m.Number)
	}
	return beats
}

// NodesByKind returns the nodes that have passed their checks, by their kind (see CheckedName),
// sorted, in a listing of NodesDir.
func (l Listing) NodesByKind() map[int64][]int {
	return groupNames(l.byState[record.StateChecked], func(m StateName) (int64, int) { return m.Number, m.Member })
}

// groupNames returns the numbers that part returns for names, sorted, by its keys.
func groupNames[K comparable](names []StateName, part func(StateName) (K, int)) map[K][]int {
	groups := make(map[K][]int)
	for _, name := range names {
		key, number := part(name)
		groups[key] = append(groups[key], number)
	}
	for key, numbers := range groups {
		groups[key] = sortUnique(numbers)
	}
	return groups
}

// EventNumbers returns the sorted numbers of each node's events, in a listing of NodesDir.
func (l Listing) EventNumbers() map[int][]int {
	return groupNames(l.byState[record.StateEvent], func(m StateName) (int, int) { return m.Member, int(m.Number) })
}

// SlotCounts returns the number of ranks that each node can have, as far as published, in a listing
// of NodesDir.
func (l Listing) SlotCounts() map[int]int {
	slots := make(map[int]int)
	for _, m := range l.byState[record.StateSlots] {
		slots[m.Member] = int(m.Number)
	}
	return slots
}

// IdleNodes returns the sorted indices of the nodes on which all processes of a generation of an
// instance are idle or, for NoInstance, all ranks of the run, in a listing of NodesDir.
func (l Listing) IdleNodes(instance, generation int) (nodes []int) {
	newest := make(map[int]int64) // keyed by node
	for _, c := range l.counts {
		if c.State == record.StateIdle && c.Instance == instance && c.Generation == generation {
			newest[c.Member] = max(newest[c.Member], c.Number)
		}
	}
	for node, n := range newest {
		if n%2 == 1 {
			nodes = append(nodes, node)
		}
	}
	return sortUnique(nodes)
}

// NodeSteps returns the newest published steps of each node, and of the newest generation of each
// instance on it, in a listing of NodesDir.
func (l Listing) NodeSteps() []NodeStep {
	type place struct{ node, instance int }
	newest := make(map[place]NodeStep)
	for _, c := range l.counts {
		rank, is := parseStepState(c.State)
		if !is {
			continue
		}
		at := place{c.Member, c.Instance}
		step := NodeStep{c.Member, c.Instance, c.Generation, rank, float64(c.Number) / stepFraction}
		if known, there := newest[at]; !there || step.isNewer(known) {
			newest[at] = step
		}
	}
	return slices.Collect(maps.Values(newest))
}

// isNewer reports whether a step replaces another one of the same instance and node. A name that
// could not be removed has a lower step, or an earlier generation.
func (s NodeStep) isNewer(known NodeStep) bool {
	return cmp.Or(
		cmp.Compare(s.Generation, known.Generation), cmp.Compare(s.Step, known.Step),
		cmp.Compare(known.Rank, s.Rank),
	) > 0
}

// Instances returns the marks of instances in a listing of NodesDir. The caller must not change the
// slice.
func (l Listing) Instances() []record.InstanceMark { return l.instances }

// InstanceOrders has the newest orders of the head for an instance that spans several nodes.
type InstanceOrders struct {
	Stop  int // all generations before this one are stopped; 0: none
	Start int // the newest generation that was started; 0: the first, without an order
}

// InstanceOrders returns the newest orders for each instance in a listing of ControlDir.
func (l Listing) InstanceOrders() map[int]InstanceOrders {
	orders := make(map[int]InstanceOrders)
	for _, name := range l.names {
		parts := strings.Split(name, ".")
		if len(parts) != 4 || parts[0] != instancePrefix {
			continue
		}
		instance, isInstance := parseIndex(parts[1])
		generation, isGeneration := parseLettered(parts[2], "g", 1)
		if !isInstance || !isGeneration {
			continue
		}
		order := orders[instance]
		switch name {
		case OrderName(instance, generation, OrderStop):
			order.Stop = max(order.Stop, generation)
		case OrderName(instance, generation, OrderStart):
			order.Start = max(order.Start, generation)
		}
		orders[instance] = order
	}
	return orders
}

// NodesWithAbort returns the sorted indices of the nodes with an abort, in a listing of ControlDir.
func (l Listing) NodesWithAbort() []int { return slices.Clone(l.abortingNodes) }
