package signal

import (
	"maps"
	"slices"
	"time"
)

// Listing is the result of one poll of a directory. It never changes, and is safe for concurrent
// use; callers own the results of its methods.
type Listing struct {
	names  []string          // without temporaries, unsorted
	marks  map[string][]mark // names of this job's nodes, by state, unsorted
	aborts []int             // sorted, without duplicates
	Looks  int               // number of polls so far, including this one
	At     time.Time         // when the poll ended, by this node's clock
}

// mark is the information in a name in Nodes, except the state.
type mark struct {
	rank   int
	number int64 // 0 if the name has none
}

// newListing parses the names of a poll of the run directory of size nodes. They are parsed once,
// because the head of thousands of nodes makes a dozen queries per poll.
func newListing(names []string, size, looks int, at time.Time) Listing {
	l := Listing{names: names, marks: make(map[string][]mark), Looks: looks, At: at}
	for _, name := range names {
		if rank, state, number, ok := ParseNodeName(name, size); ok && rank < size {
			l.marks[state] = append(l.marks[state], mark{rank, number})
		} else if rank, ok := numbered(name, abort); ok {
			l.aborts = append(l.aborts, rank)
		}
	}
	l.aborts = inOrder(l.aborts)
	return l
}

// inOrder sorts numbers and removes duplicates. A directory that changes while it is read may show
// a name twice.
func inOrder(numbers []int) []int {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// Names returns all names, unsorted.
func (l Listing) Names() []string { return slices.Clone(l.names) }

// Has reports whether the listing contains a name. It searches all names.
func (l Listing) Has(name string) bool { return slices.Contains(l.names, name) }

// Ranks returns the sorted indices of the nodes in state, in a listing of Nodes.
func (l Listing) Ranks(state string) []int {
	ranks := slices.Grow([]int(nil), len(l.marks[state]))
	for _, m := range l.marks[state] {
		ranks = append(ranks, m.rank)
	}
	return inOrder(ranks)
}

// States returns the states of all nodes in a listing of Nodes, without heartbeats and events.
func (l Listing) States() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(l.marks)), counted)
}

// Missing returns the sorted indices below size of nodes that are not in state, in a listing of
// Nodes.
func (l Listing) Missing(state string, size int) (missing []int) {
	there := l.Ranks(state)
	for rank := range size {
		if len(there) > 0 && there[0] == rank {
			there = there[1:]
			continue
		}
		missing = append(missing, rank)
	}
	return missing
}

// Without returns, as a new slice, the nodes that are not in others. Both must be sorted.
func Without(ranks, others []int) []int {
	return slices.DeleteFunc(slices.Clone(ranks), func(rank int) bool {
		_, among := slices.BinarySearch(others, rank)
		return among
	})
}

// Beats returns the number of each node's newest heartbeat, by node index. It returns nil if
// names of that state have no number. The numbers of different nodes cannot be compared.
func (l Listing) Beats(state string) map[int]int64 {
	if !counted(state) {
		return nil
	}
	beats := make(map[int]int64, len(l.marks[state]))
	for _, m := range l.marks[state] {
		beats[m.rank] = max(beats[m.rank], m.number)
	}
	return beats
}

// Kinds returns the nodes that have passed their checks, by their kind (see CheckedName), sorted,
// in a listing of Nodes.
func (l Listing) Kinds() map[int64][]int {
	kinds := make(map[int64][]int)
	for _, m := range l.marks[Checked] {
		kinds[m.number] = append(kinds[m.number], m.rank)
	}
	for kind, ranks := range kinds {
		kinds[kind] = inOrder(ranks)
	}
	return kinds
}

// Events returns the sorted numbers of each node's events, in a listing of Nodes.
func (l Listing) Events() map[int][]int {
	events := make(map[int][]int)
	for _, m := range l.marks[Event] {
		events[m.rank] = append(events[m.rank], int(m.number))
	}
	for rank, numbers := range events {
		events[rank] = inOrder(numbers)
	}
	return events
}

// Slots returns the number of ranks that each node can have, as far as published, in a listing of
// Nodes.
func (l Listing) Slots() map[int]int {
	slots := make(map[int]int)
	for _, m := range l.marks[Slots] {
		slots[m.rank] = int(m.number)
	}
	return slots
}

// IdleNodes returns the sorted indices of the nodes whose ranks are all idle, in a listing of
// Nodes.
func (l Listing) IdleNodes() (idle []int) {
	for rank, n := range l.Beats(Idle) {
		if n%2 == 1 {
			idle = append(idle, rank)
		}
	}
	return inOrder(idle)
}

// Aborts returns the sorted indices of the nodes with an abort, in a listing of Control.
func (l Listing) Aborts() []int { return slices.Clone(l.aborts) }

// Team returns the newest generation of the team in a listing of Control, or -1 if there is none.
func (l Listing) Team() int {
	newest := -1
	for _, name := range l.names {
		if generation, ok := numbered(name, team); ok {
			newest = max(newest, generation)
		}
	}
	return newest
}
