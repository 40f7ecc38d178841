package launcher

import (
	"testing"
)

func TestTaskCounts(t *testing.T) {
	for want, perNode := range map[string][]int{"2": {2}, "2(x3)": {2, 2, 2},
		"2(x3),1": {2, 2, 2, 1}, "1,2,1(x2)": {1, 2, 1, 1}} {
		if got := formatTaskCounts(perNode); got != want {
			t.Errorf("%v: %s, not %s", perNode, got, want)
		}
	}
}

func TestTasksOn(t *testing.T) {
	for node, want := range []int{2, 2, 2, 1, 3, 0} {
		if got := taskCountOf("2(x3),1,3", node); got != want {
			t.Errorf("node %d: %d, not %d", node, got, want)
		}
	}
	for _, text := range []string{"", "x", "(x", "(x3)", "-"} {
		if got := taskCountOf(text, 0); got != 0 {
			t.Errorf("%q: %d", text, got)
		}
	}
}
