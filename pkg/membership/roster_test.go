package membership

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestExcusedFailuresAreToldOnce verifies that an excused failure is in the verdict once, however
// many failures follow.
func TestExcusedFailuresAreToldOnce(t *testing.T) {
	const size, needed = 8, 3
	r := NewMembership(size, NodeRange{Min: needed, Max: 3}, true)
	var told []int
	for node := 1; node < size; node++ {
		seen := health.ObservedFailure{Failure: record.Failure{
			Header: record.Header{NodeIndex: node}, Kind: health.SetupFailed, Message: "it is ill",
		}}
		goesOn, _ := r.TolerateFailure(seen, strconv.Itoa)
		if want := size-node >= needed; goesOn != want {
			t.Fatalf("without node %d it goes on: %v", node, goesOn)
		}
		if goesOn {
			continue
		}
		for _, excused := range r.TakeExcused() {
			told = append(told, excused.NodeIndex)
		}
	}
	if len(told) != size-needed {
		t.Errorf("told of %v", told)
	}
}

// TestAbsent verifies the handling of a listing that is older than the one before: the head waits
// at the end for a node that was seen to have joined, although neither the node nor its failure is
// in the newest listing.
func TestAbsent(t *testing.T) {
	const size = 4
	joined := func(nodes ...int) signal.Listing {
		var shown signal.DirSnapshot
		for _, node := range nodes {
			shown.Names = append(shown.Names, signal.NodeName(node, size, record.StateJoined))
		}
		return shown.ParseListing(size)
	}
	r := NewMembership(size, NodeRange{Min: 2, Max: 2}, true)
	_ = r.ExpectedPeers(joined(0, 1, 2))
	r.frozen = true
	ill := record.Failure{Header: record.Header{NodeIndex: 2}, Kind: health.SetupFailed, Message: "it is ill"}
	if goesOn, _ := r.TolerateFailure(health.ObservedFailure{Failure: ill}, strconv.Itoa); !goesOn {
		t.Error("the job can't do without a spare")
	}
	if absent := r.AbsentNodes(joined(0, 1)); !slices.Equal(absent, []int{3}) {
		t.Errorf("absent are %v, where nodes 0 to 2 have joined, and node 2 has told that it is ill", absent)
	}
}

// TestFreezeMembers verifies that the members are fixed once, also if one of them is lost afterwards.
func TestFreezeMembers(t *testing.T) {
	r := NewMembership(3, NodeRange{}, true)
	_, changed := r.Members()
	lost := health.ObservedFailure{Failure: record.Failure{Kind: health.DaemonDied,
		LostNodes: []int{2}, Message: "it died"}}
	canLose := func([]int, bool) bool { return true }
	if r.FreezeMembers(make(chan struct{}), canLose) {
		t.Error("fixed although they have changed")
	}
	if !r.FreezeMembers(changed, canLose) {
		t.Fatal("not fixed")
	}
	if goesOn, _ := r.TolerateFailure(lost, strconv.Itoa); !goesOn || len(r.DroppedNodes()) != 1 {
		t.Fatal("the loss is not tolerated")
	}
	if !r.FreezeMembers(changed, nil) {
		t.Error("not fixed any more")
	}
	// The lost node runs again, and fails.
	for _, late := range []record.Failure{
		{Kind: health.CutOff, LostNodes: []int{2}, Message: "it was stopped"},
		{Kind: health.ServiceDied, Message: "its service died"},
	} {
		late.NodeIndex = 2
		if goesOn, news := r.TolerateFailure(health.ObservedFailure{Failure: late}, strconv.Itoa); !goesOn || news {
			t.Errorf("after its loss, %s: goes on: %t, news: %t", late.Message, goesOn, news)
		}
	}
}

// TestLoseAtEnd verifies that the roles learn of losses at the end, which are no failures any more.
func TestLoseAtEnd(t *testing.T) {
	r := NewMembership(3, NodeRange{}, true)
	r.LoseAtEnd([]int{1}) // a run without roles
	var lost []int
	_, changed := r.Members()
	r.FreezeMembers(changed, func(nodes []int, silent bool) bool {
		if silent {
			t.Error("the processes of a node that is lost at the end are awaited")
		}
		lost = append(lost, nodes...)
		return true
	})
	r.LoseAtEnd(nil)
	r.LoseAtEnd([]int{2})
	if !slices.Equal(lost, []int{2}) || len(r.DroppedNodes()) > 0 {
		t.Errorf("the roles have lost %v, and %v are dropped", lost, r.DroppedNodes())
	}
}

// TestNextPlan verifies that the first plan of a team has the number of its generation, and that no number
// is used twice.
func TestNextPlan(t *testing.T) {
	fixed, spared := NewMembership(3, NodeRange{}, true), NewMembership(3, NodeRange{Min: 2, Max: 2}, true)
	spared.ApplyTeam(&Team{Generation: 2, Members: []Member{{NodeIndex: 0}, {NodeIndex: 2}}})
	for _, tc := range []struct {
		of           *Membership
		newest, want int
	}{{fixed, -1, 0}, {fixed, 0, 1}, {spared, -1, 2}, {spared, 0, 2}, {spared, 2, 3}} {
		if got := tc.of.NextPlan(tc.newest); got != tc.want {
			t.Errorf("plan %d follows %d, not %d", got, tc.newest, tc.want)
		}
	}
}

// TestFirstChoiceAwaitsLink verifies that the first choice waits a moment for the link of a node
// that would be preferred, that the head must poll when it comes, and that nothing waits otherwise.
func TestFirstChoiceAwaitsLink(t *testing.T) {
	began := time.Now()
	ready := []int{0, 1, 2}
	for _, tc := range []struct {
		name     string
		unlinked []int
		waits    bool
		want     []int // the members after the moment
	}{
		{"all links are there", nil, false, []int{0, 1}},
		{"one is missing", []int{1}, true, []int{0, 2}},
		{"that of a spare is missing", []int{2}, false, []int{0, 1}},
		{"no node has one", []int{1, 2}, false, []int{0, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := NewMembership(3, NodeRange{Min: 2, Max: 2}, true)
			next := func(unlinked []int, after time.Duration) []int {
				rec := r.NextTeam(ready, nodeSet(unlinked), began.Add(after), time.Minute)
				if rec == nil {
					return nil
				}
				var nodes []int
				for _, member := range rec.Members {
					nodes = append(nodes, member.NodeIndex)
				}
				return nodes
			}
			first := next(tc.unlinked, 0)
			if waits := r.AwaitsLink(); (first == nil) != tc.waits || waits != tc.waits {
				t.Errorf("the first choice is %v, and it waits for a link: %t", first, waits)
			}
			linked := next(nil, time.Millisecond)
			if !slices.Equal(linked, []int{0, 1}) || r.AwaitsLink() {
				t.Errorf("with all links the choice is %v", linked)
			}
			last := next(tc.unlinked, firstChoiceDelay)
			if !slices.Equal(last, tc.want) || r.AwaitsLink() {
				t.Errorf("the last choice is %v, not %v", last, tc.want)
			}
		})
	}
}
