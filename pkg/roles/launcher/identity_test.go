package launcher

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fromMap returns an environment with these variables only.
func fromMap(vars map[string]string) Environment {
	return func(name string) (string, bool) {
		value, set := vars[name]
		return value, set
	}
}

// recorded reads an environment that a real srun, sbatch or salloc has made.
func recorded(t *testing.T, name string) map[string]string {
	t.Helper()
	return environmentOf(t, "slurm-22.05/"+name)
}

// environmentOf reads the environment that a launcher passes to a process: see testdata/README.md
// for its source.
func environmentOf(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".env"))
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		vars[name] = value
	}
	return vars
}

// change returns a copy of vars with "NAME=value" set and "NAME" unset.
func change(vars map[string]string, changes ...string) map[string]string {
	vars = maps.Clone(vars)
	for _, c := range changes {
		if name, value, set := strings.Cut(c, "="); set {
			vars[name] = value
		} else {
			delete(vars, name)
		}
	}
	return vars
}

// TestKeyShared verifies that the key is the same for all tasks of a real launch, and different
// from those of all others.
func TestKeyShared(t *testing.T) {
	launches := map[string][]string{
		"step":          {"step-rank0", "step-rank1", "step-rank2"},
		"requeued":      {"requeued-rank0", "requeued-rank1"},
		"arbitrary":     {"arbitrary-rank0", "arbitrary-rank1", "arbitrary-rank2"},
		"heterogeneous": {"het-step-rank0", "het-step-rank1", "het-step-rank2"},
		"het in batch":  {"het-batch-rank0", "het-batch-rank1", "het-batch-rank2"},
		"het one group": {"het-one-group-rank0", "het-one-group-rank1"},
		"sixty":         {"sixty-rank0", "sixty-rank5", "sixty-rank59"},
		"nested":        {"nested-rank1"},
	}
	owner := map[string]string{}
	for launch, files := range launches {
		keys := map[string]bool{}
		for _, file := range files {
			id, err := IdentifyDaemon(fromMap(recorded(t, file)), "", Overrides{})
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			keys[id.LaunchKey] = true
			if other, taken := owner[id.LaunchKey]; taken && other != launch {
				t.Errorf("%s has the key of launch %q, %s", file, other, id.LaunchKey)
			}
			owner[id.LaunchKey] = launch
		}
		if len(keys) != 1 {
			t.Errorf("the tasks of launch %q have %d keys: %v", launch, len(keys), keys)
		}
	}
}

func TestKeyTellsLaunchesApart(t *testing.T) {
	step := recorded(t, "step-rank0")
	key := func(changes ...string) string {
		t.Helper()
		id, err := IdentifyDaemon(fromMap(change(step, changes...)), "", Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		return id.LaunchKey
	}
	same := key()
	if again := key("SLURM_SRUN_COMM_PORT=1", "SLURM_LAUNCH_NODE_IPADDR=10.0.0.1",
		"SLURMD_NODENAME=n9"); again != same {
		t.Errorf("the key changed with what differs between nodes: %s, %s", same, again)
	}
	for _, c := range []string{"SLURM_JOB_ID=2", "SLURM_STEP_ID=1", "SLURM_RESTART_COUNT=1",
		"SLURM_JOB_START_TIME=1700000000", "SLURM_STEP_LAUNCHER_PORT=1", "SLURM_CLUSTER_NAME=b"} {
		if other := key(c); other == same {
			t.Errorf("the key did not change with %s", c)
		}
	}
}

// TestFormatNodes verifies that nodes have the names of their hosts only if these identify them.
func TestFormatNodes(t *testing.T) {
	for _, tc := range []struct {
		launcher Launcher
		hosts    []string
		nodes    []int
		want     string
	}{
		{LauncherSlurm, []string{"n1", "n2", "n3"}, []int{2, 1, 2}, "n[2-3]"},
		{LauncherSlurm, []string{"n1", "", "n3"}, []int{2}, "n3"},
		{LauncherSlurm, []string{"n1", "", "n3"}, []int{1, 2}, "nodes 1-2"},
		{LauncherSlurm, []string{"n1", "n2", "n2"}, []int{0}, "n1"},
		{LauncherSlurm, []string{"n1", "n2", "n2"}, []int{2}, "node 2"},
		{LauncherLocal, []string{"n1", "", ""}, []int{0}, "node 0"},
		{LauncherSlurm, nil, nil, ""},
	} {
		id := Identity{Launcher: tc.launcher, Size: len(tc.hosts)}
		if got := id.FormatNodes(tc.nodes, func(node int) string { return tc.hosts[node] }); got != tc.want {
			t.Errorf("%v of %q: %q, want %q", tc.nodes, tc.hosts, got, tc.want)
		}
	}
}
