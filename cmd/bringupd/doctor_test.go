package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/preflight"
)

// doctorArgs disables everything that depends on the machine that runs the test.
func doctorArgs(args ...string) []string {
	quiet := []string{"doctor", "--gpu-check=off"}
	for _, id := range []string{"host.*", "net.*", "node.*", "share.*"} {
		quiet = append(quiet, "--check="+id+"=off")
	}
	return append(quiet, args...)
}

func TestDoctorAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	got := call(t, nil, doctorArgs("--framework=ray", "--framework-port=0")...)
	if got.code != 2 || got.err != "" || !strings.Contains(got.out, "  FAIL     framework  ") ||
		!strings.Contains(got.out, "SKIP     launch") {
		t.Errorf("code %d: %s%s", got.code, got.out, got.err)
	}
	if got = call(t, []string{"SLURM_JOB_ID=7", "SLURM_NNODES=3", "SLURM_JOB_NUM_NODES=3",
		"SLURM_NTASKS=9"}, doctorArgs("--log-dir=logs")...); got.code != 0 ||
		!strings.Contains(got.out, "srun --nodes=3 --ntasks=3 --ntasks-per-node=1 bringupd doctor …") {
		t.Errorf("in a batch shell: code %d: %s%s", got.code, got.out, got.err)
	}
	// kubectl exec runs a command in one pod, with the pod's variables.
	pod := []string{"KUBERNETES_SERVICE_HOST=10.0.0.1", "JOB_COMPLETION_INDEX=3"}
	if got = call(t, pod, doctorArgs("--log-dir=logs")...); got.code != 0 || got.err != "" ||
		!strings.Contains(got.out, "SKIP     launch  only this node is checked") {
		t.Errorf("in a pod: code %d: %s%s", got.code, got.out, got.err)
	}
	if got = call(t, pod, doctorArgs("--log-dir=logs", "--nnodes=2")...); got.code != 65 ||
		!strings.Contains(got.out, "FAIL     launch  cannot be pod 3 of 2") {
		t.Errorf("in a pod too many: code %d: %s%s", got.code, got.out, got.err)
	}
	untouched(t)
}

// TestDoctorOfAWrongLaunch verifies that a launch with a number of tasks per node other than one is
// reported once and ends all tasks with the code of a wrong launch.
func TestDoctorOfAWrongLaunch(t *testing.T) {
	step := func(rank string) []string {
		return []string{
			"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_NTASKS=4", "SLURM_NNODES=2",
			"SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_PROCID=" + rank,
		}
	}
	t.Chdir(t.TempDir())
	got := call(t, step("0"), doctorArgs("--log-dir=logs")...)
	if got.code != 65 || got.err != "" || !strings.Contains(got.out,
		"FAIL     launch  cannot run 2 daemons on one node") ||
		!strings.Contains(got.out, "hint: start it with: srun --nodes=2 --ntasks=2 "+
			"--ntasks-per-node=1 bringupd doctor …") {
		t.Errorf("code %d: %s%s", got.code, got.out, got.err)
	}
	if got = call(t, step("1"), doctorArgs("--log-dir=logs")...); got.code != 65 || got.out+got.err != "" {
		t.Errorf("another task: code %d: %s%s", got.code, got.out, got.err)
	}
	if got = call(t, []string{"RANK=0", "WORLD_SIZE=2"}, doctorArgs()...); got.code != 65 ||
		!strings.Contains(got.out, "--job-id") {
		t.Errorf("without a name: code %d: %s%s", got.code, got.out, got.err)
	}
	oneEach := append(step("1"), "SLURM_NTASKS=2", "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_STEP_NODELIST=n[1-2]",
		"SLURM_NODEID=1", "SLURM_LOCALID=0")
	if got = call(t, oneEach, doctorArgs("--log-dir=logs", "--job-id=x", "--join-timeout=1s")...); got.code != 64 ||
		!strings.Contains(got.err, "by --job-id under Slurm, which names it 7.0") {
		t.Errorf("with another name: code %d: %s%s", got.code, got.out, got.err)
	}
	untouched(t)
}

func TestDoctorAsJSON(t *testing.T) {
	t.Chdir(t.TempDir())
	got := call(t, []string{"RANK=0", "WORLD_SIZE=1"}, doctorArgs("--json", "--job-id=x", "--gpus-per-node=0")...)
	var report preflight.DoctorReport
	decoder := json.NewDecoder(strings.NewReader(got.out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil {
		t.Fatalf("%v in:\n%s%s", err, got.out, got.err)
	}
	if got.code != 0 || report.Version != preflight.DoctorReportVersion ||
		report.Verdict != check.Pass ||
		len(report.Facts) != 1 {
		t.Errorf("code %d: %s", got.code, got.out)
	}
	if !slices.ContainsFunc(report.Findings, func(f check.Finding) bool {
		return f.ID == "launch" && f.Observed == "ranks, one daemon on one node"
	}) {
		t.Errorf("%+v", report.Findings)
	}
}

func TestDoctorOfRanks(t *testing.T) {
	t.Chdir(t.TempDir())
	forget(t)
	const size = 3
	var outs, errs [size]strings.Builder
	var ranks [size]*exec.Cmd
	for node := range size {
		ranks[node] = program(t, doctorArgs("--rank="+strconv.Itoa(node), "--nnodes=3",
			"--job-id=x", "--log-dir=logs")...)
		ranks[node].Stdout, ranks[node].Stderr = &outs[node], &errs[node]
		if err := ranks[node].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for node := range size {
		if err := ranks[node].Wait(); err != nil {
			t.Errorf("node %d: %v: %s%s", node, err, &outs[node], &errs[node])
		}
	}
	if out := outs[0].String(); !strings.Contains(out, "ranks, one daemon on each of 3 nodes") ||
		!strings.Contains(out, "head.address  the head is reachable at ") {
		t.Errorf("the head says: %s%s", out, &errs[0])
	}
	for node := 1; node < size; node++ {
		if said := outs[node].String() + errs[node].String(); said != "" {
			t.Errorf("node %d says: %s", node, said)
		}
	}
	if left, err := os.ReadDir("logs"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestChecksTakeFlagsOfJobs verifies that the flags of a job, with its driver, can be given to the
// subcommands that check it.
func TestChecksTakeFlagsOfJobs(t *testing.T) {
	var flags []string
	for _, s := range newOptions().daemonSettings() {
		flags = append(flags, "--"+s.Name+"=1")
	}
	for _, name := range []string{"doctor", "check"} {
		refused(t, call(t, nil, slices.Concat([]string{name}, flags, []string{"word"})...), 64, `cannot use "word"`)
	}
	t.Chdir(t.TempDir())
	job := []string{"--role=auto", "--ranks-per-node=2", "--bind=none", "--setup-cmd=touch ran",
		"--sandbox-cmd=touch ran", "--dry-run",
		"--on-failure=requeue", "--max-requeues=3", "--driver-grace=100s", "--", "touch", "ran"}
	if got := call(t, nil, doctorArgs(job...)...); got.code != 0 || got.err != "" ||
		!strings.HasPrefix(got.out, "PASS") {
		t.Errorf("code %d: %s%s", got.code, got.out, got.err)
	}
	untouched(t)
	if text := helpText((&invocation{}).doctorCommand()); strings.Contains(text, "--setup-cmd") ||
		!strings.Contains(strings.Join(strings.Fields(text), " "), "All flags of bringupd run are accepted") {
		t.Errorf("the help is %s", text)
	}
}
