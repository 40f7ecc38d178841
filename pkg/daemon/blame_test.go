package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/gpu"
	gpufitness "github.com/bringupd/bringupd/pkg/gpu/fitness"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// fault is a problem of a node in the form in which the node's checks report it.
type fault struct {
	name   string
	device bool // evidence against the node itself, whatever the other nodes report
	found  []check.Finding
}

// faults returns faults. Where no hardware is needed, the checks themselves produce the findings.
// The mode is the strictest that a user can configure, so findings that are otherwise warnings
// count as failures too.
func faults(t *testing.T) (all []fault) {
	t.Helper()
	add := func(name string, device bool, found []check.Finding) {
		found = slices.Clone(found)
		for i := range found { // the wait for it has timed out
			if found[i].Verdict == check.Wait {
				found[i].Verdict = check.Fail
			}
		}
		found = check.Policy{Mode: check.ModeStrict}.Apply(found)
		if check.WorstVerdict(found) != check.Fail {
			t.Errorf("%s: the checks find %+v", name, found)
		}
		all = append(all, fault{name, device, found})
	}
	eight := gpufitness.Expectation{Count: 8, CountSource: "--gpus-per-node",
		Mode: check.ModeRequire, Signs: []string{"device file /dev/nvidia0"}}
	for name, why := range map[string]gpu.NVMLReturn{
		"a container without a library": gpu.LibraryNotFound, "the driver is not loaded": gpu.DriverNotLoaded,
		"the library of another driver": gpu.LibRMVersionMismatch, "no device files": gpu.OperatingSystem,
		"device files of another group": gpu.NoPermission, "a bringupd without cgo": gpu.NoCgo,
		"an unknown error of NVML": gpu.UnknownError, "the process that asks NVML dies": gpu.ProbeDied,
		"the driver hangs": gpu.DriverUnresponsive,
	} {
		facts := gpu.Facts{Version: gpu.FactsVersion, Init: why}
		add(name, why == gpu.DriverUnresponsive, gpufitness.EvaluateFacts(facts, eight))
	}
	bare := eight
	bare.Signs = nil
	add("no GPU, and GPUs are required", false, gpufitness.EvaluateFacts(gpu.Facts{Init: gpu.LibraryNotFound}, bare))
	amd := gpu.Facts{Init: gpu.LibraryNotFound,
		OtherGPUs: []gpu.OtherGPU{{Vendor: gpu.AMD, Reason: gpu.NoPermission},
			{Vendor: gpu.AMD, Reason: gpu.NoPermission}}}
	add("a user outside of the group render", false, gpufitness.EvaluateFacts(amd, bare))
	four := func(change func(*gpu.GPU)) gpu.Facts {
		f := gpu.Facts{Version: gpu.FactsVersion, Init: gpu.Success, Count: gpu.Reading[int]{Value: new(4)}}
		for i := range 4 {
			f.GPUs = append(f.GPUs, gpu.GPU{Index: i, Handle: gpu.Success})
		}
		change(&f.GPUs[3])
		return f
	}
	granted := gpufitness.Expectation{Count: 4, CountSource: "SLURM_GPUS_ON_NODE", Mode: check.ModeAuto}
	add("--gpus-per-node=8 on nodes with four", false, gpufitness.EvaluateFacts(four(func(*gpu.GPU) {}), eight))
	listed := granted
	listed.Count, listed.CountSource, listed.Visible = 1, gpu.VisibleDevicesVariable, []gpu.Selector{{Index: 7}}
	add("CUDA_VISIBLE_DEVICES names a GPU that does not exist", false,
		gpufitness.EvaluateFacts(four(func(*gpu.GPU) {}), listed))
	gpus := func(name string, change func(*gpu.GPU)) {
		add(name, true, gpufitness.EvaluateFacts(four(change), granted))
	}
	gpus("a GPU is lost", func(g *gpu.GPU) { g.Handle = gpu.GPUIsLost })
	gpus("a GPU must be reset", func(g *gpu.GPU) { g.Handle = gpu.ResetRequired })
	gpus("the driver asks for a reset", func(g *gpu.GPU) { g.Recovery = gpu.Reading[int]{Value: new(1)} })
	gpus("a row could not be remapped", func(g *gpu.GPU) {
		g.Remapped = gpu.Reading[gpu.RemappedRows]{Value: &gpu.RemappedRows{Failed: true}}
	})
	gpus("too many errors of SRAM", func(g *gpu.GPU) {
		g.SRAM = gpu.Reading[gpu.MemoryErrors]{Value: &gpu.MemoryErrors{ThresholdExceeded: true}}
	})

	healthy := four(func(*gpu.GPU) {})
	for name, why := range map[string]gpu.NVMLReturn{
		"no libcuda": gpu.LibraryNotFound, "no memory for CUDA": "OUT_OF_MEMORY",
		"the toolkit's stub of libcuda": "STUB_LIBRARY",
		"CUDA finds no GPU":             "NO_DEVICE", "a seccomp profile": "OPERATING_SYSTEM",
		"MPS without its daemon":      "MPS_CONNECTION_FAILED",
		"a libcuda of another driver": "SYSTEM_DRIVER_MISMATCH", "no nvidia-uvm": "UNKNOWN",
		"CUDA meets an uncorrectable memory error": "ECC_UNCORRECTABLE",
	} {
		add(name, why == "ECC_UNCORRECTABLE", gpufitness.CheckCUDA(gpu.CUDAFacts{Init: why}, healthy, granted))
	}

	host := func(name string, h check.Host) {
		found := h.Inspect(t.Context(), nil)
		add(name, false, slices.DeleteFunc(found, func(f check.Finding) bool { return f.Verdict != check.Fail }))
	}
	host("TMPDIR exists on the login node alone", check.Host{TempDir: "/nonexistent/tmp"})
	host("TMPDIR is a file", check.Host{TempDir: "/proc/self/status"})
	host("a larger object store than /dev/shm", check.Host{TempDir: t.TempDir(), ObjectStore: 1 << 60})
	host("a limit of processes", check.Host{TempDir: t.TempDir(), Tasks: 1 << 40, Root: pidsLimit(t)})
	command := func(name, observed string) {
		add(name, false, []check.Finding{{ID: "active.test", Verdict: check.Fail,
			Class: check.ClassEnvironment, Observed: observed}})
	}
	command("a test with a wrong flag", "exit code 2: unknown flag --leest")
	command("a test that hangs", "timed out after 2m and was killed")
	return all
}

// TestBlame injects faults. An environment fault that occurs on all nodes is attributed to the
// launch: no node is blamed, and nothing is requeued or drained. On one node of four it is
// attributed to that node. A device fault is attributed to its node, on however many nodes it
// occurs (N2, N3).
func TestBlame(t *testing.T) {
	t.Parallel()
	all := faults(t)
	if len(all) < 30 {
		t.Errorf("there are %d faults", len(all))
	}
	const size = 4
	for i, f := range all {
		on := []int{2}
		if i%4 == 0 {
			on = []int{0} // the head's node
		}
		rowInBubble(t, f.name+"/on one node", func(t *testing.T) { f.inject(t, size, on, on, 75) })
		everywhere, bad, code := []int{0, 1, 2, 3}, []int(nil), 65
		if f.device {
			bad, code = everywhere, 75
		}
		rowInBubble(t, f.name+"/on all nodes", func(t *testing.T) { f.inject(t, size, everywhere, bad, code) })
		if !f.device {
			rowInBubble(t, f.name+"/on the only node", func(t *testing.T) { f.inject(t, 1, []int{0}, nil, 65) })
		}
	}
}

// inject runs a job with the fault on some nodes and checks which nodes are blamed.
func (f fault) inject(t *testing.T, size int, on, bad []int, code int) {
	t.Helper()
	by := &fakeRequeuer{}
	j := newJob(t, size, "exit 0").requeued(by).withChecks(func(nodeIndex int, l *fakeChecks) {
		if slices.Contains(on, nodeIndex) {
			l.found = f.found
		}
	}).start()
	j.expect(everyone(code, size)...)
	var hosts []string
	for _, nodeIndex := range bad {
		hosts = append(hosts, j.configs[nodeIndex].Identity.Host)
	}
	result := j.result()
	blamed := slices.Sorted(slices.Values(result.BadNodes))
	if !slices.Equal(blamed, hosts) || result.Code != code || (by.requeued > 0) != (code == 75) {
		t.Errorf("the result is %d and blames %v, with %d requeues: %s", result.Code, blamed,
			by.requeued, result.Cause.Message)
	}
	if said := j.said(); code == 65 && strings.Contains(said, "state=drain") {
		t.Errorf("somebody is told to drain a node:\n%s", said)
	}
}

// TestSameFindingElsewhere verifies that a job stops with code 65 if it was restarted without the
// node that failed a check and then fails the same check on another node (N2).
func TestSameFindingElsewhere(t *testing.T) {
	t.Parallel()
	temp := check.Finding{ID: "host.disk", Verdict: check.Fail, Class: check.ClassEnvironment,
		Observed: "TMPDIR=/scratch/x: no such file or directory"}
	for name, tc := range map[string]struct {
		rank, code int
	}{
		"another node":       {1, 65},
		"the node of before": {2, 75},
	} {
		rowInBubble(t, name, func(t *testing.T) {
			failsOn := func(j *job, bad int) *job {
				return j.withChecks(func(nodeIndex int, l *fakeChecks) {
					if nodeIndex == bad {
						l.found = []check.Finding{temp}
					}
				}).all(func(c *deps.Config) { c.Identity.Launcher = launcher.LauncherSlurm })
			}
			first := failsOn(newJob(t, 4, "exit 0"), 2).start()
			first.expect(everyone(75, 4)...)
			again := failsOn(newJob(t, 4, "exit 0"), tc.rank).all(func(c *deps.Config) { c.Identity.Restart = 1 })
			again.share, again.net = first.share, first.net
			again.start().expect(everyone(tc.code, 4)...)
			if tc.code == 65 && !strings.Contains(again.said(),
				"an earlier attempt failed the same check on another node") {
				t.Errorf("nobody says why:\n%s", again.said())
			}
		})
	}
}

// TestEvidenceComesLater verifies that a node that passes its checks some time after another node
// has failed one is evidence against the failed node, and that the wait for a node that never
// reports is bounded.
func TestEvidenceComesLater(t *testing.T) {
	t.Parallel()
	temp := check.Finding{ID: "host.disk", Verdict: check.Fail, Class: check.ClassEnvironment,
		Observed: "no such file or directory"}
	for name, tc := range map[string]struct {
		after time.Duration // after all other nodes
		code  int
	}{
		"in time": {20 * time.Second, 75},
		"never":   {0, 65},
	} {
		rowInBubble(t, name, func(t *testing.T) {
			waits := make(chan struct{})
			j := newJob(t, 3, "exit 0").withChecks(func(nodeIndex int, l *fakeChecks) {
				if nodeIndex == 1 {
					l.found = []check.Finding{temp}
				} else {
					l.waits = waits
				}
			}).start()
			began := time.Now()
			if tc.after > 0 {
				time.AfterFunc(tc.after, func() { close(waits) })
			}
			j.expect(everyone(tc.code, 3)...)
			if took := time.Since(began); took > health.EvidenceTimeout+10*time.Second {
				t.Errorf("the end came after %s", took)
			}
			if !j.has(signal.NodesDir, signal.NodeName(1, 3, record.StateFailed)) {
				t.Error("the node has not told of its failure")
			}
		})
	}
}

// pidsLimit returns the root of a file system whose cgroup allows 100 processes.
func pidsLimit(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/job/pids.max": "100\n", "sys/fs/cgroup/job/pids.current": "60\n",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
