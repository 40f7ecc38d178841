package membership

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestParseBounds(t *testing.T) {
	for _, tc := range []struct {
		text string
		want NodeRange
		back string
	}{
		{"4", NodeRange{4, 4}, "4"},
		{"4:6", NodeRange{4, 6}, "4:6"},
		{"4:4", NodeRange{4, 4}, "4"},
		{"1:2147483647", NodeRange{1, 1<<31 - 1}, "1:2147483647"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			if got, err := ParseNodeRange(tc.text); err != nil || got != tc.want || got.String() != tc.back {
				t.Errorf("got %v (%v)", got, err)
			}
		})
	}
	for _, text := range []string{"", "0", "-1", "4:", ":4", "6:4", "0:4", "4:6:8", "a", "4-6", "4294967297"} {
		t.Run("not "+text, func(t *testing.T) {
			if got, err := ParseNodeRange(text); err == nil {
				t.Errorf("it is read as %v", got)
			}
		})
	}
}

func TestBoundsOfLaunch(t *testing.T) {
	for _, tc := range []struct {
		name   string
		bounds NodeRange
		size   int
		want   NodeRange
		spares bool
	}{
		{"not told", NodeRange{}, 4, NodeRange{4, 4}, false},
		{"all there are", NodeRange{4, 4}, 4, NodeRange{4, 4}, false},
		{"fewer than there are", NodeRange{4, 4}, 6, NodeRange{4, 4}, true},
		{"as many as come", NodeRange{4, 6}, 6, NodeRange{4, 6}, true},
		{"no more than there are", NodeRange{4, 64}, 6, NodeRange{4, 6}, true},
		{"the least is all there are", NodeRange{4, 64}, 4, NodeRange{4, 4}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spares := NewMembership(tc.size, tc.bounds, true).HasSpares()
			if got := tc.bounds.ForSize(tc.size); got != tc.want || spares != tc.spares {
				t.Errorf("got %v, spares %v", got, spares)
			}
		})
	}
}

func nodeSet(nodes []int) map[int]bool {
	set := make(map[int]bool)
	for _, node := range nodes {
		set[node] = true
	}
	return set
}

// choice is a choice of the members, and what it should be.
type choice struct {
	name           string
	size           int // 0: 4
	bounds         NodeRange
	ready          []int // nil with size 0: all
	gone, unlinked []int
	lost, suspect  []int // by an earlier attempt
	idle, settled  bool
	acceptMinimum  bool
	team           []int // the present members
	want           []int
	impossible     bool
}

func (c choice) check(t *testing.T) {
	if c.size == 0 {
		c.size = 4
		if c.ready == nil {
			c.ready = []int{0, 1, 2, 3}
		}
	}
	m := teamSelection{
		size: c.size, bounds: c.bounds, ready: c.ready, unlinked: nodeSet(c.unlinked), idle: c.idle,
		acceptMinimum: c.acceptMinimum, settled: c.settled, members: c.team,
		gone: make(map[int]record.DroppedNode),
	}
	m.Lost, m.Suspect = c.lost, c.suspect
	for _, node := range c.gone {
		m.gone[node] = record.DroppedNode{NodeIndex: node}
	}
	before := slices.Clone(c.ready)
	if team, possible := m.chooseMembers(); !slices.Equal(team, c.want) || possible == c.impossible {
		t.Errorf("the team is %v, not %v; possible: %t", team, c.want, possible)
	}
	if !slices.Equal(before, c.ready) {
		t.Errorf("the caller's nodes were changed to %v", c.ready)
	}
}

// TestChoose verifies the choice of the members. The first choice does not wait for nodes that an
// earlier attempt has lost, unless they come back at once, nor for fewer nodes than the driver needs.
// Nodes that have failed repeatedly become members only if there are no others, except for the head.
// A node without a peer link comes after those that have one; its link is awaited for a moment, and
// nothing changes if no node has a link.
func TestChoose(t *testing.T) {
	for _, c := range []choice{
		{name: "nobody yet", size: 6, bounds: NodeRange{4, 4}},
		{name: "too few yet", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2}, acceptMinimum: true},
		{name: "as many as needed, in this moment", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 5}},
		{name: "as many as needed, and no others can come", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 5}, gone: []int{3, 4}, want: []int{0, 1, 2, 5}},
		{name: "as many as needed", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 3}, settled: true, want: []int{0, 1, 2, 3}},
		{name: "those that came", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 2, 4, 5}, settled: true, want: []int{0, 2, 4, 5}},
		{name: "the lowest of more", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 4, 5}, settled: true, want: []int{0, 1, 2, 4}},
		{name: "not without the head", size: 6, bounds: NodeRange{4, 4}, ready: []int{1, 2, 3, 4, 5}, acceptMinimum: true, settled: true},
		{name: "settled, and one is gone since", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 3}, gone: []int{2}, settled: true},
		{name: "more may come", size: 6, bounds: NodeRange{4, 6}, ready: []int{0, 1, 2, 3}},
		{name: "more have not come for long", size: 6, bounds: NodeRange{4, 6}, ready: []int{0, 1, 2, 3}, acceptMinimum: true, want: []int{0, 1, 2, 3}},
		{name: "more can't come", size: 6, bounds: NodeRange{4, 6}, ready: []int{0, 1, 2, 3}, gone: []int{4, 5}, want: []int{0, 1, 2, 3}},
		{name: "settled, and one is gone since, of as many as may", size: 6, bounds: NodeRange{2, 4}, ready: []int{0, 1, 2, 3}, gone: []int{2}, settled: true},
		{name: "as many as it may get", size: 6, bounds: NodeRange{4, 5}, ready: []int{0, 1, 2, 3, 4, 5}, want: []int{0, 1, 2, 3, 4}},
		{name: "gone after it was ready", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 3, 4}, gone: []int{2}, settled: true, want: []int{0, 1, 3, 4}},
		{name: "gone, and too few yet", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 3}, gone: []int{2}, acceptMinimum: true},
		{name: "too few are left", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2}, gone: []int{3, 4, 5}, impossible: true},
		{name: "the head is gone", size: 6, bounds: NodeRange{1, 6}, ready: []int{1, 2}, gone: []int{0}, impossible: true},

		{name: "all is well", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 3, 4}, team: []int{0, 1, 2, 3}, want: []int{0, 1, 2, 3}},
		{name: "who comes late does not enlarge it", size: 6, bounds: NodeRange{4, 6}, ready: []int{0, 1, 2, 3, 4}, team: []int{0, 1, 2, 3}, want: []int{0, 1, 2, 3}},
		{name: "a spare takes the place", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 3, 4, 5}, gone: []int{1}, team: []int{0, 1, 2, 3}, want: []int{0, 4, 2, 3}},
		{name: "two places", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 3, 4, 5}, gone: []int{1, 3}, team: []int{0, 1, 2, 3}, want: []int{0, 4, 2, 5}},
		{name: "the place of one who came in for another", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 3, 4, 5}, gone: []int{1, 4}, team: []int{0, 4, 2, 3}, want: []int{0, 5, 2, 3}},
		{name: "a spare that is gone too", size: 6, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 3, 4, 5}, gone: []int{1, 4}, team: []int{0, 1, 2, 3}, want: []int{0, 5, 2, 3}},
		{name: "a spare that may yet come", size: 5, bounds: NodeRange{4, 4}, ready: []int{0, 1, 2, 3}, gone: []int{1}, team: []int{0, 1, 2, 3}, want: []int{0, 1, 2, 3}},
		{name: "it shrinks, and the last moves up", size: 4, bounds: NodeRange{2, 4}, ready: []int{0, 1, 2, 3}, gone: []int{1}, team: []int{0, 1, 2, 3}, want: []int{0, 3, 2}},
		{name: "it shrinks by the last", size: 4, bounds: NodeRange{2, 4}, ready: []int{0, 1, 2, 3}, gone: []int{3}, team: []int{0, 1, 2, 3}, want: []int{0, 1, 2}},
		{name: "it shrinks by two at the end", size: 4, bounds: NodeRange{2, 4}, ready: []int{0, 1, 2, 3}, gone: []int{2, 3}, team: []int{0, 1, 2, 3}, want: []int{0, 1}},
		{name: "a spare first, then it shrinks", size: 5, bounds: NodeRange{2, 4}, ready: []int{0, 1, 2, 3, 4}, gone: []int{1, 2}, team: []int{0, 1, 2, 3}, want: []int{0, 4, 3}},
		{name: "no smaller than needed", size: 4, bounds: NodeRange{3, 4}, ready: []int{0, 1, 2, 3}, gone: []int{1, 2}, team: []int{0, 1, 2, 3}, want: []int{0, 1, 2, 3}, impossible: true},
		{name: "the head of a team is gone", size: 4, bounds: NodeRange{1, 4}, ready: []int{0, 1}, gone: []int{0}, team: []int{0, 1}, want: []int{0, 1}, impossible: true},

		{name: "all others are ready", size: 4, bounds: NodeRange{3, 4}, ready: []int{0, 1, 3}, lost: []int{2}, idle: true, want: []int{0, 1, 3}},
		{name: "in this moment", size: 4, bounds: NodeRange{3, 4}, ready: []int{0, 1, 3}, lost: []int{2}},
		{name: "one that lives is missing", size: 4, bounds: NodeRange{2, 4}, ready: []int{0, 1}, lost: []int{2}, idle: true},
		{name: "it is back", size: 4, bounds: NodeRange{3, 4}, ready: []int{0, 1, 2, 3}, lost: []int{2}, want: []int{0, 1, 2, 3}},
		{name: "it is back, and one that lives is missing", size: 4, bounds: NodeRange{2, 4}, ready: []int{0, 1, 2}, lost: []int{2}, idle: true},
		{name: "too few are left", size: 4, bounds: NodeRange{3, 4}, ready: []int{0, 1}, lost: []int{2, 3}, idle: true},
		{name: "lost and another unfit", size: 4, bounds: NodeRange{2, 4}, ready: []int{0, 1}, gone: []int{3}, lost: []int{2}, idle: true, want: []int{0, 1}},
		{name: "lost, and gone since", size: 4, bounds: NodeRange{2, 4}, ready: []int{0, 1, 3}, gone: []int{2}, lost: []int{2}, idle: true, want: []int{0, 1, 3}},
		{name: "an exact number", size: 4, bounds: NodeRange{3, 3}, ready: []int{0, 1, 3}, lost: []int{2}, idle: true, want: []int{0, 1, 3}},

		{name: "a spare instead of it", size: 5, settled: true, bounds: NodeRange{3, 3}, ready: []int{0, 1, 2, 3, 4}, suspect: []int{1}, want: []int{0, 2, 3}},
		{name: "two", size: 5, settled: true, bounds: NodeRange{3, 3}, ready: []int{0, 1, 2, 3, 4}, suspect: []int{1, 3}, want: []int{0, 2, 4}},
		{name: "no other one", size: 5, settled: true, bounds: NodeRange{3, 3}, ready: []int{0, 1, 2}, gone: []int{3, 4}, suspect: []int{1}, want: []int{0, 1, 2}},
		{name: "as many as come", size: 5, settled: true, bounds: NodeRange{3, 5}, ready: []int{0, 1, 2, 3, 4}, suspect: []int{1}, want: []int{0, 1, 2, 3, 4}},
		{name: "the head", size: 5, settled: true, bounds: NodeRange{3, 3}, ready: []int{0, 1, 2, 3, 4}, suspect: []int{0}, want: []int{0, 1, 2}},
		{name: "it does not replace another", size: 5, settled: true, bounds: NodeRange{2, 2}, ready: []int{0, 1, 2, 3}, gone: []int{1}, suspect: []int{2}, team: []int{0, 1}, want: []int{0, 3}},
		{name: "it replaces another if nobody else can", size: 5, settled: true, bounds: NodeRange{2, 2}, ready: []int{0, 1, 2}, gone: []int{1, 3, 4}, suspect: []int{2}, team: []int{0, 1}, want: []int{0, 2}},

		{name: "all links are there", bounds: NodeRange{3, 3}, want: []int{0, 1, 2}},
		{name: "a link may come", bounds: NodeRange{3, 3}, unlinked: []int{1}},
		{
			name: "a spare instead of it", bounds: NodeRange{3, 3},
			unlinked: []int{1}, idle: true, want: []int{0, 2, 3},
		},
		{
			name: "it would be a spare anyway", bounds: NodeRange{3, 3},
			unlinked: []int{3}, want: []int{0, 1, 2},
		},
		{
			name: "no node has a link", bounds: NodeRange{3, 3},
			unlinked: []int{1, 2, 3}, want: []int{0, 1, 2},
		},
		{
			name: "it is needed", bounds: NodeRange{3, 3},
			ready: []int{0, 1, 2}, unlinked: []int{1}, gone: []int{3}, want: []int{0, 1, 2},
		},
		{
			name: "it is needed, and two are without", bounds: NodeRange{3, 3},
			unlinked: []int{1, 2}, idle: true, want: []int{0, 1, 3},
		},
		{
			name: "enough, and one with a link may come", bounds: NodeRange{3, 3},
			ready: []int{0, 1, 2}, unlinked: []int{1}, idle: true, settled: true,
		},
		{
			name: "enough with links", bounds: NodeRange{2, 2},
			ready: []int{0, 1, 2}, unlinked: []int{1}, idle: true, settled: true, want: []int{0, 2},
		},
		{
			name: "as many as come", bounds: NodeRange{2, 4},
			unlinked: []int{1}, want: []int{0, 1, 2, 3},
		},

		{
			name: "lost, and in this moment", bounds: NodeRange{3, 4},
			unlinked: []int{1}, lost: []int{1},
		},
		{
			name: "lost, and it stands by", bounds: NodeRange{3, 4},
			unlinked: []int{1}, lost: []int{1}, idle: true, want: []int{0, 2, 3},
		},
		{
			name: "lost, and its link is back", bounds: NodeRange{3, 4},
			lost: []int{1}, want: []int{0, 1, 2, 3},
		},
		{
			name: "lost, and needed", bounds: NodeRange{4, 4},
			unlinked: []int{1}, lost: []int{1}, want: []int{0, 1, 2, 3},
		},
		{
			name: "lost, and no link is there yet", bounds: NodeRange{3, 3},
			unlinked: []int{1, 2, 3}, lost: []int{1},
		},
		{
			name: "lost, and no node has a link", bounds: NodeRange{3, 3},
			unlinked: []int{1, 2, 3}, lost: []int{1}, idle: true, want: []int{0, 1, 2},
		},

		{
			name: "one that failed repeatedly is better", bounds: NodeRange{3, 3},
			unlinked: []int{1}, suspect: []int{2}, idle: true, want: []int{0, 2, 3},
		},
		{
			name: "both", bounds: NodeRange{2, 2},
			unlinked: []int{1, 2, 3}, suspect: []int{1}, idle: true, want: []int{0, 2},
		},

		{
			name: "it does not replace another", bounds: NodeRange{2, 2},
			unlinked: []int{2}, gone: []int{1}, team: []int{0, 1}, want: []int{0, 3},
		},
		{
			name: "it replaces another if nobody else can", bounds: NodeRange{2, 2},
			ready: []int{0, 1, 2}, unlinked: []int{2}, lost: []int{2}, gone: []int{1, 3},
			team: []int{0, 1}, want: []int{0, 2},
		},
		{
			name: "the team shrinks instead", bounds: NodeRange{2, 3},
			unlinked: []int{3}, lost: []int{3}, gone: []int{1},
			team: []int{0, 1, 2}, want: []int{0, 2},
		},
		{
			name: "its link is back", bounds: NodeRange{2, 3},
			lost: []int{3}, gone: []int{1}, team: []int{0, 1, 2}, want: []int{0, 3, 2},
		},
		{
			name: "a member has lost its link", bounds: NodeRange{3, 3},
			unlinked: []int{1}, team: []int{0, 1, 2}, want: []int{0, 1, 2},
		},
	} {
		t.Run(c.name, c.check)
	}
}

func TestSeated(t *testing.T) {
	old := []record.Member{{NodeIndex: 0}, {NodeIndex: 1}, {NodeIndex: 2, SinceGeneration: 1}}
	for _, tc := range []struct {
		name   string
		old    []record.Member
		team   []int
		ranked bool
		want   []record.Member
	}{
		{"the first", nil, []int{0, 3}, true, []record.Member{{NodeIndex: 0, SinceGeneration: 2}, {NodeIndex: 3, SinceGeneration: 2}}},
		{"another in one's place", old, []int{0, 4, 2}, true, []record.Member{{NodeIndex: 0}, {NodeIndex: 4, SinceGeneration: 2}, {NodeIndex: 2, SinceGeneration: 1}}},
		{"a smaller team is new to all", old, []int{0, 2}, true, []record.Member{{NodeIndex: 0, SinceGeneration: 2}, {NodeIndex: 2, SinceGeneration: 2}}},
		{"and not to those who are told nothing", old, []int{0, 2}, false, []record.Member{{NodeIndex: 0}, {NodeIndex: 2, SinceGeneration: 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, memberRecords(tc.old, tc.team, 2, tc.ranked)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
