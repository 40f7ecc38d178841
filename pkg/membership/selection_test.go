package membership

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestParseNodeRange(t *testing.T) {
	for text, want := range map[string]NodeRange{
		"4": {4, 4}, "4:6": {4, 6}, "1:2147483647": {1, 1<<31 - 1},
	} {
		if got, err := ParseNodeRange(text); err != nil || got != want || got.String() != text {
			t.Errorf("%q is read as %v (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "4:", ":4", "6:4", "0:4", "4:6:8", "a", "4-6", "4294967297"} {
		if got, err := ParseNodeRange(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestNodeRangeForSize(t *testing.T) {
	for _, tc := range []struct {
		bounds NodeRange
		size   int
		want   NodeRange
		spares bool
	}{
		{NodeRange{}, 4, NodeRange{4, 4}, false},
		{NodeRange{4, 4}, 4, NodeRange{4, 4}, false},
		{NodeRange{4, 4}, 6, NodeRange{4, 4}, true},
		{NodeRange{4, 6}, 6, NodeRange{4, 6}, true},
		{NodeRange{4, 64}, 6, NodeRange{4, 6}, true},
		{NodeRange{4, 64}, 4, NodeRange{4, 4}, false},
	} {
		spares := NewMembership(tc.size, tc.bounds, true).HasSpares()
		if got := tc.bounds.ForSize(tc.size); got != tc.want || spares != tc.spares {
			t.Errorf("%+v: got %v, spares %v", tc, got, spares)
		}
	}
}

func nodeSet(nodes []int) map[int]bool {
	set := make(map[int]bool)
	for _, node := range nodes {
		set[node] = true
	}
	return set
}

// choice is a choice of the members, and what it should be. Nodes are given as digits.
type choice struct {
	name                   string
	of                     string // number of nodes of the launch, and bounds
	ready, gone, unlinked  string
	lost, suspect          string // by an earlier attempt
	idle, settled, minimum bool
	team                   string // the present members
	want                   string
	impossible             bool
}

func (c choice) check(t *testing.T) {
	m := teamSelection{
		ready: indices(c.ready), unlinked: nodeSet(indices(c.unlinked)), gone: make(map[int]record.DroppedNode),
		idle: c.idle, acceptMinimum: c.minimum, settled: c.settled, members: indices(c.team),
		EarlierAttempts: EarlierAttempts{Lost: indices(c.lost), Suspect: indices(c.suspect)},
	}
	if _, err := fmt.Sscanf(c.of, "%d %d:%d", &m.size, &m.bounds.Min, &m.bounds.Max); err != nil {
		t.Fatal(err)
	}
	for _, node := range indices(c.gone) {
		m.gone[node] = record.DroppedNode{NodeIndex: node}
	}
	if team, possible := m.chooseMembers(); !slices.Equal(team, indices(c.want)) || possible == c.impossible {
		t.Errorf("the team is %v, not %s; possible: %t", team, c.want, possible)
	}
	if !slices.Equal(m.ready, indices(c.ready)) {
		t.Errorf("the caller's nodes were changed to %v", m.ready)
	}
}

// TestChoose verifies the choice of the members. The first choice does not wait for nodes that an
// earlier attempt has lost, unless they come back at once, nor for fewer nodes than the driver needs.
// Nodes that have failed repeatedly become members only if there are no others, except for the head.
// A node without a peer link comes after those that have one; its link is awaited for a moment, and
// nothing changes if no node has a link.
func TestChoose(t *testing.T) {
	for _, c := range []choice{
		{name: "nobody yet", of: "6 4:4"},
		{name: "too few yet", of: "6 4:4", ready: "012", minimum: true},
		{name: "as many as needed, in this moment", of: "6 4:4", ready: "0125"},
		{name: "enough, and no others can come", of: "6 4:4", ready: "0125", gone: "34", want: "0125"},
		{name: "as many as needed", of: "6 4:4", ready: "0123", settled: true, want: "0123"},
		{name: "those that came", of: "6 4:4", ready: "0245", settled: true, want: "0245"},
		{name: "the lowest of more", of: "6 4:4", ready: "01245", settled: true, want: "0124"},
		{name: "not without the head", of: "6 4:4", ready: "12345", minimum: true, settled: true},
		{name: "settled, and one is gone since", of: "6 4:4", ready: "0123", gone: "2", settled: true},
		{name: "more may come", of: "6 4:6", ready: "0123"},
		{name: "more have not come for long", of: "6 4:6", ready: "0123", minimum: true, want: "0123"},
		{name: "more can't come", of: "6 4:6", ready: "0123", gone: "45", want: "0123"},
		{name: "settled, one of as many as may is gone", of: "6 2:4", ready: "0123", gone: "2", settled: true},
		{name: "as many as it may get", of: "6 4:5", ready: "012345", want: "01234"},
		{name: "gone after it was ready", of: "6 4:4", ready: "01234", gone: "2", settled: true, want: "0134"},
		{name: "gone, and too few yet", of: "6 4:4", ready: "0123", gone: "2", minimum: true},
		{name: "too few are left", of: "6 4:4", ready: "012", gone: "345", impossible: true},
		{name: "the head is gone", of: "6 1:6", ready: "12", gone: "0", impossible: true},

		{name: "all is well", of: "6 4:4", ready: "01234", team: "0123", want: "0123"},
		{name: "who comes late does not enlarge it", of: "6 4:6", ready: "01234", team: "0123", want: "0123"},
		{name: "a spare takes the place", of: "6 4:4", ready: "012345", gone: "1", team: "0123", want: "0423"},
		{name: "two places", of: "6 4:4", ready: "012345", gone: "13", team: "0123", want: "0425"},
		{name: "the place of a former spare", of: "6 4:4", ready: "012345", gone: "14", team: "0423", want: "0523"},
		{name: "a spare that is gone too", of: "6 4:4", ready: "012345", gone: "14", team: "0123", want: "0523"},
		{name: "a spare that may yet come", of: "5 4:4", ready: "0123", gone: "1", team: "0123", want: "0123"},
		{name: "it shrinks, and the last moves up", of: "4 2:4", ready: "0123", gone: "1", team: "0123", want: "032"},
		{name: "it shrinks by the last", of: "4 2:4", ready: "0123", gone: "3", team: "0123", want: "012"},
		{name: "it shrinks by two at the end", of: "4 2:4", ready: "0123", gone: "23", team: "0123", want: "01"},
		{name: "a spare first, then it shrinks", of: "5 2:4", ready: "01234", gone: "12", team: "0123", want: "043"},
		{name: "not smaller", of: "4 3:4", ready: "0123", gone: "12", team: "0123", want: "0123", impossible: true},
		{name: "the head is gone", of: "4 1:4", ready: "01", gone: "0", team: "01", want: "01", impossible: true},

		{name: "all others are ready", of: "4 3:4", ready: "013", lost: "2", idle: true, want: "013"},
		{name: "in this moment", of: "4 3:4", ready: "013", lost: "2"},
		{name: "one that lives is missing", of: "4 2:4", ready: "01", lost: "2", idle: true},
		{name: "it is back", of: "4 3:4", ready: "0123", lost: "2", want: "0123"},
		{name: "it is back, one that lives is missing", of: "4 2:4", ready: "012", lost: "2", idle: true},
		{name: "too few are left", of: "4 3:4", ready: "01", lost: "23", idle: true},
		{name: "lost and another unfit", of: "4 2:4", ready: "01", gone: "3", lost: "2", idle: true, want: "01"},
		{name: "lost, and gone since", of: "4 2:4", ready: "013", gone: "2", lost: "2", idle: true, want: "013"},
		{name: "an exact number", of: "4 3:3", ready: "013", lost: "2", idle: true, want: "013"},

		{name: "a spare instead of it", settled: true, of: "5 3:3", ready: "01234", suspect: "1", want: "023"},
		{name: "two", settled: true, of: "5 3:3", ready: "01234", suspect: "13", want: "024"},
		{name: "no other one", settled: true, of: "5 3:3", ready: "012", gone: "34", suspect: "1", want: "012"},
		{name: "as many as come", settled: true, of: "5 3:5", ready: "01234", suspect: "1", want: "01234"},
		{name: "the head", settled: true, of: "5 3:3", ready: "01234", suspect: "0", want: "012"},
		{name: "no replacement", settled: true, of: "5 2:2", ready: "0123", gone: "1", suspect: "2",
			team: "01", want: "03"},
		{name: "a replacement", settled: true, of: "5 2:2", ready: "012", gone: "134", suspect: "2",
			team: "01", want: "02"},

		{name: "all links are there", of: "4 3:3", ready: "0123", want: "012"},
		{name: "a link may come", of: "4 3:3", ready: "0123", unlinked: "1"},
		{name: "a spare instead of it", of: "4 3:3", ready: "0123", unlinked: "1", idle: true, want: "023"},
		{name: "it would be a spare anyway", of: "4 3:3", ready: "0123", unlinked: "3", want: "012"},
		{name: "no node has a link", of: "4 3:3", ready: "0123", unlinked: "123", want: "012"},
		{name: "it is needed", of: "4 3:3", ready: "012", unlinked: "1", gone: "3", want: "012"},
		{name: "it is needed, two lack it", of: "4 3:3", ready: "0123", unlinked: "12", idle: true, want: "013"},
		{name: "one with a link may come", of: "4 3:3", ready: "012", unlinked: "1", idle: true, settled: true},
		{name: "enough with links", of: "4 2:2", ready: "012", unlinked: "1", idle: true, settled: true, want: "02"},
		{name: "as many as come", of: "4 2:4", ready: "0123", unlinked: "1", want: "0123"},

		{name: "lost, and in this moment", of: "4 3:4", ready: "0123", unlinked: "1", lost: "1"},
		{name: "lost, and it stands by", of: "4 3:4", ready: "0123", unlinked: "1", lost: "1", idle: true, want: "023"},
		{name: "lost, and its link is back", of: "4 3:4", ready: "0123", lost: "1", want: "0123"},
		{name: "lost, and needed", of: "4 4:4", ready: "0123", unlinked: "1", lost: "1", want: "0123"},
		{name: "lost, and no link is there yet", of: "4 3:3", ready: "0123", unlinked: "123", lost: "1"},
		{name: "lost, and no links", of: "4 3:3", ready: "0123", unlinked: "123", lost: "1", idle: true, want: "012"},

		{name: "a suspect is better", of: "4 3:3", ready: "0123", unlinked: "1", suspect: "2", idle: true, want: "023"},
		{name: "both", of: "4 2:2", ready: "0123", unlinked: "123", suspect: "1", idle: true, want: "02"},

		{name: "no replacement", of: "4 2:2", ready: "0123", unlinked: "2", gone: "1", team: "01", want: "03"},
		{name: "a replacement", of: "4 2:2", ready: "012", unlinked: "2", lost: "2", gone: "13",
			team: "01", want: "02"},
		{name: "the team shrinks", of: "4 2:3", ready: "0123", unlinked: "3", lost: "3", gone: "1",
			team: "012", want: "02"},
		{name: "its link is back", of: "4 2:3", ready: "0123", lost: "3", gone: "1", team: "012", want: "032"},
		{name: "a member has lost its link", of: "4 3:3", ready: "0123", unlinked: "1", team: "012", want: "012"},
	} {
		t.Run(c.name, c.check)
	}
}

func TestMemberRecords(t *testing.T) {
	old := []Member{{NodeIndex: 0}, {NodeIndex: 1}, {NodeIndex: 2, SinceGeneration: 1}}
	for _, tc := range []struct {
		name   string
		old    []Member
		team   string
		ranked bool
		want   []Member
	}{
		{"the first", nil, "03", true,
			[]Member{{NodeIndex: 0, SinceGeneration: 2}, {NodeIndex: 3, SinceGeneration: 2}}},
		{"another in one's place", old, "042", true,
			[]Member{{NodeIndex: 0}, {NodeIndex: 4, SinceGeneration: 2}, {NodeIndex: 2, SinceGeneration: 1}}},
		{"a smaller team is new to all", old, "02", true,
			[]Member{{NodeIndex: 0, SinceGeneration: 2}, {NodeIndex: 2, SinceGeneration: 2}}},
		{"and not to those who are told nothing", old, "02", false,
			[]Member{{NodeIndex: 0}, {NodeIndex: 2, SinceGeneration: 1}}},
	} {
		if diff := cmp.Diff(tc.want, nextMembers(tc.old, indices(tc.team), 2, tc.ranked)); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}
