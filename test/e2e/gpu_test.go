//go:build testbed

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/cuda"
	"github.com/bringupd/bringupd/test/nvml"
)

// library builds the NVML of all nodes, with a libcuda in the same folder. The nodes see the
// program folder directly, so that no shared file system delays the answers that a test sets.
var library = sync.OnceValues(func() (nvml.Fake, error) {
	dir := filepath.Join(beds.bin(), "nvml")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nvml.Fake{}, err
	}
	if _, err := cuda.Build(dir); err != nil {
		return nvml.Fake{}, err
	}
	return nvml.Build(dir)
})

// onGPUs returns a launch on four nodes with eight GPUs each, which are healthy until the test sets
// other answers of NVML.
func (bed *lane) onGPUs(t *testing.T, driver ...string) (launch, nvml.Fake) {
	t.Helper()
	built, err := library()
	must(t, err)
	dir, err := os.MkdirTemp(filepath.Dir(built.Library), "answers-*")
	must(t, err)
	name, value, _ := strings.Cut(built.In(dir).Env(), "=")
	bed.setenv(name, value)
	bed.setenv("LD_LIBRARY_PATH", filepath.Dir(built.Library))
	return launch{
		nodes:  4,
		flags:  []string{"--gpu-check=require", "--gpus-per-node=8"},
		driver: driver,
	}, built.In(dir)
}

// blames fails the test unless the first cause has that kind and node and its message contains all
// of says.
func (j *job) blames(kind health.Kind, rank int, says ...string) record.Result {
	j.t.Helper()
	j.wantCode(health.OutcomeOfKind(kind).Code)
	result := j.result()
	if result.Cause == nil || result.Cause.Kind != kind || !about(*result.Cause, rank) {
		j.t.Fatalf("the first cause is %+v, want %s of node %d\n%s", result.Cause, kind,
			rank, &j.stderr)
	}
	for _, want := range says {
		if !strings.Contains(result.Reason, want) {
			j.t.Errorf("the reason lacks %q: %s", want, result.Reason)
		}
	}
	if !slices.Equal(result.BadNodes, []string{j.bed.Node(rank)}) {
		j.t.Errorf("the bad nodes are %v, want %s", result.BadNodes, j.bed.Node(rank))
	}
	if len(result.Advice) == 0 {
		j.t.Errorf("nothing is advised: %+v", result)
	}
	return result
}

// soon is how long a job with a failed node may take to end. It is far shorter than the waiting
// time of the checks, and far longer than the end takes on an idle machine.
const soon = 5 * time.Second

// TestLostGPU checks that a lost GPU fails the check of its node before the driver starts, and that
// the job ends soon.
func TestLostGPU(t *testing.T) {
	bed := claim(t, fewNodes)
	l, fake := bed.onGPUs(t, "echo", "started")
	must(t, fake.Answer("n2", "gpu 3 handle 15"))
	j := bed.run(t, l)
	result := j.blames(health.CheckFailed, 2, "n2", "gpu.count", "GPU 3", "GPU_IS_LOST")
	if !slices.ContainsFunc(result.Advice, func(step string) bool {
		return strings.HasPrefix(step, "gpu.count: ")
	}) {
		t.Errorf("the hint is not among the advice: %q", result.Advice)
	}
	if result.Duration > soon {
		t.Errorf("the job has ended after %s, want at most %s\n%s", result.Duration,
			soon, &j.stderr)
	}
	if got := j.stdout.String(); got != "" {
		t.Errorf("the driver has run: %q", got)
	}
}

// TestLostGPUOfFour checks that a job which needs only three of four nodes runs without the failed
// one.
func TestLostGPUOfFour(t *testing.T) {
	bed := claim(t, fewNodes)
	l, fake := bed.onGPUs(t, "sh", "-c", "echo $BRINGUPD_HOSTS")
	l.flags = append(l.flags, "--nnodes=3:4")
	must(t, fake.Answer("n1", "gpu 3 handle 15"))
	j := bed.run(t, l)
	j.wantCode(0)
	if got := j.stdout.String(); got != "n0,n2,n3\n" {
		t.Errorf("the driver says %q\n%s", got, &j.stderr)
	}
	result := j.result()
	if !slices.Equal(result.Team, []int{0, 2, 3}) || len(result.Dropped) != 1 ||
		result.Dropped[0].Host != "n1" ||
		!strings.Contains(result.Dropped[0].Reason, "GPU 3") {
		t.Errorf("the result is %+v", result)
	}
}

// TestFabricInProgress checks that the gate waits until the fabric manager has finished, and then
// opens.
func TestFabricInProgress(t *testing.T) {
	bed := claim(t, fewNodes)
	l, fake := bed.onGPUs(t, "echo", "started")
	must(t, fake.Answer("n3", "gpu * fabric_state 2"))
	j := bed.start(t, l)
	j.traced(3, "check-waits", "gpu.fabric")
	if _, err := os.Lstat(
		filepath.Join(j.runDir(), signal.ControlDir, signal.NameGateOpen)); err == nil {
		t.Error("the gate is open while a node waits for its fabric")
	}
	must(t, fake.Answer("n3"))
	j.wantCode(0)
	if got := j.stdout.String(); got != "started\n" {
		t.Errorf("the driver says %q\n%s", got, &j.stderr)
	}
}

// TestFabricNeverReady checks that a check which never becomes ready fails after --start-timeout.
func TestFabricNeverReady(t *testing.T) {
	bed := claim(t, fewNodes)
	l, fake := bed.onGPUs(t, "echo", "started")
	l.flags = append(l.flags, "--start-timeout=2s")
	must(t, fake.Answer("n3", "gpu * fabric_state 2"))
	j := bed.run(t, l)
	j.blames(health.CheckFailed, 3, "n3", "gpu.fabric", "GPU 0")
	if got := j.stdout.String(); got != "" {
		t.Errorf("the driver has run: %q", got)
	}
}

// TestNVMLHangs checks that an unresponsive NVIDIA driver fails the check of its node, but does not
// block the daemon.
func TestNVMLHangs(t *testing.T) {
	bed := claimEarly(t, fewNodes)
	l, fake := bed.onGPUs(t, "echo", "started")
	l.flags = append(l.flags, "--start-timeout=2s")
	must(t, fake.Answer("n1", "hang nvmlDeviceGetCount"))
	j := bed.run(t, l)
	j.blames(health.CheckFailed, 1, "n1", "gpu.driver_unresponsive", "nvmlDeviceGetCount")
	if got := j.stdout.String(); got != "" {
		t.Errorf("the driver has run: %q", got)
	}
}

// traced waits for an event in a node's event log that contains all these words.
func (j *job) traced(rank int, words ...string) {
	j.t.Helper()
	dir := filepath.Join(j.runDir(), signal.EventsDir)
	eventually(j.t, func() string {
		text, err := os.ReadFile(filepath.Join(dir, signal.EventsName("daemon", rank, 4)))
		for line := range strings.Lines(string(text)) {
			if !slices.ContainsFunc(words, func(word string) bool {
				return !strings.Contains(line, word)
			}) {
				return ""
			}
		}
		return fmt.Sprintf("no event with %q in %s (%v)\n%s", words, text, err, &j.stderr)
	})
}

// TestXidEndsTheJob checks that the job ends if a GPU falls off the bus while the driver runs.
func TestXidEndsTheJob(t *testing.T) {
	bed := claim(t, fewNodes)
	l, fake := bed.onGPUs(t, "sleep", "1004")
	j := bed.start(t, l)
	bed.find(t, 0, "sleep", "1004")
	fallen := time.Now()
	must(t, fake.Add("n2", "event 3 xid 79"))
	result := j.blames(health.GPUFailed, 2, "n2", "GPU 3", "Xid 79", "fallen off")
	t.Logf("the job has ended %s after the event, and %s after its start", time.Since(fallen),
		result.Duration)
	if took := time.Since(fallen); took > soon {
		t.Errorf("the job has ended %s after the event, want at most %s\n%s", took, soon, &j.stderr)
	}
}

// TestXidOfTheDriver checks that an Xid which the driver itself may have caused does not end the
// job, and is reported if the driver fails.
func TestXidOfTheDriver(t *testing.T) {
	bed := claim(t, fewNodes)
	failing := filepath.Join(bed.Bin(), "failing-"+filepath.Base(bed.place(t)))
	l, fake := bed.onGPUs(t, "sh", "-c",
		"echo started; until [ -e "+failing+" ]; do sleep 0.1; done; exit 3")
	j := bed.start(t, l)
	eventually(t, func() string {
		if j.stdout.String() == "" {
			return "the driver has not started\n" + j.stderr.String()
		}
		return ""
	})
	must(t, fake.Add("n2", "event 5 xid 31"))
	j.reached(filepath.Join(signal.NodesDir, signal.EventName(2, 4, 1)))
	must(t, os.WriteFile(failing, nil, 0o644))
	j.wantCode(3)
	events := j.result().Events
	if len(events) != 1 || events[0].NodeIndex != 2 ||
		!strings.Contains(events[0].Message, "Xid 31") ||
		!strings.Contains(events[0].Message, "GPU 5") {
		t.Errorf("the events are %+v", events)
	}
	if !strings.Contains(j.stderr.String(), "Xid 31") {
		t.Errorf("the last words lack the Xid: %s", &j.stderr)
	}
}

// TestSlowGPUs checks slow GPUs. On one node, without persistence mode, NVIDIA's driver attaches
// the GPUs one after the other for each first process. On another node, a GPU does not respond for
// as long as its own processor may take. The gate must wait for both, with a message that says why,
// and afterwards all GPUs must be monitored, by the processes that opened them.
func TestSlowGPUs(t *testing.T) {
	bed := claimEarly(t, fewNodes)
	l, fake := bed.onGPUs(t, "sleep", "1007")
	must(t, fake.Answer("n2", "gpu * attach 4"))
	must(t, fake.Answer("n1", "gpu 6 slow nvmlDeviceGetVbiosVersion 45"))
	j := bed.start(t, l)
	j.traced(2, "check-waits",
		"gpu.nvml: 1 of 8 GPUs are initialised; waiting for nvmlDeviceGetHandleByIndex_v2 of GPU ")
	j.traced(1, "check-waits",
		"gpu.nvml: 8 of 8 GPUs are initialised; waiting for nvmlDeviceGetVbiosVersion of GPU 6")
	j.traced(2, "check-waits", "gpu.nvml: 7 of 8 GPUs are initialised")
	j.traced(1, "watch", `"gpus":8`)
	j.traced(2, "watch", `"gpus":8`)
	bed.find(t, 0, "sleep", "1007")
	must(t, fake.Add("n2", "event 3 xid 79"))
	j.blames(health.GPUFailed, 2, "n2", "GPU 3", "Xid 79")
}

// TestUnfitGPU checks that an event which only makes a GPU unfit for the next job does not end the
// job, but marks the node as bad.
func TestUnfitGPU(t *testing.T) {
	bed := claim(t, fewNodes)
	l, fake := bed.onGPUs(t, "sleep", "5")
	j := bed.start(t, l)
	bed.find(t, 0, "sleep", "5")
	must(t, fake.Add("n2", "event 3 xid 64"))
	j.wantCode(0)
	result := j.result()
	if !slices.Equal(result.BadNodes, []string{"n2"}) || len(result.Events) != 1 ||
		!strings.Contains(result.Events[0].Message, "Xid 64") {
		t.Errorf("the bad nodes are %v, and the events %+v", result.BadNodes, result.Events)
	}
}

// TestOddNode checks that a node which differs from the other three is reported, and with
// --gpu-check=strict is refused.
func TestOddNode(t *testing.T) {
	bed := claim(t, fewNodes)
	for _, strict := range []bool{false, true} {
		l, fake := bed.onGPUs(t, "echo", "started")
		if strict {
			l.flags[0] = "--gpu-check=strict"
			l.flags = append(l.flags, "--check=host.*=off")
		}
		must(t, fake.Answer("n3", "driver 550.54.15"))
		j := bed.run(t, l)
		if !strict {
			j.wantCode(0)
			if want := "the nodes differ: x.driver"; !strings.Contains(j.stderr.String(),
				want) {
				t.Errorf("%q is not told\n%s", want, &j.stderr)
			}
			continue
		}
		j.blames(health.NodesDiffer, 3, "n3", "x.driver", "550.54.15")
	}
}

// TestWatchThatDies checks that a killed GPU monitor is restarted and reports what it has missed.
func TestWatchThatDies(t *testing.T) {
	bed := claim(t, fewNodes)
	l, fake := bed.onGPUs(t, "sleep", "1006")
	j := bed.start(t, l)
	bed.find(t, 0, "sleep", "1006")
	must(t, syscall.Kill(bed.find(t, 2, program, "gpu-child"), syscall.SIGKILL))
	must(t, fake.Add("n2", "gpu 4 recovery 2"))
	j.blames(health.GPUFailed, 2, "n2", "GPU 4", "reboot")
	j.traced(2, "is restarted", "SIGKILL")
}

// TestCUDAMismatch checks a node on which NVML works and CUDA does not.
func TestCUDAMismatch(t *testing.T) {
	bed := claim(t, fewNodes)
	l, fake := bed.onGPUs(t, "echo", "started")
	must(t, fake.Answer("n3", "return cuInit 214"))
	j := bed.run(t, l)
	j.blames(health.CheckFailed, 3, "n3", "cuda.init", "ECC_UNCORRECTABLE (214)")
	if got := j.stdout.String(); got != "" {
		t.Errorf("the driver has run: %q", got)
	}
}

// TestNoNVMLOnANode checks the report if the library is missing on one node.
func TestNoNVMLOnANode(t *testing.T) {
	bed := claim(t, fewNodes)
	l, _ := bed.onGPUs(t, "echo", "started")
	built, err := library()
	must(t, err)
	dir := "/tmp/" + filepath.Base(bed.place(t)) // each node has its own /tmp
	for node := range 4 {
		if node != 1 {
			bed.onNode(t, node, "sh", "-c", "mkdir "+dir+" && ln -s "+filepath.Dir(built.Library)+"/lib*.so.1 "+dir)
			t.Cleanup(func() { bed.onNode(t, node, "rm", "-r", dir) })
		}
	}
	bed.setenv("LD_LIBRARY_PATH", dir)
	j := bed.run(t, l)
	j.blames(health.CheckFailed, 1, "n1", "gpu.nvml")
	if got := j.stdout.String(); got != "" {
		t.Errorf("the driver has run: %q", got)
	}
}

// TestMixedModels checks a healthy node whose GPUs differ from those of the other nodes.
func TestMixedModels(t *testing.T) {
	bed := claim(t, fewNodes)
	l, fake := bed.onGPUs(t, "echo", "started")
	must(t, fake.Answer("n3", "gpu * name NVIDIA A100-SXM4-80GB"))
	j := bed.run(t, l)
	j.blames(health.NodesDiffer, 3, "n3", "x.gpu_model", "A100")
	if got := j.stdout.String(); got != "" {
		t.Errorf("the driver has run: %q", got)
	}
}
