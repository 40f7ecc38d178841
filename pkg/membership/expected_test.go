package membership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal"
)

// listing returns a listing of [signal.NodesDir] that shows these names.
func listing(names ...string) signal.Listing {
	shown := signal.DirSnapshot{Names: names}
	return shown.ParseListing(8)
}

func TestExpected(t *testing.T) {
	for _, tc := range []struct {
		name  string
		names []string
		want  map[int]int64
	}{
		{"nobody", nil, map[int]int64{}},
		{"the head alone", []string{"0000.joined"}, map[int]int64{}},
		{"who has joined, before a beat", []string{"0000.joined", "0001.joined"}, map[int]int64{1: 0}},
		{"the newest beat", []string{"0001.joined", "0001.beat.000002", "0001.beat.000003"}, map[int]int64{1: 3}},
		{"who beats and has not joined", []string{"0001.beat.000002"}, map[int]int64{}},
		{"who is done", []string{"0001.joined", "0002.joined", "0001.done"}, map[int]int64{2: 0}},
		{"who has failed", []string{"0001.joined", "0002.joined", "0002.failed"}, map[int]int64{1: 0}},
		{"whose sandbox has failed", []string{"0001.joined", "0001.sandbox-failed"}, map[int]int64{1: 0}},
		{"a sandbox's beat is no daemon's", []string{"0001.joined", "0001.sandbox-beat.000009"}, map[int]int64{1: 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, NewMembership(8, NodeRange{}, true).ExpectedPeers(listing(tc.names...))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestExpectedInAnOldListing verifies that a dead peer that an old listing does not show does not
// count as new in the next listing.
func TestExpectedInAnOldListing(t *testing.T) {
	r := NewMembership(8, NodeRange{}, true)
	_ = r.ExpectedPeers(listing("0001.joined", "0001.beat.000007"))
	if diff := cmp.Diff(map[int]int64{1: 0}, r.ExpectedPeers(listing())); diff != "" {
		t.Error(diff)
	}
}

// TestExpectedPeersOfFurtherSteps counts the daemons of further job steps as peers of their own.
func TestExpectedPeersOfFurtherSteps(t *testing.T) {
	r := NewMembership(8, NodeRange{}, true)
	names := listing("0001.joined", "0001.beat.000007", "0001-1.joined", "0001-1.beat.000003", "0002-2.joined", "0003-1.joined", "0003-1.done", "0001.failed")
	if diff := cmp.Diff(map[int]int64{8 + 1: 3, 16 + 2: 0}, r.ExpectedPeers(names)); diff != "" {
		t.Error(diff)
	}
}
