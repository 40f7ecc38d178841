package membership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal"
)

// TestExpectedPeers verifies which peers should be alive, with their newest heartbeats, according to
// the last of several listings. The daemons of further job steps are peers of their own.
func TestExpectedPeers(t *testing.T) {
	for _, tc := range []struct {
		name     string
		listings [][]string
		want     map[int]int64
	}{
		{"nobody", [][]string{nil}, map[int]int64{}},
		{"the head alone", [][]string{{"0000.joined"}}, map[int]int64{}},
		{"joined, before a beat", [][]string{{"0000.joined", "0001.joined"}}, map[int]int64{1: 0}},
		{"the newest beat", [][]string{{"0001.joined", "0001.beat.000002", "0001.beat.000003"}}, map[int]int64{1: 3}},
		{"it beats and has not joined", [][]string{{"0001.beat.000002"}}, map[int]int64{}},
		{"done", [][]string{{"0001.joined", "0002.joined", "0001.done"}}, map[int]int64{2: 0}},
		{"failed", [][]string{{"0001.joined", "0002.joined", "0002.failed"}}, map[int]int64{1: 0}},
		{"its sandbox has failed", [][]string{{"0001.joined", "0001.sandbox-failed"}}, map[int]int64{1: 0}},
		{"a sandbox's beat", [][]string{{"0001.joined", "0001.sandbox-beat.000009"}}, map[int]int64{1: 0}},
		{"an old listing", [][]string{{"0001.joined", "0001.beat.000007"}, nil}, map[int]int64{1: 0}},
		{"further steps", [][]string{{"0001.joined", "0001.beat.000007", "0001-1.joined", "0001-1.beat.000003",
			"0002-2.joined", "0003-1.joined", "0003-1.done", "0001.failed"}}, map[int]int64{8 + 1: 3, 16 + 2: 0}},
	} {
		r := NewMembership(8, NodeRange{}, true)
		var got map[int]int64
		for _, names := range tc.listings {
			shown := signal.DirSnapshot{Names: names}
			got = r.ExpectedPeers(shown.ParseListing(8))
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}
