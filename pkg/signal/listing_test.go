package signal

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/google/go-cmp/cmp"
)

func TestListing(t *testing.T) {
	const size = 11
	l := newListing([]string{
		"0010.up", "0002.up", "0000.joined", "0002.joined", "0001.up", "0001.up", "notes.txt",
		"0001.beat.000010", "0001.beat.000009", "0002.beat.000003", "0002.sandbox-beat.000007", "0003.beat",
		"00004.up", "0011.up", "0011.beat.000001", "abort.0003", "abort.0001", "abort.0001", "abort.x",
	}, size, 3, time.Now())
	if got := l.NodesIn(record.StateServiceUp); !slices.Equal(got, []int{1, 2, 10}) {
		t.Errorf("nodes up: %v", got)
	}
	if got := l.NodesIn(record.StateHeartbeat); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("nodes that beat: %v", got)
	}
	if got := l.NodesIn(record.StateDone); got != nil {
		t.Errorf("nodes done: %v", got)
	}
	if got := l.NodesNotIn(record.StateServiceUp, 4); !slices.Equal(got, []int{0, 3}) {
		t.Errorf("missing up: %v", got)
	}
	if got := l.NodesNotIn(record.StateJoined, 3); !slices.Equal(got, []int{1}) {
		t.Errorf("missing joined: %v", got)
	}
	if got := l.NodesNotIn(record.StateHeartbeat, 4); !slices.Equal(got, []int{0, 3}) {
		t.Errorf("missing a beat: %v", got)
	}
	if got := l.Heartbeats(record.StateHeartbeat); !maps.Equal(got, map[int]int64{1: 10, 2: 3}) {
		t.Errorf("beats: %v", got)
	}
	if got := l.Heartbeats(record.StateServiceUp); len(got) != 0 {
		t.Errorf("beats of a state that has none: %v", got)
	}
	if got := l.NodesWithAbort(); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("aborts: %v", got)
	}
	if !l.HasName("notes.txt") || !l.HasName("0011.up") || l.HasName("notes") {
		t.Errorf("has: %v", l.names)
	}
}

// TestListingOfSteps lists the members of further job steps apart from those of the run's own.
func TestListingOfSteps(t *testing.T) {
	l := newListing([]string{
		"0003.joined", "0003-1.joined", "0001-2.joined", "0001-2.beat.000007", "0003-1.failed", "abort.0002-1", "abort.0001",
		"0004-1.joined", "0003-0.joined", "0003-01.joined", "003-1.joined", "0003-x.joined", "-1.joined", "0003-1.", "0003-1", "0003-65536.joined",
	}, 4, 1, time.Unix(9, 0))
	if got := l.NodesIn(record.StateJoined); !slices.Equal(got, []int{3}) {
		t.Errorf("nodes: %v", got)
	}
	steps := l.OfSteps()
	if got := steps.NodesIn(record.StateJoined); !slices.Equal(got, []int{4 + 3, 8 + 1}) {
		t.Errorf("members: %v", got)
	}
	if got := steps.Heartbeats(record.StateHeartbeat); !maps.Equal(got, map[int]int64{8 + 1: 7}) {
		t.Errorf("heartbeats: %v", got)
	}
	if got := l.NodesWithAbort(); !slices.Equal(got, []int{1, 4 + 2}) {
		t.Errorf("aborts: %v", got)
	}
	if !l.IsIn(4+3, record.StateDone, record.StateFailed) || l.IsIn(3, record.StateFailed) || !l.IsIn(3, record.StateJoined) {
		t.Error("IsIn is wrong")
	}
	for member, want := range map[int]string{3: "0003.up", 4 + 3: "0003-1.up", 12: "0000-3.up"} {
		if got := NodeName(member, 4, record.StateServiceUp); got != want {
			t.Errorf("member %d is %s, want %s", member, got, want)
		}
	}
}

func TestListingKinds(t *testing.T) {
	l := newListing([]string{
		"0003.checked.77", "0001.checked.77", "0002.checked.5", "0000.checked", "0001.checked.77", "0009.checked.77",
		"0002.event.000002", "0002.event.000001", "0002.event.000002", "0001.event.000001", "0001.up",
	}, 5, 1, time.Now())
	if diff := cmp.Diff([]int{0, 1, 2, 3}, l.NodesIn(record.StateChecked)); diff != "" {
		t.Errorf("who is checked (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{4}, l.NodesNotIn(record.StateChecked, 5)); diff != "" {
		t.Errorf("who is not (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[int64][]int{0: {0}, 5: {2}, 77: {1, 3}}, l.NodesByKind()); diff != "" {
		t.Errorf("the kinds (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[int][]int{1: {1}, 2: {1, 2}}, l.EventNumbers()); diff != "" {
		t.Errorf("the events (-want +got):\n%s", diff)
	}
}

func TestListingSlots(t *testing.T) {
	l := newListing([]string{SlotsName(0, 4, 3), SlotsName(2, 4, 128), SlotsName(3, 4, 0), "0001.slots", "0007.slots.000004", "0001.joined"}, 4, 1, time.Now())
	if diff := cmp.Diff(map[int]int{0: 3, 2: 128, 3: 0}, l.SlotCounts()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{1}, l.NodesNotIn(record.StateSlots, 4)); diff != "" {
		t.Error(diff)
	}
}

func TestListingIdle(t *testing.T) {
	l := newListing([]string{IdleName(0, 4, 1), IdleName(0, 4, 2), IdleName(2, 4, 1), IdleName(3, 4, 2), IdleName(3, 4, 1), IdleName(3, 4, 3)}, 4, 1, time.Now())
	if diff := cmp.Diff([]int{2, 3}, l.IdleNodes()); diff != "" {
		t.Error(diff)
	}
}

func TestListingTeam(t *testing.T) {
	for _, tc := range []struct {
		name  string
		names []string
		want  int
	}{
		{"none", []string{"job", "go", "abort.0003", "0000.beat.000003"}, -1},
		{"the first", []string{"job", "team.0000"}, 0},
		{"the newest, in whatever order", []string{"team.0002", "team.0010", "team.0001"}, 10},
		{"what is none", []string{"team", "team.", "team.x", "team.1", "team.0001.0002", "steam.0001"}, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := newListing(tc.names, 4, 1, time.Now()).Newest(SeriesTeam); got != tc.want {
				t.Errorf("the newest team is %d, not %d", got, tc.want)
			}
		})
	}
}

func TestListingWidth(t *testing.T) {
	for _, tc := range []struct {
		name string
		size int
		want []int
	}{
		{"four digits", 10_000, []int{3}},
		{"five digits", 10_001, []int{4}},
		{"a run of nobody", 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newListing([]string{"00004.up", "0003.up", "000005.up"}, tc.size, 1, time.Now())
			if got := l.NodesIn(record.StateServiceUp); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestListingShowsNothing(t *testing.T) {
	var l Listing
	if got := l.NodesNotIn(record.StateServiceUp, 2); !slices.Equal(got, []int{0, 1}) || l.HasName("job") || l.NodesWithAbort() != nil {
		t.Errorf("an empty listing shows something: %v", got)
	}
}

// TestListingAnswersAreTheCallers verifies that callers may append to the returned slices, sort
// them and change their elements.
func TestListingAnswersAreTheCallers(t *testing.T) {
	names := []string{"0001.up", "0000.up", "0001.beat.000002", "abort.0001"}
	l := newListing(names, 2, 1, time.Now())
	for range 2 {
		for _, answer := range [][]int{l.NodesIn(record.StateServiceUp), l.NodesIn(record.StateHeartbeat), l.NodesWithAbort()} {
			if at := len(answer) - 1; answer[at] != 1 {
				t.Fatalf("got %v", answer)
			}
			clear(append(answer, 7))
			clear(answer)
		}
		beats := l.Heartbeats(record.StateHeartbeat)
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
		names = append(names, NodeName(node, size, record.StateJoined), NodeName(node, size, record.StateServiceUp), numberedName(node, size, record.StateHeartbeat, 1000))
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
				beats, joined := l.Heartbeats(record.StateHeartbeat), l.NodesIn(record.StateJoined)
				failed += len(l.NodesIn(record.StateDone)) + len(l.NodesIn(record.StateFailed))
				if failed != 0 || len(beats) != size || len(joined) != size || l.NodesNotIn(record.StateServiceUp, size) != nil {
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
			if l.Heartbeats(record.StateHeartbeat)[0] != 1000 || l.NodesWithAbort() != nil || l.HasName(NameOrderlyEnd) || !l.HasName(NameHead) {
				b.Fatal(names)
			}
		}
	})
}

func TestWithout(t *testing.T) {
	for _, tc := range []struct {
		name                string
		nodes, others, want []int
	}{
		{"none of none", nil, []int{1}, nil},
		{"all of some", []int{0, 1}, nil, []int{0, 1}},
		{"some", []int{0, 1, 5}, []int{1, 2}, []int{0, 5}},
		{"none of one", []int{3}, []int{3}, []int{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := WithoutNodes(tc.nodes, tc.others); !slices.Equal(got, tc.want) {
				t.Errorf("%v are left, not %v", got, tc.want)
			}
		})
	}
}

func TestNodeSteps(t *testing.T) {
	names := []string{
		StepName(0, 4, -1, 1.25), StepName(1, 4, 12, 1200), StepName(1, 4, 13, 1199), StepName(2, 4, 7, 5), StepName(2, 4, 6, 5),
		"0003.step", "0003.step-.000001", "0003.step-01.000001", "0003.step-x.000001", "0007.step.000001", "0003.joined",
	}
	l := newListing(names, 4, 1, time.Now())
	want := map[int]NodeStep{0: {-1, 1.25}, 1: {12, 1200}, 2: {6, 5}}
	if diff := cmp.Diff(want, l.NodeSteps()); diff != "" {
		t.Error(diff)
	}
	if states := l.NodeStates(); !slices.Equal(states, []record.State{record.StateJoined}) {
		t.Errorf("the states are %v", states)
	}
	control := newListing([]string{SeriesProgress.Name(3), SeriesProgress.Name(12), "progress", "team.0099", "progress.x"}, 4, 1, time.Now())
	if control.Newest(SeriesProgress) != 12 || l.Newest(SeriesProgress) != -1 {
		t.Errorf("the newest are %d and %d", control.Newest(SeriesProgress), l.Newest(SeriesProgress))
	}
}
