package exec

import (
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
)

func TestSelectMembers(t *testing.T) {
	// Three nodes, and a further step on two of them, of which one daemon is lost.
	joined := (&signal.DirSnapshot{Names: []string{"0000.joined", "0001.joined", "0001-1.joined",
		"0002-1.joined"}}).ParseListing(3)
	selection := Selection{ID: launcher.Identity{Size: 3, Hosts: []string{"n0", "n1", "n2"},
		Host: "n0", Steps: []string{"judge"}}, Nodes: joined, Absent: []int{3 + 2}}
	everyone := selection
	everyone.Nodes = (&signal.DirSnapshot{Names: []string{"0000.joined", "0001.joined",
		"0002.joined", "0002-1.joined"}}).ParseListing(3)
	everyone.Absent = nil
	if got, err := everyone.SelectMembers([]string{AllNodes}); err != nil || !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("of all that have joined: got %v, %v", got, err)
	}
	if got, err := everyone.SelectMembers(WithSteps([]string{"1", "n2"})); err != nil ||
		!slices.Equal(got, []int{1, 2, 3 + 2}) {
		t.Errorf("with the steps of two nodes: got %v, %v", got, err)
	}
	for _, tc := range []struct {
		words string
		want  []int
		says  string
	}{
		{"head", []int{0}, ""},
		{"n1 0 n1", []int{0, 1}, ""},
		{"judge/n1", []int{3 + 1}, ""},
		{"judge/1 1", []int{1, 3 + 1}, ""},
		{"1/*", []int{1, 3 + 1}, ""},
		{"0/*", []int{0}, ""},
		{"n2", nil, "node 2 (n2) is not available"},
		{"judge/2", nil, "step judge of node 2 (n2) is not available"},
		{"train/2", nil, `there is no step "train": the steps are judge`},
		{"judge/n3", nil, `there is no node "n3"`},
		{"all", nil, "n2 have not joined yet"},
		{"", nil, "no node is named"},
	} {
		got, err := selection.SelectMembers(strings.Fields(tc.words))
		if !slices.Equal(got, tc.want) || (err == nil) != (tc.says == "") || err != nil &&
			!strings.HasPrefix(err.Error(), tc.says) {
			t.Errorf("%q: got %v, %v; want %v, %s", tc.words, got, err, tc.want, tc.says)
		}
	}
	selection.MayLackNodes = true
	if got, err := selection.SelectMembers([]string{AllNodes + StepsSuffix}); err != nil ||
		!slices.Equal(got, []int{0, 1, 3 + 1}) {
		t.Errorf("got %v, %v", got, err)
	}
}
