package signal

import (
	"maps"
	"slices"
	"time"
)

// Listing is what one look at a directory showed. It never changes, and may be
// asked from several goroutines: what it answers is the caller's own.
type Listing struct {
	names  []string          // without temporaries, in no order
	marks  map[string][]mark // of the nodes of this job, by state, in no order
	aborts []int             // in order, each once
	Looks  int               // how many looks there were, this one included
	At     time.Time         // when the look ended, on this node's clock
}

// mark is what a name in Nodes says besides the state.
type mark struct {
	rank   int
	number int64 // 0 where the name has none
}

// newListing takes the names apart that a look has shown in the run directory
// of size nodes: once, as the head of thousands asks a dozen questions a look.
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

// inOrder puts numbers in order, each once. A directory that changes while it is
// read may show a name twice.
func inOrder(numbers []int) []int {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// Names returns all names that were shown, in no order.
func (l Listing) Names() []string { return slices.Clone(l.names) }

// Has tells whether name was shown. It goes through all names.
func (l Listing) Has(name string) bool { return slices.Contains(l.names, name) }

// Ranks returns, in order, the ranks that a listing of Nodes shows in state.
func (l Listing) Ranks(state string) []int {
	ranks := slices.Grow([]int(nil), len(l.marks[state]))
	for _, m := range l.marks[state] {
		ranks = append(ranks, m.rank)
	}
	return inOrder(ranks)
}

// States returns the states in which a listing of Nodes shows ranks, without
// beats and events.
func (l Listing) States() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(l.marks)), counted)
}

// Missing returns, in order, the ranks below size that a listing of Nodes does
// not show in state.
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

// Without returns the ranks that are not in others, as a slice of its own; both are
// in order.
func Without(ranks, others []int) []int {
	return slices.DeleteFunc(slices.Clone(ranks), func(rank int) bool {
		_, among := slices.BinarySearch(others, rank)
		return among
	})
}

// Beats returns each rank's newest beat of that state that the listing shows.
// The number is only ever compared with an earlier one of the same rank.
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

// Kinds returns the ranks that a listing of Nodes shows as checked by what kind
// of node they are (see CheckedName), each kind's in order.
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

// Events returns, for each rank, the numbers of the events that a listing of
// Nodes shows, in order.
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

// Slots returns how many ranks each node may have that a listing of Nodes shows to
// have said so.
func (l Listing) Slots() map[int]int {
	slots := make(map[int]int)
	for _, m := range l.marks[Slots] {
		slots[m.rank] = int(m.number)
	}
	return slots
}

// IdleNodes returns, in order, the nodes that a listing of Nodes shows to have ranks that
// all do nothing.
func (l Listing) IdleNodes() (idle []int) {
	for rank, n := range l.Beats(Idle) {
		if n%2 == 1 {
			idle = append(idle, rank)
		}
	}
	return inOrder(idle)
}

// Aborts returns, in order, the ranks whose abort a listing of Control shows.
func (l Listing) Aborts() []int { return slices.Clone(l.aborts) }

// Team returns the newest generation whose team a listing of Control shows; -1
// where it shows none.
func (l Listing) Team() int {
	newest := -1
	for _, name := range l.names {
		if generation, ok := numbered(name, team); ok {
			newest = max(newest, generation)
		}
	}
	return newest
}
