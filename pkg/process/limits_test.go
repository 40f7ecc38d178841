package process

import (
	"strings"
	"testing"
)

// TestLackOfTasks verifies that the cgroup that leaves the fewest tasks counts, less those in use,
// in both cgroup versions.
func TestLackOfTasks(t *testing.T) {
	const (
		v2      = "0::/a/b\n"
		v2Mount = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
		v1      = "8:pids:/a/b\n0::/\n"
		v1Mount = "30 1 0:26 / /sys/fs/cgroup rw - cgroup cgroup rw,pids\n"
	)
	for _, tc := range []struct {
		name, groups, mounts string
		files                map[string]string
		says                 string
	}{
		{"no limit", v2, v2Mount, map[string]string{"a/b/pids.max": "max", "a/b/pids.current": "7"}, ""},
		{"enough", v2, v2Mount, map[string]string{"a/b/pids.max": "71", "a/b/pids.current": "7"}, ""},
		{"too few", v2, v2Mount, map[string]string{"a/b/pids.max": "70", "a/b/pids.current": "7"},
			"allows 70 processes and threads"},
		{"too few above", v2, v2Mount, map[string]string{"a/b/pids.max": "max",
			"a/b/pids.current": "7", "a/pids.max": "100", "a/pids.current": "90"},
			"a/pids.max), 90 are in use, and a daemon needs 64"},
		{"more than allowed are in use", v2, v2Mount,
			map[string]string{"a/b/pids.max": "5", "a/b/pids.current": "7"}, "allows 5"},
		{"version 1", v1, v1Mount, map[string]string{"a/b/pids.max": "32", "a/b/pids.current": "2"}, "allows 32"},
		{"not to be read", v2, v2Mount, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := map[string]string{"proc/self/cgroup": tc.groups, "proc/self/mountinfo": tc.mounts}
			for name, text := range tc.files {
				files["sys/fs/cgroup/"+name] = text + "\n"
			}
			problem, hint := ResourceNeeds{Tasks: 64}.FindShortage(tree(t, files))
			if (problem == "") != (tc.says == "") || !strings.Contains(problem, tc.says) ||
				(hint == "") != (problem == "") {
				t.Errorf("it says %q, %q", problem, hint)
			}
		})
	}
}
