package signal

import (
	"slices"
	"time"
)

// Listing is what one look at a directory showed.
type Listing struct {
	names []string  // sorted, without temporaries
	Looks int       // how many looks there were, this one included
	At    time.Time // when the look ended, on this node's clock
}

func newListing(names []string, looks int, at time.Time) Listing {
	slices.Sort(names)
	return Listing{names: names, Looks: looks, At: at}
}

// Has tells whether name was shown.
func (l Listing) Has(name string) bool {
	_, found := slices.BinarySearch(l.names, name)
	return found
}

// Ranks returns, in order, the ranks that a listing of Nodes shows in state.
func (l Listing) Ranks(state string) []int {
	var ranks []int
	for _, name := range l.names {
		if rank, shown, _, ok := nodeName(name); ok && shown == state {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	// A directory that changes while it is read may show a name twice.
	return slices.Compact(ranks)
}

// Missing returns, in order, the ranks below size that a listing of Nodes does
// not show in state.
func (l Listing) Missing(state string, size int) []int {
	there := l.Ranks(state)
	var missing []int
	for rank := range size {
		if _, found := slices.BinarySearch(there, rank); !found {
			missing = append(missing, rank)
		}
	}
	return missing
}

// Beats returns each rank's newest beat of that state that the listing shows.
// The number is only ever compared with an earlier one of the same rank.
func (l Listing) Beats(state string) map[int]int64 {
	beats := make(map[int]int64)
	for _, name := range l.names {
		if rank, shown, count, ok := nodeName(name); ok && shown == state && counted(state) {
			beats[rank] = max(beats[rank], count)
		}
	}
	return beats
}

// Aborts returns, in order, the ranks whose abort a listing of Control shows.
func (l Listing) Aborts() []int {
	var ranks []int
	for _, name := range l.names {
		if rank, ok := abortRank(name); ok {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}
