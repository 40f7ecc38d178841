package instances

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/roles"
)

// TestLastRank determines the last rank of two nodes with two ranks each.
func TestLastRank(t *testing.T) {
	all := []roles.Process{{Rank: 0}, {Rank: 1}, {Rank: 2, Place: 1}, {Rank: 3, Place: 1}}
	for _, tc := range []struct {
		name  string
		all   []roles.Process
		ended []int
		done  map[int]bool
		want  int // -1: none
	}{
		{"all run", all, nil, nil, -1},
		{"a node is done", all, nil, map[int]bool{1: true}, -1},
		{"a node is done, and one rank of the other one", all, []int{0}, map[int]bool{1: true}, 1},
		{"three ranks are reported", all, []int{0, 1, 2}, nil, 3},
		{"a node is done and has reported it", all, []int{1, 2, 3}, map[int]bool{1: true}, 0},
		{"all have ended", all, []int{0, 1}, map[int]bool{1: true}, -1},
		{"one for each node", []roles.Process{{Rank: 0}, {Rank: 1, Place: 1}}, nil,
			map[int]bool{0: true}, 1},
		{"the only rank", all[:1], nil, nil, -1},
	} {
		last, is := lastRank(tc.all, tc.ended, tc.done)
		if is != (tc.want >= 0) || is && last.Rank != tc.want {
			t.Errorf("%s: rank %d, %t, want %d", tc.name, last.Rank, is, tc.want)
		}
	}
}
