package signal

import (
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Listing is what one look at a directory showed. It never changes, and may be
// asked from several goroutines: what it answers is the caller's own.
type Listing struct {
	names  []string     // without temporaries, in no order
	states []stateShown // of the nodes of this job; a handful
	aborts []int        // in order, each once
	size   int          // number of nodes
	Looks  int          // how many looks there were, this one included
	At     time.Time    // when the look ended, on this node's clock
}

// stateShown is what a listing of Nodes shows of one state.
type stateShown struct {
	state string
	// ranks are in order, each once, but for a state that may be numbered: then
	// they are as they came, and counts has the number of each.
	ranks  []int
	counts []int64
}

// newListing takes the names apart that a look has shown in the run directory
// of size nodes: once, as the head of thousands asks a dozen questions a look.
func newListing(names []string, size, looks int, at time.Time) Listing {
	l := Listing{names: names, size: size, Looks: looks, At: at}
	width := Width(size)
	for _, name := range names {
		rank, state, count, ok := nodeName(name)
		// A name of another width would be a second one for the same rank.
		if ok && rank < size && strings.IndexByte(name, '.') == width {
			l.add(rank, state, count)
			continue
		}
		if rank, ok := abortRank(name); ok {
			l.aborts = append(l.aborts, rank)
		}
	}
	var sorter rankSorter
	for i, shown := range l.states {
		if shown.counts == nil {
			l.states[i].ranks = sorter.sort(shown.ranks, size)
		}
	}
	slices.Sort(l.aborts)
	l.aborts = slices.Compact(l.aborts)
	return l
}

func (l *Listing) add(rank int, state string, count int64) {
	at := slices.IndexFunc(l.states, func(s stateShown) bool { return s.state == state })
	if at < 0 {
		at = len(l.states)
		l.states = append(l.states, stateShown{state: state})
	}
	shown := &l.states[at]
	shown.ranks = append(shown.ranks, rank)
	if numberable(state) {
		shown.counts = append(shown.counts, count)
	}
}

// rankSorter has a bit for each rank, all of them clear between two sorts.
type rankSorter []uint64

// sort puts ranks below size in order, in place. A directory that changes while
// it is read may show a name twice: one of them is kept.
func (s *rankSorter) sort(ranks []int, size int) []int {
	if *s == nil {
		*s = make(rankSorter, (size+63)/64)
	}
	for _, rank := range ranks {
		(*s)[rank/64] |= 1 << (rank % 64)
	}
	ranks = ranks[:0]
	for i, word := range *s {
		for ; word != 0; word &= word - 1 {
			ranks = append(ranks, 64*i+bits.TrailingZeros64(word))
		}
	}
	clear(*s)
	return ranks
}

// shown returns what there is of a state.
func (l Listing) shown(state string) stateShown {
	for _, s := range l.states {
		if s.state == state {
			return s
		}
	}
	return stateShown{}
}

// Names returns all names that were shown, in no order.
func (l Listing) Names() []string { return slices.Clone(l.names) }

// Has tells whether name was shown. It goes through all names.
func (l Listing) Has(name string) bool { return slices.Contains(l.names, name) }

// Ranks returns, in order, the ranks that a listing of Nodes shows in state.
func (l Listing) Ranks(state string) []int {
	shown := l.shown(state)
	ranks := slices.Clone(shown.ranks)
	if shown.counts != nil {
		ranks = new(rankSorter).sort(ranks, l.size)
	}
	return ranks
}

// States returns the states in which a listing of Nodes shows ranks, without
// beats and events.
func (l Listing) States() []string {
	var states []string
	for _, s := range l.states {
		if !counted(s.state) {
			states = append(states, s.state)
		}
	}
	slices.Sort(states)
	return states
}

// Missing returns, in order, the ranks below size that a listing of Nodes does
// not show in state.
func (l Listing) Missing(state string, size int) []int {
	shown := l.shown(state)
	there := shown.ranks
	if shown.counts != nil {
		there = l.Ranks(state)
	}
	var missing []int
	for rank := range size {
		if len(there) > 0 && there[0] == rank {
			there = there[1:]
			continue
		}
		missing = append(missing, rank)
	}
	return missing
}

// Beats returns each rank's newest beat of that state that the listing shows.
// The number is only ever compared with an earlier one of the same rank.
func (l Listing) Beats(state string) map[int]int64 {
	shown := l.shown(state)
	beats := make(map[int]int64, len(shown.counts))
	for i, count := range shown.counts {
		rank := shown.ranks[i]
		beats[rank] = max(beats[rank], count)
	}
	return beats
}

// Kinds returns the ranks that a listing of Nodes shows as checked by what kind
// of node they are (see CheckedName), each kind's in order.
func (l Listing) Kinds() map[int64][]int {
	shown := l.shown(Checked)
	kinds := make(map[int64][]int)
	for i, kind := range shown.counts {
		kinds[kind] = append(kinds[kind], shown.ranks[i])
	}
	for kind, ranks := range kinds {
		kinds[kind] = new(rankSorter).sort(ranks, l.size)
	}
	return kinds
}

// Events returns, for each rank, the numbers of the events that a listing of
// Nodes shows, in order.
func (l Listing) Events() map[int][]int {
	shown := l.shown(Event)
	events := make(map[int][]int)
	for i, n := range shown.counts {
		rank := shown.ranks[i]
		if !slices.Contains(events[rank], int(n)) {
			events[rank] = append(events[rank], int(n))
		}
	}
	for _, numbers := range events {
		slices.Sort(numbers)
	}
	return events
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
