package launcher

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestMasterPort verifies that two steps of a job, and two attempts, use different ports.
func TestMasterPort(t *testing.T) {
	seen := make(map[int]string)
	for _, more := range []string{"SLURM_STEP_ID=0", "SLURM_STEP_ID=1", "SLURM_STEP_ID=0 SLURM_RESTART_COUNT=1"} {
		environ := append([]string{"SLURM_JOB_ID=17", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_STEP_NODELIST=n1"}, strings.Fields(more)...)
		r, err := IdentifyRank(EnvironmentOf(environ), nil)
		if err != nil || seen[r.MasterPort] != "" || r.MasterPort < firstMasterPort || r.MasterPort >= firstMasterPort+masterPortCount {
			t.Errorf("%s: %d, as of %q; %v", more, r.MasterPort, seen[r.MasterPort], err)
		}
		seen[r.MasterPort] = more
	}
}

// TestTaskNodes verifies the nodes of a step that has no nodes without tasks, as with srun itself.
func TestTaskNodes(t *testing.T) {
	const step = "SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[4-7] SLURM_JOB_NODELIST=n[4-7] SLURM_NNODES=4 SLURM_NODEID="
	for _, tc := range []struct {
		name    string
		environ string
		task    Task
		want    map[string]string // empty: unchanged
	}{
		{"one rank on the first node", step + "0", Task{RankCount: 1, TasksPerNode: []int{1, 0, 0, 0}, LocalRanks: []int{0}}, map[string]string{
			"SLURM_NODELIST": "n4", "SLURM_STEP_NODELIST": "n4", "SLURM_NNODES": "1", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0",
			"SLURM_TASKS_PER_NODE": "1", "SLURM_NTASKS_PER_NODE": "1",
		}},
		{"spawned ranks with gaps", step + "3", Task{Rank: 2, RankCount: 3, TasksPerNode: []int{0, 2, 0, 1}, LocalRanks: []int{2}}, map[string]string{
			"SLURM_NODELIST": "n5,n7", "SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_TASKS_PER_NODE": "2,1", "SLURM_NTASKS_PER_NODE": "",
		}},
		{"ranks everywhere", step + "3", Task{Rank: 3, RankCount: 4, TasksPerNode: []int{1, 1, 1, 1}, LocalRanks: []int{3}}, map[string]string{
			"SLURM_TASKS_PER_NODE": "1(x4)", "SLURM_NODELIST": "", "SLURM_NODEID": "",
		}},
		{"a list of another length", "SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[4-9]", Task{RankCount: 1, TasksPerNode: []int{1, 0}, LocalRanks: []int{0}}, map[string]string{
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

// TestTaskVariables verifies that variables which a launcher sets for its single process do not
// reach the ranks of a world, and that variables which users have set for all ranks do.
func TestTaskVariables(t *testing.T) {
	task := Task{Rank: 5, RankCount: 7, LocalRank: 1, TasksPerNode: []int{2, 2, 2, 1}, LocalRanks: []int{4, 5}}
	step := "SLURM_JOB_ID=17 SLURM_STEP_ID=0 "
	for _, tc := range []struct{ name, environ, gone, set string }{
		{"Open MPI 4", "OMPI_COMM_WORLD_RANK=1 OMPI_MCA_orte_hnp_uri=x OMPI_MCA_ess_base_vpid=1 OMPI_MCA_btl=tcp PMIX_MCA_gds=hash ORTE_SCHIZO_DETECTION=ORTE PMIX_RANK=1 PMIX_SERVER_URI3=x",
			"OMPI_COMM_WORLD_RANK OMPI_MCA_ess_base_vpid OMPI_MCA_orte_hnp_uri ORTE_SCHIZO_DETECTION PMIX_RANK PMIX_SERVER_URI3", ""},
		{"Open MPI 5", "PRTE_LAUNCHED=1 PRTE_MCA_plm=ssh OMPI_FIRST_RANKS=0 PMIX_NAMESPACE=x", "OMPI_FIRST_RANKS PMIX_NAMESPACE PRTE_LAUNCHED", ""},
		{"MPICH", "PMI_RANK=1 PMI_FD=9 PMI2_X=1 MPI_LOCALRANKID=0 HYDI_CONTROL_FD=8 MPI_HOME=/opt/mpi", "HYDI_CONTROL_FD MPI_LOCALRANKID PMI2_X PMI_FD PMI_RANK", ""},
		{"MVAPICH", "MV2_COMM_WORLD_RANK=1 MV2_USE_CUDA=1", "MV2_COMM_WORLD_RANK", ""},
		{"Flux", "FLUX_TASK_RANK=1 FLUX_URI=x FLUX_PMI_LIBRARY_PATH=x", "FLUX_PMI_LIBRARY_PATH FLUX_TASK_RANK", ""},
		{"PALS under PBS", "PALS_RANKID=1 PBS_NODENUM=0 PBS_JOBID=17", "PALS_RANKID PBS_NODENUM", ""},
		{"Kubernetes", "JOB_COMPLETION_INDEX=1 KUBERNETES_SERVICE_HOST=h", "JOB_COMPLETION_INDEX", ""},
		{"rrun", "RRUN_RANK=0 RRUN_COORD_DIR=/tmp/x", "RRUN_COORD_DIR RRUN_RANK", ""},
		{"torchrun", "TORCHELASTIC_USE_AGENT_STORE=True NODE_RANK=1 TORCH_HOME=x", "NODE_RANK TORCHELASTIC_USE_AGENT_STORE", ""},
		{"a batch shell of Slurm's", "SLURM_JOB_ID=17 SLURM_PROCID=0", "", ""},
		{"srun", step + "SLURM_PMIX_MAPPING_SERV=x SLURM_TASK_PID=9 SLURM_CPUS_PER_TASK=7 SLURM_NTASKS_PER_NODE=1 SLURM_NODEID=2",
			"SLURM_NTASKS_PER_NODE SLURM_PMIX_MAPPING_SERV SLURM_TASK_PID",
			"SLURM_CPUS_PER_TASK=3 SLURM_GTIDS=4,5 SLURM_LOCALID=1 SLURM_NPROCS=7 SLURM_NTASKS=7 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=7 SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_TASKS_PER_NODE=2(x3),1"},
		{"srun with one CPU", step + "SLURM_CPUS_PER_TASK=1", "SLURM_NTASKS_PER_NODE",
			"SLURM_CPUS_PER_TASK=1 SLURM_GTIDS=4,5 SLURM_LOCALID=1 SLURM_NPROCS=7 SLURM_NTASKS=7 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=7 SLURM_STEP_TASKS_PER_NODE=2(x3),1 SLURM_TASKS_PER_NODE=2(x3),1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var gone, set []string
			told := TaskVariables(strings.Fields(tc.environ), task)
			for _, name := range slices.Sorted(maps.Keys(told)) {
				if told[name] == "" {
					gone = append(gone, name)
				} else {
					set = append(set, name+"="+told[name])
				}
			}
			if got := strings.Join(gone, " "); got != tc.gone {
				t.Errorf("taken away are %s, not %s", got, tc.gone)
			}
			if got := strings.Join(set, " "); got != tc.set {
				t.Errorf("set are %s, not %s", got, tc.set)
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

// TestStartedAsRecorded checks environments that a real Slurm 22.05 passed to its tasks.
func TestStartedAsRecorded(t *testing.T) {
	for name, want := range map[string]StartedRank{
		"crowded-rank4":   {Rank: 4, RankCount: 12, LocalRank: 4, LocalCount: 8, NodeIndex: 0, NodeCount: 3, CPUs: 8, MasterHost: "n1"},
		"uneven-rank3":    {Rank: 3, RankCount: 4, LocalRank: 0, LocalCount: 1, NodeIndex: 2, NodeCount: 3, CPUs: 1, MasterHost: "n1"},
		"het-step-rank2":  {Rank: 2, RankCount: 3, LocalRank: 0, LocalCount: 1, NodeIndex: 2, NodeCount: 3, CPUs: 1},
		"arbitrary-rank2": {Rank: 2, RankCount: 3, LocalRank: 0, LocalCount: 1, NodeIndex: 1, NodeCount: 3, CPUs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := IdentifyRank(fromMap(recorded(t, name)), nil)
			got.MasterPort = 0
			if want.LauncherTitle = "srun"; err != nil || got != want {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
		})
	}
	for _, name := range []string{"batch-shell", "salloc-shell", "interactive-step"} {
		if got, err := IdentifyRank(fromMap(recorded(t, name)), nil); err == nil {
			t.Errorf("%s is taken for %+v", name, got)
		}
	}
}

// TestPMIVariables verifies that an mpirun started by a daemon's driver sees no variables of the
// one that has started the daemon.
func TestPMIVariables(t *testing.T) {
	for _, tc := range []struct{ name, environ, gone string }{
		{"under Open MPI's", "OMPI_COMM_WORLD_RANK=1 OMPI_UNIVERSE_SIZE=3 OMPI_MCA_orte_hnp_uri=x OMPI_MCA_btl=tcp PMIX_RANK=1 PMIX_MCA_gds=hash PATH=/bin",
			"OMPI_COMM_WORLD_RANK OMPI_MCA_orte_hnp_uri OMPI_UNIVERSE_SIZE PMIX_RANK"},
		{"under hydra", "MPI_LOCALRANKID=0 HYDI_CONTROL_FD=7 PMI_FD=6 PMI_RANK=1", "HYDI_CONTROL_FD MPI_LOCALRANKID PMI_FD PMI_RANK"},
		{"what a user has set", "OMPI_MCA_orte_base_help_aggregate=0 HYDRA_LAUNCHER=ssh PMI_RANK=1", "PMI_RANK"},
	} {
		if got := strings.Join(slices.Sorted(maps.Keys(PMIVariables(strings.Fields(tc.environ)))), " "); got != tc.gone {
			t.Errorf("%s: taken away are %s, not %s", tc.name, got, tc.gone)
		}
	}
	for _, tc := range []struct {
		environ string
		want    Launcher
	}{{"", LauncherSlurm}, {"PBS_JOBID=1.s", LauncherPBS}, {"LSB_JOBID=1", LauncherLSF}, {"SLURM_JOB_ID=1 PBS_JOBID=1.s", LauncherSlurm}} {
		if got := SurroundingLauncher(EnvironmentOf(strings.Fields(tc.environ))); got != tc.want {
			t.Errorf("%q is of a job of %s, not %s", tc.environ, got, tc.want)
		}
	}
}
