package launcher

import (
	"strings"
	"testing"
)

// TestMasterPort verifies that two steps of a job, and two attempts, use different ports.
func TestMasterPort(t *testing.T) {
	seen := make(map[int]string)
	for _, more := range []string{"SLURM_STEP_ID=0", "SLURM_STEP_ID=1", "SLURM_STEP_ID=0 SLURM_RESTART_COUNT=1"} {
		environ := append([]string{"SLURM_JOB_ID=17", "SLURM_PROCID=0", "SLURM_NTASKS=1",
			"SLURM_STEP_NODELIST=n1"}, strings.Fields(more)...)
		r, err := IdentifyRank(EnvironmentOf(environ), Overrides{})
		if err != nil || seen[r.MasterPort] != "" || r.MasterPort < firstMasterPort ||
			r.MasterPort >= firstMasterPort+masterPortCount {
			t.Errorf("%s: %d, as of %q; %v", more, r.MasterPort, seen[r.MasterPort], err)
		}
		seen[r.MasterPort] = more
	}
}

// TestTaskNodes verifies the nodes of a step that has no nodes without tasks, as with srun itself.
func TestTaskNodes(t *testing.T) {
	const step = "SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[4-7] " +
		"SLURM_JOB_NODELIST=n[4-7] SLURM_NNODES=4 SLURM_NODEID="
	for _, tc := range []struct {
		name    string
		environ string
		task    Task
		want    map[string]string // empty: unchanged
	}{
		{"one rank on the first node", step + "0",
			Task{RankCount: 1, TasksPerNode: []int{1, 0, 0, 0}, LocalRanks: []int{0}}, map[string]string{
				"SLURM_NODELIST": "n4", "SLURM_STEP_NODELIST": "n4", "SLURM_NNODES": "1",
				"SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0",
				"SLURM_TASKS_PER_NODE": "1", "SLURM_NTASKS_PER_NODE": "1",
			}},
		{"spawned ranks with gaps", step + "3",
			Task{Rank: 2, RankCount: 3, TasksPerNode: []int{0, 2, 0, 1}, LocalRanks: []int{2}}, map[string]string{
				"SLURM_NODELIST": "n5,n7", "SLURM_NNODES": "2", "SLURM_NODEID": "1",
				"SLURM_TASKS_PER_NODE": "2,1", "SLURM_NTASKS_PER_NODE": "",
			}},
		{"ranks everywhere", step + "3", Task{Rank: 3, RankCount: 4,
			TasksPerNode: []int{1, 1, 1, 1}, LocalRanks: []int{3}}, map[string]string{
			"SLURM_TASKS_PER_NODE": "1(x4)", "SLURM_NODELIST": "", "SLURM_NODEID": "",
		}},
		{"a list of another length", "SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[4-9]",
			Task{RankCount: 1, TasksPerNode: []int{1, 0}, LocalRanks: []int{0}}, map[string]string{
				"SLURM_TASKS_PER_NODE": "1", "SLURM_NODELIST": "",
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			told := TaskVariables(strings.Fields(tc.environ), tc.task)
			for name, want := range tc.want {
				if got := told[name]; got != want {
					t.Errorf("%s is set to %q, not %q", name, got, want)
				}
			}
			if _, set := told["SLURM_JOB_NODELIST"]; set {
				t.Error("the nodes of the job are changed")
			}
		})
	}
}

// TestSlotVariables verifies that an mpirun in a Slurm step finds the nodes by the step's
// variables.
func TestSlotVariables(t *testing.T) {
	step := EnvironmentOf([]string{"SLURM_JOBID=17", "SLURM_JOB_ID=17"})
	large := SlotVariables(EnvironmentOf([]string{"SLURM_JOBID=17", "SLURM_NNODES=8"}), []string{"n1"}, 4)
	if nodes, is := large["SLURM_NNODES"]; is {
		t.Errorf("a nested srun is told %s nodes", nodes)
	}
	for _, tc := range []struct {
		env         Environment
		hosts       []string
		list, tasks string
	}{
		{step, []string{"n1", "n2", "n3"}, "n[1-3]", "4(x3)"},
		{step, []string{"n3", "n1"}, "n3,n1", "4(x2)"}, // in the order of the ranks
		{step, []string{"n1", "n1", "n2"}, "n[1-2]", "8,4"},
		{step, []string{"n1.site", "n2.site"}, "n1.site,n2.site", "4(x2)"},
		{step, []string{"n1", ""}, "", ""},
		{EnvironmentOf(nil), []string{"n1"}, "", ""},
	} {
		got := SlotVariables(tc.env, tc.hosts, 4)
		if nodes := got["SLURM_NNODES"]; tc.list != "" && nodes == "" {
			t.Errorf("%q: Hydra is told no number of nodes: %q", tc.hosts, got)
		}
		if got["SLURM_NODELIST"] != tc.list || got["SLURM_TASKS_PER_NODE"] != tc.tasks {
			t.Errorf("%q: got %q", tc.hosts, got)
		}
	}
}
