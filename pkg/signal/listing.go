package signal

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Listing is the result of one poll of a directory. It never changes, and is safe for concurrent
// use; callers own the results of its methods.
type Listing struct {
	names        []string                    // without temporaries, unsorted
	byState      map[record.State][]nodeMark // names of this job's nodes, by state, unsorted
	stepsByState map[record.State][]nodeMark // those of the members of further steps
	instances    []record.InstanceMark       // unsorted
	// steps and idle times of instances, unsorted
	instanceCounts []instanceName
	abortingNodes  []int     // sorted, without duplicates
	Polls          int       // number of polls so far, including this one
	PolledAt       time.Time // when the poll ended, by this node's clock
	// SeenAt is PolledAt, or later if names were reported since then.
	SeenAt time.Time
}

// nodeMark is the information in a name in NodesDir, except the state.
type nodeMark struct {
	node   int
	number int64 // 0 if the name has none
}

// newListing parses the names of a poll of the run directory of size nodes. They are parsed once,
// because the head of thousands of nodes makes a dozen queries per poll.
func newListing(names []string, size, polls int, at time.Time) Listing {
	l := Listing{names: names, byState: make(map[record.State][]nodeMark), Polls: polls, PolledAt: at}
	for _, name := range names {
		if node, state, number, ok := ParseNodeName(name, size); ok && node < size {
			l.byState[state] = append(l.byState[state], nodeMark{node, number})
		} else if of, ok := parseInstanceName(name, size); ok && of.countsSomething() {
			l.instanceCounts = append(l.instanceCounts, of)
		} else if ok {
			of.Change = int(of.number)
			l.instances = append(l.instances, of.InstanceMark)
		} else if node, ok := parseNumbered(name, abortPrefix); ok {
			l.abortingNodes = append(l.abortingNodes, node)
		} else {
			l.addStepMember(name, size)
		}
	}
	l.abortingNodes = sortUnique(l.abortingNodes)
	return l
}

// addStepMember adds a name of a member of a further step. Other names are ignored.
func (l *Listing) addStepMember(name string, size int) {
	if text, is := strings.CutPrefix(name, abortPrefix+"."); is {
		if member, _, ok := parseMember(text, size); ok {
			l.abortingNodes = append(l.abortingNodes, member)
		}
		return
	}
	if member, state, number, ok := ParseStepMemberName(name, size); ok {
		if l.stepsByState == nil {
			l.stepsByState = make(map[record.State][]nodeMark)
		}
		l.stepsByState[state] = append(l.stepsByState[state], nodeMark{member, number})
	}
}

// OfSteps returns a listing of the names of the members of further steps. Its methods return member
// indices in place of node indices.
func (l Listing) OfSteps() Listing {
	return Listing{byState: l.stepsByState, Polls: l.Polls, PolledAt: l.PolledAt}
}

// IsIn reports whether a member is in one of the states, in a listing of NodesDir.
func (l Listing) IsIn(member int, states ...record.State) bool {
	return slices.ContainsFunc(states, func(state record.State) bool {
		is := func(m nodeMark) bool { return m.node == member }
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
		nodes = append(nodes, m.node)
	}
	return sortUnique(nodes)
}

// NodeStates returns the states of all nodes in a listing of NodesDir, without heartbeats and
// events.
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

// Heartbeats returns the number of each node's newest heartbeat, by node index. It returns nil if
// names of that state have no number. The numbers of different nodes cannot be compared.
func (l Listing) Heartbeats(state record.State) map[int]int64 {
	if !hasNumber(state) {
		return nil
	}
	beats := make(map[int]int64, len(l.byState[state]))
	for _, m := range l.byState[state] {
		beats[m.node] = max(beats[m.node], m.number)
	}
	return beats
}

// NodesByKind returns the nodes that have passed their checks, by their kind (see CheckedName),
// sorted, in a listing of NodesDir.
func (l Listing) NodesByKind() map[int64][]int {
	kinds := make(map[int64][]int)
	for _, m := range l.byState[record.StateChecked] {
		kinds[m.number] = append(kinds[m.number], m.node)
	}
	for kind, nodes := range kinds {
		kinds[kind] = sortUnique(nodes)
	}
	return kinds
}

// EventNumbers returns the sorted numbers of each node's events, in a listing of NodesDir.
func (l Listing) EventNumbers() map[int][]int {
	events := make(map[int][]int)
	for _, m := range l.byState[record.StateEvent] {
		events[m.node] = append(events[m.node], int(m.number))
	}
	for node, numbers := range events {
		events[node] = sortUnique(numbers)
	}
	return events
}

// SlotCounts returns the number of ranks that each node can have, as far as published, in a listing
// of NodesDir.
func (l Listing) SlotCounts() map[int]int {
	slots := make(map[int]int)
	for _, m := range l.byState[record.StateSlots] {
		slots[m.node] = int(m.number)
	}
	return slots
}

// IdleNodes returns the sorted indices of the nodes whose ranks are all idle, in a listing of
// Nodes.
func (l Listing) IdleNodes() []int { return oddNodes(l.Heartbeats(record.StateIdle)) }

// NodeStep is the step that the slowest rank of a node has reached.
type NodeStep struct {
	Rank int // -1 for the driver
	Step float64
}

// NodeSteps returns the newest published steps of all nodes, in a listing of NodesDir.
func (l Listing) NodeSteps() map[int]NodeStep {
	steps := make(map[int]NodeStep)
	for state, marks := range l.byState {
		rank, is := parseStepState(state)
		if !is {
			continue
		}
		for _, m := range marks {
			step := float64(m.number) / stepFraction
			// a name that could not be removed has a lower step
			if known, there := steps[m.node]; !there || step > known.Step || step == known.Step && rank < known.Rank {
				steps[m.node] = NodeStep{rank, step}
			}
		}
	}
	return steps
}

// NodesWithAbort returns the sorted indices of the nodes with an abort, in a listing of ControlDir.
func (l Listing) NodesWithAbort() []int { return slices.Clone(l.abortingNodes) }
