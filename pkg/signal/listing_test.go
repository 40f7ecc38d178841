package signal

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestListing(t *testing.T) {
	l := newListing([]string{
		"0010.up", "0002.up", "0000.joined", "0002.joined", "0001.up", "0001.up", "notes.txt",
		"0001.beat.000010", "0001.beat.000009", "0002.beat.000003", "0002.sandbox-beat.000007", "0003.beat",
		"00004.up", "0011.up", "0011.beat.000001", "abort.0003", "abort.0001", "abort.0001", "abort.x",
		SlotsName(0, 11, 3), SlotsName(2, 11, 128), SlotsName(3, 11, 0), "0001.slots", "0017.slots.000004",
		"0002.checked.000005", "0000.checked", "0001.checked.77",
		"0001.checked.000077", "0001.checked.000077", "0003.checked.000077", "0019.checked.000077",
		"0002.event.000002", "0002.event.000001", "0002.event.000002", "0001.event.000001",
	}, 11, 3, time.Now())
	for name, sets := range map[string]struct{ want, got any }{
		"up":             {[]int{1, 2, 10}, l.NodesIn(record.StateServiceUp)},
		"with a beat":    {[]int{1, 2}, l.NodesIn(record.StateHeartbeat)},
		"done":           {[]int(nil), l.NodesIn(record.StateDone)},
		"not up":         {[]int{0, 3}, l.NodesNotIn(record.StateServiceUp, 4)},
		"not joined":     {[]int{1}, l.NodesNotIn(record.StateJoined, 3)},
		"without a beat": {[]int{0, 3}, l.NodesNotIn(record.StateHeartbeat, 4)},
		"beats":          {map[int]int64{1: 10, 2: 3}, l.Heartbeats()},
		"aborts":         {[]int{1, 3}, l.NodesWithAbort()},
		"slots":          {map[int]int{0: 3, 2: 128, 3: 0}, l.SlotCounts()},
		"without slots":  {[]int{1}, l.NodesNotIn(record.StateSlots, 4)},
		"checked":        {[]int{0, 1, 2, 3}, l.NodesIn(record.StateChecked)},
		"not checked":    {[]int{4}, l.NodesNotIn(record.StateChecked, 5)},
		"kinds":          {map[int64][]int{0: {0}, 5: {2}, 77: {1, 3}}, l.NodesByKind()},
		"events":         {map[int][]int{1: {1}, 2: {1, 2}}, l.EventNumbers()},
	} {
		if diff := cmp.Diff(sets.want, sets.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if !l.HasName("notes.txt") || !l.HasName("0011.up") || l.HasName("notes") {
		t.Errorf("has: %v", l.names)
	}
}

func TestNewestOfSeries(t *testing.T) {
	for _, tc := range []struct {
		series Series
		names  []string
		want   int
	}{
		{SeriesPlan, []string{"job", "go", "abort.0003", "0000.beat.000003"}, -1},
		{SeriesPlan, []string{"job", "plan.0000"}, 0},
		{SeriesPlan, []string{"plan.0002", "plan.0010", "plan.0001"}, 10}, // in any order
		{SeriesPlan, []string{"plan", "plan.", "plan.x", "plan.1", "plan.0001.0002", "splan.0001"}, -1},
		{SeriesProgress, []string{SeriesProgress.Name(3), SeriesProgress.Name(12), "progress", "team.0099"}, 12},
		{SeriesPlan, []string{"plan.0000", "plan.0001", "live.000012", "start.judge", "end.1"}, 1},
		{SeriesLive, []string{"plan.0000", "live.000012", "start.judge"}, 12},
	} {
		if got := newListing(tc.names, 4, 1, time.Now()).Newest(tc.series); got != tc.want {
			t.Errorf("the newest %s of %v is %d, not %d", tc.series, tc.names, got, tc.want)
		}
	}
}

func TestListingWidth(t *testing.T) {
	for size, want := range map[int][]int{10_000: {3}, 10_001: {4}, 0: nil} {
		l := newListing([]string{"00004.up", "0003.up", "000005.up"}, size, 1, time.Now())
		if got := l.NodesIn(record.StateServiceUp); !slices.Equal(got, want) {
			t.Errorf("of %d nodes: got %v, want %v", size, got, want)
		}
	}
	var l Listing
	missing := l.NodesNotIn(record.StateServiceUp, 2)
	if !slices.Equal(missing, []int{0, 1}) || l.HasName("job") || l.NodesWithAbort() != nil {
		t.Errorf("an empty listing shows something: %v", missing)
	}
}

// TestListingAnswersAreTheCallers verifies that callers may append to the returned slices, sort
// them and change their elements.
func TestListingAnswersAreTheCallers(t *testing.T) {
	l := newListing([]string{"0001.up", "0000.up", "0001.beat.000002", "abort.0001"}, 2, 1, time.Now())
	for range 2 {
		for _, answer := range [][]int{
			l.NodesIn(record.StateServiceUp), l.NodesIn(record.StateHeartbeat), l.NodesWithAbort(),
		} {
			if at := len(answer) - 1; answer[at] != 1 {
				t.Fatalf("got %v", answer)
			}
			clear(append(answer, 7))
			clear(answer)
		}
		beats := l.Heartbeats()
		if beats[1] != 2 {
			t.Fatalf("got %v", beats)
		}
		clear(beats)
	}
}

// nodesNames returns the names in [NodesDir] of a run of size nodes, each of which has joined, is
// up and sends heartbeats, in random order.
func nodesNames(size int) []string {
	var names []string
	for node := range size {
		names = append(names, NodeName(node, size, record.StateJoined), NodeName(node, size, record.StateServiceUp),
			numberedName(node, size, record.StateHeartbeat, 1000))
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// BenchmarkListing measures the processing of the names that a poll has shown: the listing itself
// and the queries of the head for [NodesDir], or of a worker for [ControlDir].
func BenchmarkListing(b *testing.B) {
	for _, size := range []int{1024, 4096} {
		b.Run("head-"+strconv.Itoa(size), func(b *testing.B) {
			shown := nodesNames(size)
			names := make([]string, len(shown))
			b.ReportAllocs()
			for b.Loop() {
				copy(names, shown)
				l := newListing(names, size, 1, time.Time{})
				failed := len(l.NodesIn(record.StateFailed)) + len(l.NodesIn(record.StateSandboxFailed))
				beats, joined := l.Heartbeats(), l.NodesIn(record.StateJoined)
				failed += len(l.NodesIn(record.StateDone)) + len(l.NodesIn(record.StateFailed)) +
					len(l.NodesNotIn(record.StateServiceUp, size))
				if failed != 0 || len(beats) != size || len(joined) != size {
					b.Fatal(failed, len(beats), len(joined))
				}
			}
		})
	}
	b.Run("worker", func(b *testing.B) {
		shown := []string{NameJob, NameHead, numberedName(0, 4096, record.StateHeartbeat, 1000), NameGateOpen}
		names := make([]string, len(shown))
		b.ReportAllocs()
		for b.Loop() {
			copy(names, shown)
			l := newListing(names, 4096, 1, time.Time{})
			isWrong := l.NodesWithAbort() != nil || l.HasName(NameOrderlyEnd) || !l.HasName(NameHead)
			if l.Heartbeats()[0] != 1000 || isWrong {
				b.Fatal(names)
			}
		}
	})
}

func TestWithout(t *testing.T) {
	for _, tc := range []struct{ nodes, others, want []int }{
		{nil, []int{1}, nil},
		{[]int{0, 1}, nil, []int{0, 1}},
		{[]int{0, 1, 5}, []int{1, 2}, []int{0, 5}},
		{[]int{3}, []int{3}, []int{}},
	} {
		if got := WithoutNodes(tc.nodes, tc.others); !slices.Equal(got, tc.want) {
			t.Errorf("%v without %v are %v, not %v", tc.nodes, tc.others, got, tc.want)
		}
	}
}
