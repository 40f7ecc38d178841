package framework

import "testing"

func TestLeastMemory(t *testing.T) {
	const gib = 1 << 30
	for name, tc := range map[string]struct{ all, cgroup, launcher, want int64 }{
		"nothing is known":            {64 * gib, 0, 0, 0},
		"a cgroup":                    {64 * gib, 8 * gib, 0, 8 * gib},
		"a launcher without a cgroup": {64 * gib, 0, 500 << 20, 500 << 20},
		"the launcher grants more":    {64 * gib, 8 * gib, 16 * gib, 8 * gib},
		"the step has less":           {64 * gib, 8 * gib, 4 * gib, 4 * gib},
		"all of the node":             {64 * gib, 64 * gib, 96 * gib, 0},
	} {
		if got := lowestLimit(tc.all, tc.cgroup, tc.launcher); got != tc.want {
			t.Errorf("%s: it is %d, want %d", name, got, tc.want)
		}
	}
}
