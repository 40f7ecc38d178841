package signal

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// ofNode returns the information in the name of a state of a node itself.
func ofNode(node int, state record.State, number int64) *StateName {
	return &StateName{Member: node, Instance: NoInstance, State: state, Number: number}
}

func ofInstance(node, instance, generation int, state record.State, number int64) *StateName {
	return &StateName{node, instance, generation, state, number}
}

func TestParseStateName(t *testing.T) {
	for _, tc := range []struct {
		names string // separated by spaces
		size  int    // 0: unknown
		want  *StateName
	}{
		{"0007.up", 0, ofNode(7, "up", 0)},
		{"0007.up", 8, ofNode(7, "up", 0)},
		{"00012.sandbox-failed", 0, ofNode(12, record.StateSandboxFailed, 0)},
		{"0007.settled", 0, ofNode(7, "settled", 0)}, // of a later version
		{"0007.beat.000123", 8, ofNode(7, record.StateHeartbeat, 123)},
		{"0007.event.000000", 8, ofNode(7, record.StateEvent, 0)},
		{"0007.checked", 8, ofNode(7, record.StateChecked, 0)},
		{"0007.checked.123456789012", 8, ofNode(7, record.StateChecked, 123456789012)},
		{"0007-1.up", 8, ofNode(8+7, "up", 0)},
		{"0007.i0042.g0.ready", 64, ofInstance(7, 42, 0, "ready", 0)},
		{"0007.i0042.g0.ready", 0, ofInstance(7, 42, 0, "ready", 0)},
		{"0007.i12345.g10.ready.000004", 64, ofInstance(7, 12345, 10, "ready", 4)},
		{"0007.i0042.g0.step-3.020000", 64, ofInstance(7, 42, 0, "step-3", 20000)},
		// Names of no node, or of another width.
		{" 0007 0007. .up 7.up +007.up -007.up 99999999999999999999.up abort.0007 latest 0007-1.up", 0, nil},
		{"0008.up 00007.up 0007-0.up 0007-01.up 007-1.up 0007-x.up -1.up 0007-65536.up 0007-1", 8, nil},
		{"0007.up", 1_000_000, nil},
		{"0099.i0000.g0.ready", 64, nil},
		// Wrong numbers.
		{"0007.checked.x 0007.event 0007.beat 0007.up.000001 0007.beat.x 0007.beat.-1 0007.beat.000001.2", 0, nil},
		{"0007.beat.9223372036854775808 0007.beat.1 0007.beat.0000001 0007.beat.+00001", 0, nil},
		{"0007.i0042.g0.ready.000000 0007.i0042.g0.ready.00001 0007.i0042.g0.ready.000001.x " +
			"0007.i0042.g0.idle", 64, nil},
		// Wrong instances and generations.
		{"0007.i42.g0.ready 0007.i00042.g0.ready 0007.i0042.g00.ready 0007.i0042.ready 0007.i0042.g0.", 64, nil},
		{"0007.0042.g0.ready 7.i0042.g0.ready", 64, nil},
	} {
		for name := range strings.SplitSeq(tc.names, " ") {
			got, ok := ParseStateName(name, tc.size)
			if tc.want == nil {
				tc.want = &StateName{}
			}
			if ok != (tc.want.State != "") || got != *tc.want {
				t.Errorf("%q of %d nodes is %+v, %v, want %+v", name, tc.size, got, ok, *tc.want)
			}
		}
	}
	for want, mark := range map[string]record.InstanceMark{
		"0007.i0042.g0.ready":        {Node: 7, Instance: 42, State: record.InstanceReady},
		"0007.i0042.g3.ready.000004": {Node: 7, Instance: 42, Generation: 3, State: record.InstanceReady, Change: 4},
	} {
		if got := InstanceName(mark, 64); got != want {
			t.Errorf("%+v is %s, want %s", mark, got, want)
		}
	}
}

// TestNodeSteps lists the newest steps and the idle nodes of a run, and of generations of instances.
func TestNodeSteps(t *testing.T) {
	l := newListing([]string{
		StepName(NodeStep{0, NoInstance, 0, -1, 1.25}, 4), StepName(NodeStep{1, NoInstance, 0, 12, 1200}, 4),
		"0001.step-13.1199000", "0002.step-7.005000", "0002.step-6.005000",
		"0003.step", "0003.step-.000001", "0003.step-01.000001", "0003.step-x.000001", "0007.step.000001",
		"0003.joined", "0001.i0002.g0.ready", "0003.i0002.g1.exited",
		"0001.i0002.g0.step-3.020000", "0001.i0002.g0.step-4.019500", // one could not be removed
		"0003.i0002.g1.step.007000", "0003.i0002.g0.step.900000",
		StepName(NodeStep{2, 0, 3, 12, 1e15}, 4),
		IdleName(0, 4, NoInstance, 0, 1), "0000.idle.000002", "0002.idle.000001",
		"0003.idle.000002", "0003.idle.000001", "0003.idle.000003",
		"0003.i0002.g1.idle.000001", "0002.i0002.g1.idle.000001", "0002.i0002.g1.idle.000002",
		"0002.i0002.g1.idle.1", "0002.i0002.g1.idle", "9999.i0002.g1.idle.000001", // wrong
		IdleName(0, 4, 7, 2, 3),
	}, 4, 1, time.Time{})
	want := []NodeStep{
		{0, NoInstance, 0, -1, 1.25}, {1, NoInstance, 0, 12, 1200}, {2, NoInstance, 0, 6, 5},
		{2, 0, 3, 12, 1e15}, {1, 2, 0, 3, 20}, {3, 2, 1, -1, 7},
	}
	got := l.NodeSteps()
	slices.SortFunc(got, func(a, b NodeStep) int { return 10*(a.Instance-b.Instance) + a.Node - b.Node })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, tc := range []struct {
		instance, generation int
		idle                 []int
	}{{NoInstance, 0, []int{2, 3}}, {2, 1, []int{3}}, {2, 0, nil}, {7, 2, []int{0}}} {
		if got := l.IdleNodes(tc.instance, tc.generation); !slices.Equal(got, tc.idle) {
			t.Errorf("generation %d of %d is idle on %v, want %v", tc.generation, tc.instance, got, tc.idle)
		}
	}
	if len(l.Instances()) != 2 || l.Instances()[0].Node+l.Instances()[1].Node != 4 {
		t.Errorf("the instances are %+v", l.Instances())
	}
	if states := l.NodeStates(); !slices.Equal(states, []record.State{record.StateJoined}) {
		t.Errorf("the states are %v", states)
	}
}

// TestListingOfSteps lists the members of further job steps apart from those of the run's own.
func TestListingOfSteps(t *testing.T) {
	l := newListing([]string{
		"0003.joined", "0003-1.joined", "0001-2.joined", "0001-2.beat.000007", "0003-1.failed",
		"abort.0002-1", "abort.0001", "abort", "abort.", "abort.+001", "abort.0001.x", "about.0003",
		"0004-1.joined", "0003-0.joined",
	}, 4, 1, time.Unix(9, 0))
	if got := l.NodesIn(record.StateJoined); !slices.Equal(got, []int{3}) {
		t.Errorf("nodes: %v", got)
	}
	steps := l.OfSteps()
	if got := steps.NodesIn(record.StateJoined); !slices.Equal(got, []int{4 + 3, 8 + 1}) {
		t.Errorf("members: %v", got)
	}
	if got := steps.Heartbeats(); !maps.Equal(got, map[int]int64{8 + 1: 7}) {
		t.Errorf("heartbeats: %v", got)
	}
	if got := l.NodesWithAbort(); !slices.Equal(got, []int{1, 4 + 2}) {
		t.Errorf("aborts: %v", got)
	}
	isRight := l.IsIn(4+3, record.StateDone, record.StateFailed) && !l.IsIn(3, record.StateFailed)
	if !isRight || !l.IsIn(3, record.StateJoined) {
		t.Error("IsIn is wrong")
	}
	for member, want := range map[int]string{3: "0003.up", 4 + 3: "0003-1.up", 12: "0000-3.up"} {
		if got := NodeName(member, 4, record.StateServiceUp); got != want {
			t.Errorf("member %d is %s, want %s", member, got, want)
		}
	}
}

// FuzzNames builds names and parses them again.
func FuzzNames(f *testing.F) {
	states := []record.State{
		record.StateJoined, record.StateChecked, record.StateSandboxReady, record.StateServiceUp, record.StateFailed,
		record.StateSandboxFailed, record.StateHeartbeat, record.StateDone,
	}
	f.Fuzz(func(t *testing.T, someRank, someSize uint32, someState uint8, count int64) {
		size := 1 + int(someSize%(1<<31-1))
		node := int(someRank) % size
		state := states[int(someState)%len(states)]
		name := NodeName(node, size, state)
		if hasNumber(state) {
			count = max(count, 0)
			name = numberedName(node, size, state, count)
		} else {
			count = 0
		}
		if n, ok := ParseStateName(name, size); !ok || n != *ofNode(node, state, count) {
			t.Errorf("node %d of %d in %s, count %d, is %q, which is %+v, %t", node, size, state, count, name, n, ok)
		}
		aborted := AbortName(node, size)
		if l := newListing([]string{aborted, name}, size, 1,
			time.Time{}); !slices.Equal(l.NodesWithAbort(), []int{node}) {
			t.Errorf("the abort of node %d of %d is %q, which is %v", node, size, aborted, l.NodesWithAbort())
		}
		if n, ok := ParseStateName(aborted, 0); ok {
			t.Errorf("%q is a name of node %d, too", aborted, n.Member)
		}
		if node > 0 && NodeName(node-1, size, state) >= NodeName(node, size, state) {
			t.Errorf("%q does not sort by node", name)
		}
	})
}

func FuzzNodeName(f *testing.F) {
	f.Fuzz(func(t *testing.T, name string) {
		n, ok := ParseStateName(name, 0)
		if !ok {
			if n != (StateName{}) {
				t.Errorf("%q is refused, and yet %+v", name, n)
			}
			return
		}
		digits, _, _ := strings.Cut(name, ".")
		again := fmt.Sprintf("%0*d.", len(digits), n.Member)
		if n.Instance != NoInstance {
			again += fmt.Sprintf("i%04d.g%d.", n.Instance, n.Generation)
		}
		again += string(n.State)
		if again != name {
			again = addNumber(again, n.Number)
		}
		if again != name || n.Member < 0 || n.Number < 0 || n.Generation < 0 {
			t.Errorf("%q is %+v, which is the name %q", name, n, again)
		}
	})
}

func TestNames(t *testing.T) {
	for want, got := range map[string]string{
		"0007.joined":               NodeName(7, 8, record.StateJoined),
		"0000.up":                   NodeName(0, 1, record.StateServiceUp),
		"9999.up":                   NodeName(9999, 10000, record.StateServiceUp),
		"00007.up":                  NodeName(7, 10001, record.StateServiceUp),
		"000007.up":                 NodeName(7, 100_001, record.StateServiceUp),
		"0000000000000000007.up":    NodeName(7, math.MaxInt, record.StateServiceUp),
		"abort.0007":                AbortName(7, 8),
		"plan.0007":                 SeriesPlan.Name(7),
		"plan.12345":                SeriesPlan.Name(12345),
		"0007.up-2":                 NodeName(7, 8, ServiceUpState(2)),
		"worker-0007.log":           LogName("worker", 7, 8),
		"rank-0007.log":             RankLogName(7, 0),
		"rank-0007.g12.log":         RankLogName(7, 12),
		"0007.jsonl":                EventsName("daemon", 7, 8),
		"0007.sandbox-daemon.jsonl": EventsName("sandbox-daemon", 7, 8),
		"0007.beat.000123":          numberedName(7, 8, record.StateHeartbeat, 123),
		"0007.checked":              CheckedName(7, 8, 0),
		"0007.checked.123456789012": CheckedName(7, 8, 123456789012),
		"0007.event.000003":         EventName(7, 8, 3),
		"0007.beat.12345678":        numberedName(7, 8, record.StateHeartbeat, 12345678),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestParseLogName(t *testing.T) {
	for _, tc := range []struct {
		name, what string
		node       int
		ok         bool
	}{
		{"driver.log", "driver", -1, true},
		{"worker-0007.log", "worker", 7, true},
		{"sandbox-daemon-123456.log", "sandbox-daemon", 123456, true},
		{"my-service.log", "my-service", -1, true},
		{"rank-0007.g12.log", "rank", 7, true},
		{"judge-0007.g12.log", "judge-0007.g12", -1, true},
		{"worker-7.log", "worker-7", -1, true},
		{"notes.txt", "", 0, false},
		{".log", "", 0, false},
		{"<b>.log", "", 0, false},
		{"a b.log", "", 0, false},
		{"\u00e4.log", "", 0, false},
	} {
		if what, node, ok := ParseLogName(tc.name); ok != tc.ok || ok && (what != tc.what || node != tc.node) {
			t.Errorf("%s is of %q, node %d, %v", tc.name, what, node, ok)
		}
	}
}

func TestParseEventsName(t *testing.T) {
	for _, kind := range []string{"daemon", "sandbox-daemon"} {
		if node, got, ok := ParseEventsName(EventsName(kind, 7, 8)); node != 7 || got != kind || !ok {
			t.Errorf("%s is of node %d, %q, %v", EventsName(kind, 7, 8), node, got, ok)
		}
	}
	for _, name := range []string{"7.jsonl", "0007", "0007.", "0007..jsonl", "x.jsonl", ""} {
		if _, _, ok := ParseEventsName(name); ok {
			t.Errorf("%q is taken for a timeline", name)
		}
	}
}

func TestParseUp(t *testing.T) {
	for state, want := range map[record.State]int{
		"up": 0, "up-3": 3, "upper": -1, "up-": -1, "up-x": -1, "": -1, "joined": -1,
	} {
		got, ok := ParseServiceUpState(state)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q is up since %d, %v", state, got, ok)
		}
	}
}
