package signal

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// FuzzListing lists names, separated by slashes, and compares the listing with one that parses
// every name again for every query.
func FuzzListing(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, someSize uint16) {
		size := int(someSize)
		names := strings.Split(text, "/")
		backwards := slices.Clone(names)
		slices.Reverse(backwards)
		var l Listing
		took := allocated(func() { l = newListing(names, size, 1, time.Time{}) })
		if most := uint64(64<<10 + 64*len(text)); took > most {
			t.Errorf("%d names of %d bytes make %d, and %d is the most", len(names), len(text), took, most)
		}
		other := newListing(backwards, size, 1, time.Time{})
		asked := []record.State{record.StateServiceUp, record.StateFailed, record.StateHeartbeat, ""}
		for _, name := range names {
			if n, ok := ParseStateName(name, 0); ok && len(asked) < 16 {
				asked = append(asked, n.State)
			}
			if !l.HasName(name) {
				t.Errorf("%q is missing", name)
			}
		}
		for _, state := range asked {
			checkState(t, l, state, size)
			if got, want := other.NodesIn(state), l.NodesIn(state); !slices.Equal(got, want) {
				t.Errorf("the order of the names makes a difference for %q: %v, %v", state, want, got)
			}
		}
		if aborts := l.NodesWithAbort(); !rising(aborts) || !slices.Equal(aborts, other.NodesWithAbort()) {
			t.Errorf("aborts: %v, and backwards %v", aborts, other.NodesWithAbort())
		}
	})
}

// checkState compares the listing's answers about a state with its names.
func checkState(t *testing.T, l Listing, state record.State, size int) {
	t.Helper()
	want, beats := make(map[int]bool), make(map[int]int64)
	for _, name := range l.names {
		n, ok := ParseStateName(name, size)
		if !ok || size == 0 || n.Instance != NoInstance || n.State != state || n.Member >= size || isCount(state) {
			continue
		}
		want[n.Member] = true
		beats[n.Member] = max(beats[n.Member], n.Number)
	}
	nodes, missing := l.NodesIn(state), l.NodesNotIn(state, size)
	if !slices.Equal(nodes, slices.Sorted(maps.Keys(want))) || !rising(nodes) {
		t.Errorf("nodes in %q: %v, want %v", state, nodes, slices.Sorted(maps.Keys(want)))
	}
	isWrong := func(node int) bool { return want[node] }
	if len(nodes)+len(missing) != size || !rising(missing) || slices.ContainsFunc(missing, isWrong) {
		t.Errorf("missing in %q: %d of %d, with %v there", state, len(missing), size, nodes)
	}
	if got := l.Heartbeats(); state == record.StateHeartbeat && !maps.Equal(got, beats) {
		t.Errorf("beats of %q: %v, want %v", state, got, beats)
	}
}

// rising reports whether the nodes are in ascending order without duplicates.
func rising(nodes []int) bool {
	for i, node := range nodes {
		if node < 0 || i > 0 && node <= nodes[i-1] {
			return false
		}
	}
	return true
}
