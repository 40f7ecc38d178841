package launcher

import (
	"strings"
	"testing"
)

func TestRankNamed(t *testing.T) {
	hosts := []string{"n0", "7", "1", "two", "two", "", "n6", "99"}
	for _, tc := range []struct {
		word string
		want int // -1: none
		says string
	}{
		{"0", 0, ""},
		{"n6", 6, ""},
		{"7", 7, ""}, // not the host of that name
		{"1", 1, ""},
		{"99", 7, ""}, // 99 is not a node number
		{"007", 7, ""},
		{"two", -1, "two has 2 daemons: give the number, one of [3 4]"},
		{"", -1, "give a number of 0 to 7, or a host"},
		{"8", -1, `there is no node "8": give a number of 0 to 7, or a host`},
		{"-1", -1, "there is no node"},
		{"n5", -1, "there is no node"},
	} {
		got, err := FindNode(tc.word, len(hosts), func(rank int) string { return hosts[rank] })
		if (err == nil) != (tc.want >= 0) || err == nil && got != tc.want || err != nil &&
			!strings.Contains(err.Error(), tc.says) {
			t.Errorf("%q is node %d, want %d: %v", tc.word, got, tc.want, err)
		}
	}
}
