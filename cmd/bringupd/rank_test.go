package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
)

// TestRank verifies that a rank is the process that the launcher has started, and no other.
func TestRank(t *testing.T) {
	forget(t)
	command := program(t, "rank", "--env=A=1", "--env=B=2", "--", "sh", "-c",
		`echo $$ "$PPID" "$BRINGUPD_RANK/$BRINGUPD_RANKS $RANK $LOCAL_RANK $MASTER_ADDR $PMIX_RANK $A$B"; exit 3`)
	command.Env = append(command.Env, "SLURM_JOB_ID=17", "SLURM_STEP_ID=0", "SLURM_PROCID=5",
		"SLURM_NTASKS=6", "SLURM_LOCALID=1", "SLURM_NODEID=2",
		"SLURM_STEP_NODELIST=n[1-3]", "SLURM_STEP_TASKS_PER_NODE=2(x3)", "PMIX_RANK=5", "A=0")
	out, _ := command.Output()
	want := strings.Join([]string{strconv.Itoa(command.Process.Pid), strconv.Itoa(os.Getpid()),
		"5/6", "5", "1", "n1", "5", "12"}, " ") + "\n"
	if code := command.ProcessState.ExitCode(); string(out) != want || code != 3 {
		t.Errorf("got %q and code %d, want %q and 3", out, code, want)
	}
}

// TestRankInsideSubmittedJob verifies that a task of a job that an mpirun or a torchrun has
// submitted belongs to srun: it has inherited their variables, but is not in their world.
func TestRankInsideSubmittedJob(t *testing.T) {
	forget(t)
	command := program(t, "rank", "--bind=none", "--", "sh", "-c",
		`echo "$BRINGUPD_RANK/$BRINGUPD_RANKS $RANK/$WORLD_SIZE"`)
	command.Args = append([]string{"sh", "-c", `SLURM_TASK_PID=$$ exec "$@"`, "sh", command.Path}, command.Args[1:]...)
	command.Path = "/bin/sh"
	command.Env = append(command.Env, "SLURM_JOB_ID=17", "SLURM_STEP_ID=0", "SLURM_PROCID=2",
		"SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_NODEID=2",
		"SLURM_STEP_NODELIST=n[1-4]", "SLURM_STEP_TASKS_PER_NODE=1(x4)",
		"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", "PMIX_RANK=0", "PMIX_NAMESPACE=prterun-n1-7@1",
		"TORCHELASTIC_RUN_ID=none", "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=old", "MASTER_PORT=1")
	out, err := command.Output()
	if want := "2/4 2/4\n"; string(out) != want || err != nil {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

// TestRankUnderPALS verifies that --nnodes gives the number of ranks where PALS does not.
func TestRankUnderPALS(t *testing.T) {
	forget(t)
	command := program(t, "rank", "--nnodes=2", "--bind=none", "--", "sh", "-c", `echo "$RANK/$WORLD_SIZE"`)
	command.Env = append(command.Env, "PALS_APID=1", "PALS_RANKID=5", "PALS_LOCAL_RANKID=1", "PALS_LOCAL_SIZE=4",
		"PALS_NODEID=1")
	out, err := command.Output()
	if want := "5/8\n"; string(out) != want || err != nil {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

func TestRankRefused(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	task := []string{"RANK=1", "WORLD_SIZE=2"}
	for _, tc := range []struct {
		name string
		env  []string
		args []string
		code int
		part string
	}{
		{"without a launcher", nil, []string{"rank", "--", "true"}, 65,
			"srun --ntasks-per-node=4 bringupd rank -- ./app"},
		{"two launchers that disagree", append([]string{"OMPI_COMM_WORLD_RANK=0",
			"OMPI_COMM_WORLD_SIZE=1", "MPI_LOCALRANKID=0", "PMI_RANK=1", "PMI_SIZE=2"}, task...),
			[]string{"rank", "--", "true"}, 65,
			"Open MPI's mpirun says rank 0 of 1 (OMPI_COMM_WORLD_RANK is set), and MPICH's " +
				"mpiexec says rank 1 of 2"},
		{"a rank that can't be", []string{"RANK=2", "WORLD_SIZE=2"}, []string{"rank", "--", "true"},
			65, "the rank is 2 of 2"},
		{"without an app", task, []string{"rank"}, 64, "after --"},
		{"an app that is not after --", task, []string{"rank", "true"}, 64, "has no arguments"},
		{"torchrun in every rank", task, []string{"rank", "--", "torchrun", "train.py"}, 64,
			"cannot run torchrun in each rank"},
		{"the removed permission of torchrun", task,
			[]string{"rank", "--allow-launcher", "--", "torchrun", "train.py"}, 64,
			"a command of sh -c is not checked"},
		{"mpirun in the only rank", []string{"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"},
			[]string{"rank", "--", "/none/mpirun", "./app"}, 127, "cannot start rank 0"},
		{"an app that does not exist", task, []string{"rank", "--", "no-such-app"}, 127, "cannot start rank 1"},
		{"an app that is none", task, []string{"rank", "--", plain}, 126, "not executable"},
		{"a GPU that does not exist", append([]string{"CUDA_VISIBLE_DEVICES=0-3"}, task...),
			[]string{"rank", "--", "true"}, 65, "give --bind=none"},
		{"nobody tells of the node, and that matters", task,
			[]string{"rank", "--bind=cpu", "--", "true"}, 75, "does not report how many ranks run on it"},
		{"an interface that does not exist", append([]string{"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
			"GLOO_SOCKET_IFNAME=none0"}, task...), []string{"rank", "--", "true"}, 64,
			"GLOO_SOCKET_IFNAME=none0: no interface has this name; this node has "},
		{"an interface of NCCL that does not exist", append([]string{"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
			"NCCL_SOCKET_IFNAME=none0", "CUDA_VISIBLE_DEVICES=0"}, task...), []string{"rank", "--", "true"}, 64,
			"NCCL_SOCKET_IFNAME=none0: no interface has this name"},
		{"a meeting at a loopback address", append([]string{"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
			"MASTER_ADDR=127.0.0.1"}, task...), []string{"rank", "--", "true"}, 64, "it is a loopback address"},
		{"a variable without a value", task, []string{"rank", "--env=A", "--", "true"}, 64, "NAME=VALUE"},
		{"one number for all ranks", task, []string{"rank", "--env=RANK=7", "--", "true"}, 64,
			"bringupd sets RANK for each rank"},
		{"no address", task, []string{"rank", "--env=MASTER_ADDR=", "--", "true"}, 64, "give the first node's"},
		{"a variable of bringupd's own", task,
			[]string{"rank", "--env=BRINGUPD_RANK=0", "--", "true"}, 64, "are reserved"},
	} {
		t.Run(tc.name, func(t *testing.T) { refused(t, call(t, tc.env, tc.args...), tc.code, tc.part) })
	}
}

// TestRankIsBound verifies with real tasks that a task takes its share of this machine, and that
// one that the launcher has bound to a CPU stays there.
func TestRankIsBound(t *testing.T) {
	forget(t)
	node, err := affinity.DiscoverNode("/", gpu.Topology{}, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	last := node.CountSlots(affinity.PerCore) - 1
	share := node.AssignRanks(last+1, affinity.AllKinds())[last]
	withGPU := share
	withGPU.GPUs = []string{[]string{"4", "5"}[last%2]}
	first := affinity.Affinity{CPUs: node.CPUs[:1]}
	kept := affinity.Affinity{CPUs: first.CPUs, Note: "CPUs are those that srun bound it to"}
	const strict = "--bind=cpu,memory,network,gpu"
	for _, tc := range []struct {
		name string
		from affinity.Affinity // set by the launcher
		last int               // highest local number
		env  string
		flag string
		want affinity.Affinity
	}{
		{"its share", affinity.Affinity{}, last, "", "--bind=auto", share},
		{"strictly", affinity.Affinity{}, last, "", strict, share},
		{"where the launcher has bound it", first, last, "", strict, kept},
		{"its share of what the job has", first, 0, "SLURM_CPUS_ON_NODE=1", "--bind=auto", first},
		{"a GPU of those that the launcher shows", affinity.Affinity{}, last,
			"CUDA_VISIBLE_DEVICES=4,5", "--bind=auto", withGPU},
		{"nothing", affinity.Affinity{}, last, "", "--bind=none", affinity.Affinity{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			task := program(t, "rank", tc.flag, "--", "sh", "-c",
				`sed -n "s/Cpus_allowed_list:.//p" /proc/$$/status; echo "$BRINGUPD_BINDING" "$CUDA_VISIBLE_DEVICES"`)
			task.Env = append(task.Env, "SLURM_JOB_ID=17", "SLURM_STEP_ID=0", "SLURM_NODEID=0", "SLURMD_NODENAME=n7",
				fmt.Sprintf("SLURM_PROCID=%d", tc.last), fmt.Sprintf("SLURM_LOCALID=%d", tc.last),
				fmt.Sprintf("SLURM_NTASKS=%d", tc.last+1),
				fmt.Sprintf("SLURM_STEP_TASKS_PER_NODE=%d", tc.last+1), tc.env)
			cpus := tc.want.CPUs
			if len(cpus) == 0 {
				cpus = node.CPUs
			}
			binding, _ := json.Marshal(tc.want)
			want := fmt.Sprintf("%v\n%s %s\n", cpus, binding, strings.Join(tc.want.GPUs, ","))
			if out, err := startedOn(t, tc.from, task); err != nil || out != want {
				t.Errorf("%v: it is bound to\n%s, not\n%s", err, out, want)
			}
		})
	}
}

// startedOn returns the output of a command that is started by a thread bound to place.
func startedOn(t *testing.T, place affinity.Affinity, command *exec.Cmd) (out string, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		restore, _, failed := place.BindThread()
		if failed != nil {
			t.Errorf("it can't be bound: %v", failed)
			return
		}
		var printed []byte
		printed, err = command.CombinedOutput()
		out = string(printed)
		if err := restore(); err != nil {
			t.Error(err)
		}
	}()
	<-done
	return out, err
}
