package planning_test

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/roles"
)

// TestRendezvousPort verifies that generations of an instance, and instances beside each other, meet at
// different ports at the end of the block, none of them busy if others are free.
func TestRendezvousPort(t *testing.T) {
	const first = 20000
	last := first + roles.BlockSize - 1
	var all []int
	for port := range roles.BlockSize {
		all = append(all, first+port)
	}
	for _, tc := range []struct {
		instance, generation int
		busy                 []int
		want                 int
	}{
		{0, 0, nil, last},
		{0, 1, nil, last - 1},
		{0, 7, nil, last - 7},
		{0, 8, nil, last},
		{1, 0, nil, last - 8},
		{15, 7, nil, last - 127},
		{16, 0, nil, last},
		{0, 0, []int{last}, last - 1},
		{0, 7, []int{last}, last - 1},
		{1, 0, []int{last}, last - 8},
		{1, 0, all, last},
	} {
		facts := roles.NodeFacts{FirstPort: first, BusyPorts: tc.busy}
		got := planning.RendezvousPort(facts, &roles.Instance{Number: tc.instance}, tc.generation)
		if got != tc.want {
			t.Errorf("instance %d, generation %d, %d busy ports: got %d, want %d",
				tc.instance, tc.generation, len(tc.busy), got, tc.want)
		}
	}
}
