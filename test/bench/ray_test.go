//go:build testbed && ray

package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/testbed"
)

var (
	rayTurnsFlag  = flag.Int("ray-turns", 7, "how often BenchmarkRay starts each cluster")
	rayLingerFlag = flag.Duration("ray-linger", 30*time.Second,
		"how long its jobs may outlast their drivers before they are cancelled")
	mergedFlag = flag.String("raysub-merged", "",
		"a ray.sub of NeMo RL's, by its whole path, that it measures besides; empty: none")
	todayFlag = flag.String("raysub-today", "", "another")
)

const (
	// rayJob is the name of all jobs of this benchmark; it is used to find and cancel them.
	rayJob = "ray-bench"
	// rayPatience is far longer than any cluster and its driver take.
	rayPatience = 5 * time.Minute
)

// BenchmarkRay starts a Ray cluster on 2 and on 4 nodes with bringupd, with Ray's own symmetric-run
// and, if the flags name a script, with ray.sub, in alternation. Its metrics are medians in seconds
// since the submission of the job: NAME-driver-s until its driver starts, NAME-tasks-s until a task
// has run on every node, and NAME-whole-s until Slurm has released the job. NAME-driver-ratio and
// so on are the ratios to symmetric-run. NAME-gate-s is the time from the start of Ray's last node
// until bringupd's gate opens. It prints them as a table.
func BenchmarkRay(b *testing.B) {
	ray := os.Getenv("BRINGUPD_TEST_RAY")
	if ray == "" {
		b.Fatal("cannot run without a Ray: BRINGUPD_TEST_RAY must name its ray program (test/bench.sh installs one)")
	}
	// symmetric-run and ray.sub search PATH for ray
	b.Setenv("PATH", filepath.Dir(ray)+":"+os.Getenv("PATH"))
	b.Setenv("RAY_USAGE_STATS_ENABLED", "0")                  // the testbed has no Internet access
	b.Setenv("RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT", "120") // 30 s are too few if busy
	// A stale share would cost ray.sub up to 20 s per signal.
	bed, program := raise(b, testbed.SSHFS)
	if err := os.CopyFS(bed.Bin(), os.DirFS("testdata")); err != nil {
		b.Fatal(err) // each node has its own /tmp, which may hide the sources
	}
	for _, n := range []int{2, 4} {
		b.Run(strconv.Itoa(n)+" nodes", func(b *testing.B) {
			track := rayTrack{bed: bed, program: program, ray: ray, nodes: n}
			track.compare(b)
		})
	}
}

// rayTrack measures clusters of a given number of nodes on a testbed.
type rayTrack struct {
	bed          *testbed.Bed
	program, ray string
	nodes        int
}

// rayStarter is a method to start a cluster and run a driver in it.
type rayStarter struct {
	name string
	// command returns the command that submits a job. driver is a line for sh, and logs is the log
	// directory.
	command func(driver, logs string) *exec.Cmd
}

// rayTurn contains the measurements of one job, in seconds since its submission.
type rayTurn struct {
	driver, tasks, whole float64
	alive                float64 // Ray's last node is alive
	gate                 float64 // 0 if the method has no gate
	cut                  bool    // the job was cancelled at whole
	failed               bool    // its exit code was not the driver's, which is 0
}

func (r rayTrack) starters() []rayStarter {
	n := strconv.Itoa(r.nodes)
	where := []string{"--job-name=" + rayJob, "--nodes=" + n,
		"--nodelist=n[0-" + strconv.Itoa(r.nodes-1) + "]"}
	// Use a new PID namespace, because ray stop ends all ray processes that it sees. Its first process
	// is a shell, which reaps orphans: ray stop waits for zombies.
	srun := slices.Concat(where, []string{
		"--ntasks-per-node=1", "--kill-on-bad-exit=1", "--wait=0", "unshare", "--pid", "--fork",
		"--kill-child", "--mount-proc",
		"sh", "-c", `"$@"; exit $?`, "sh",
	})
	size := []string{"--num-cpus=2", "--object-store-memory=100000000"}
	bringupd := func(more ...string) func(driver, logs string) *exec.Cmd {
		for _, arg := range size {
			more = append(more, "--ray-head-args="+arg, "--ray-worker-args="+arg)
		}
		return func(driver, logs string) *exec.Cmd {
			run := []string{r.program, "--log-dir=" + logs, "--framework=ray"}
			run = append([]string{"env", "PATH=" + filepath.Dir(r.ray) + ":" + os.Getenv("PATH")}, run...)
			return r.bed.Command(context.Background(), "srun",
				slices.Concat(srun, run, more, []string{"--", "sh", "-c", driver})...)
		}
	}
	all := []rayStarter{
		{"bringupd", bringupd()},
		{"symmetric-run", func(driver, _ string) *exec.Cmd {
			run := []string{r.ray, "symmetric-run", "--address", "n0:6379", "--min-nodes", n}
			run = append([]string{"env", "PATH=" + filepath.Dir(r.ray) + ":" + os.Getenv("PATH")}, run...)
			return r.bed.Command(context.Background(), "srun",
				slices.Concat(srun, run, size, []string{"--", "sh", "-c", driver})...)
		}},
		// symmetric-run cannot disable the dashboard, because its workers reject the flag.
		{"bringupd-dashboard", bringupd("--ray-head-args=--include-dashboard=true")},
	}
	for name, script := range map[string]string{"raysub-merged": *mergedFlag,
		"raysub-today": *todayFlag} {
		if script == "" {
			continue
		}
		all = append(all, rayStarter{name, func(driver, logs string) *exec.Cmd {
			args := append(slices.Clip(where), "--partition=all",
				"--output="+filepath.Join(logs, "out"), script)
			cmd := r.bed.Command(context.Background(), "sbatch", args...)
			cmd.Env = append(cmd.Environ(), "PATH="+r.bed.Bin()+":"+os.Getenv("PATH"),
				"COMMAND="+driver, "BASE_LOG_DIR="+logs,
				"CONTAINER=none", "MOUNTS=", "GPUS_PER_NODE=1", "CPUS_PER_WORKER=8")
			return cmd
		}})
	}
	slices.SortStableFunc(all[3:], func(a, b rayStarter) int {
		return strings.Compare(a.name, b.name)
	})
	return all
}

// compare runs the methods in alternation and reports the medians.
func (r rayTrack) compare(b *testing.B) {
	starters := r.starters()
	took := make([][]rayTurn, len(starters))
	r.turn(b, starters[0]) // warm-up: fills the caches of Ray's files, which all methods use
	for b.Loop() {
		for range *rayTurnsFlag {
			for i, s := range starters {
				took[i] = append(took[i], r.turn(b, s))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	fmt.Printf("| %d nodes, %d turns, s from submission | driver | ratio | tasks | ratio | "+
		"whole | ratio | failed | last node to driver | to gate |\n|---|---|---|---|---|---|---|---|---|---|\n",
		r.nodes, *rayTurnsFlag)
	for i, s := range starters {
		row := s.name
		for _, of := range []struct {
			what string
			from func(rayTurn) float64
		}{
			{"driver", func(t rayTurn) float64 { return t.driver }},
			{"tasks", func(t rayTurn) float64 { return t.tasks }},
			{"whole", func(t rayTurn) float64 { return t.whole }},
		} {
			value := medianOf(took[i], of.from)
			ratio := value / medianOf(took[1], of.from)
			more := ""
			if of.what == "whole" && slices.ContainsFunc(took[i], func(t rayTurn) bool {
				return t.cut && t.whole <= value
			}) {
				more = "more than "
			}
			row += fmt.Sprintf(" | %s%.1f | %.2f", more, value, ratio)
			b.ReportMetric(value, s.name+"-"+of.what+"-s")
			b.ReportMetric(ratio, s.name+"-"+of.what+"-ratio")
		}
		failed := 0
		for _, t := range took[i] {
			if t.failed {
				failed++
			}
		}
		row += fmt.Sprintf(" | %d | %.2f", failed,
			medianOf(took[i], func(t rayTurn) float64 { return t.driver - t.alive }))
		if took[i][0].gate != 0 {
			gate := medianOf(took[i], func(t rayTurn) float64 { return t.gate - t.alive })
			b.ReportMetric(gate, s.name+"-gate-s")
			row += fmt.Sprintf(" | %.2f", gate)
		} else {
			row += " |"
		}
		fmt.Printf("| %s |\n", row)
	}
}

func medianOf(turns []rayTurn, value func(rayTurn) float64) float64 {
	values := make([]float64, len(turns))
	for i, t := range turns {
		values[i] = value(t)
	}
	return median(values)
}

// turn submits a job and returns when Slurm has released it and none of its processes run.
func (r rayTrack) turn(b *testing.B, s rayStarter) (t rayTurn) {
	b.Helper()
	logs, err := os.MkdirTemp(r.bed.Share(), s.name+"-")
	if err != nil {
		b.Fatal(err)
	}
	for node := range r.nodes {
		// Remove the files of an earlier cluster, which could be mistaken for this one's.
		if out, err := r.bed.OnNode(context.Background(), node, "rm", "-rf",
			"/tmp/ray").CombinedOutput(); err != nil {
			b.Fatalf("cannot remove n%d's /tmp/ray: %v: %s", node, err, out)
		}
	}
	times := filepath.Join(r.bed.Bin(), filepath.Base(logs)+".times")
	cmd := s.command("echo driver $(date +%s.%N) >"+times+"; exec python "+filepath.Join(
		r.bed.Bin(), "ray_turn.py")+" "+times, logs)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	submitted := make(chan error, 1)
	go func() { submitted <- cmd.Wait() }()

	told, looked, over := map[string]float64{}, began, false
	for ; told["tasks"] == 0; time.Sleep(50 * time.Millisecond) {
		if over || time.Since(began) > rayPatience {
			_ = cmd.Process.Kill()
			<-submitted // after this, said is no longer written
			out, _ := os.ReadFile(filepath.Join(logs, "out"))
			b.Fatalf("%s: after %s the driver has only reported %v\n%s%s", s.name,
				time.Since(began), told, &said, out)
		}
		// rarely, because squeue takes CPU time from the job
		if time.Since(looked) > 5*time.Second {
			over, looked = r.queued(b) == "", time.Now()
		}
		told = readTimes(times)
	}
	since := func(at float64) float64 { return at - float64(began.UnixNano())/1e9 }
	if told["nodes"] != float64(r.nodes) {
		b.Errorf("%s: the driver found %v nodes, want %d", s.name, told["nodes"], r.nodes)
	}
	t = rayTurn{driver: since(told["driver"]), tasks: since(told["tasks"]),
		alive: since(told["alive"])}
	for limit := time.Now().Add(*rayLingerFlag); r.queued(b) != ""; time.Sleep(
		100 * time.Millisecond) {
		if t.cut = time.Now().After(limit); t.cut {
			break
		}
	}
	t.whole = time.Since(began).Seconds()
	r.bury(b, t.cut)
	err = <-submitted
	if t.failed = err != nil && !t.cut; t.failed {
		b.Logf("%s: %v\n%s", s.name, err, &said)
	}
	if strings.HasPrefix(s.name, "bringupd") {
		if t.failed {
			b.Fail() // failures of other methods are only logged
		}
		t.gate = since(gateOpened(b, logs))
	}
	b.Logf("%d nodes: %s: %+v", r.nodes, s.name, t)
	return t
}

// slurm runs a Slurm client and returns its output.
func (r rayTrack) slurm(b *testing.B, name string, args ...string) string {
	b.Helper()
	out, err := r.bed.Command(context.Background(), name, args...).Output()
	if err != nil {
		b.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// queued returns squeue's line for the job, or "" when Slurm has released it.
func (r rayTrack) queued(b *testing.B) string {
	b.Helper()
	return r.slurm(b, "squeue", "--noheader", "--name="+rayJob)
}

// bury waits until no process of a job is left. If cancel is set, it cancels the job first.
func (r rayTrack) bury(b *testing.B, cancel bool) {
	b.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		left := r.queued(b)
		if left != "" && cancel {
			r.slurm(b, "scancel", "--full", "--signal=KILL", "--quiet", "--name="+rayJob)
		}
		for node := range r.nodes {
			for _, p := range jobs(b, r.bed, node) {
				left += p.String() + "\n"
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%s after the end of a job there is still:\n%s", patience, left)
		}
	}
}

// readTimes reads the times that the driver has written so far, as seconds of the wall clock.
func readTimes(path string) map[string]float64 {
	data, _ := os.ReadFile(path)
	told := map[string]float64{}
	for line := range strings.Lines(string(data)) {
		if name, value, _ := strings.Cut(line, " "); strings.HasSuffix(value, "\n") {
			told[name], _ = strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return told
}

// gateOpened returns the time at which the head of the newest run in a log directory published that
// its gate is open.
func gateOpened(b *testing.B, logs string) float64 {
	b.Helper()
	paths, _ := filepath.Glob(filepath.Join(logs, "latest", "events", "*.jsonl"))
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			if e, ok := eventlog.DecodeEvent(line); ok && e.Type == eventlog.RecordPublished &&
				e.Record == signal.NameGateOpen {
				at, err := time.Parse(time.RFC3339Nano, e.At)
				if err != nil {
					b.Fatal(err)
				}
				return float64(at.UnixNano()) / 1e9
			}
		}
	}
	b.Fatalf("no event of %v is about the gate", paths)
	return 0
}
