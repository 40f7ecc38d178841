package roles_test

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/roles"
)

// TestLastProcess determines the last process of two nodes with two processes each.
func TestLastProcess(t *testing.T) {
	all := []roles.Process{{Rank: 0}, {Rank: 1}, {Rank: 2, Place: 1}, {Rank: 3, Place: 1}}
	type places = map[int]bool
	both, first := places{0: true, 1: true}, places{0: true}
	for _, tc := range []struct {
		name  string
		all   []roles.Process
		ended []int
		left  places
		want  int // -1: none
	}{
		{"all run", all, nil, both, -1},
		{"a node is done", all, nil, first, -1},
		{"a node is done, and one process of the other one", all, []int{0}, first, 1},
		{"three are reported", all, []int{0, 1, 2}, both, 3},
		{"a node is done and has reported it", all, []int{1, 2, 3}, first, 0},
		{"all have ended", all, []int{0, 1}, first, -1},
		{"one for each node", []roles.Process{{Rank: 0}, {Rank: 1, Place: 1}}, nil, places{1: true}, 1},
		{"the only process", all[:1], nil, both, -1},
	} {
		last, is := roles.Instance{Processes: tc.all}.LastProcess(tc.ended, tc.left)
		if is != (tc.want >= 0) || is && last.Rank != tc.want {
			t.Errorf("%s: rank %d, %t, want %d", tc.name, last.Rank, is, tc.want)
		}
	}
}
