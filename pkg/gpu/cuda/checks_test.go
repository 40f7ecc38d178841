package cuda

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
)

// uuid returns the UUID of GPU i in CUDA's format.
func uuid(i int) string { return fmt.Sprintf("fa4e000%d-0000-0000-0000-000000000000", i) }

// wanting returns the expectation of a job that needs n GPUs, all connected by NVLink.
func wanting(n int, change ...func(*Expectation)) Expectation {
	w := Expectation{NeedsGPUs: true, Driver: "570.86.15"}
	for i := range n {
		w.GPUs = append(w.GPUs, check.Device{Index: i, UUID: "GPU-" + uuid(i)})
		for other := range i {
			w.NVLinkPairs = append(w.NVLinkPairs, [2]string{"GPU-" + uuid(other), "GPU-" + uuid(i)})
		}
	}
	for _, c := range change {
		c(&w)
	}
	return w
}

// healthy returns the facts of a node with n devices.
func healthy(n int, change ...func(*Facts)) Facts {
	f := Facts{
		Init: newResult(0), Driver: newReading(Result{}, 12080), Count: newReading(Result{}, n), Loaded: "/usr/lib/libcuda.so.570.86.15",
		UVMLoaded: new(true), Files: []DeviceFile{{Path: uvmPath}, {Path: uvmPath + "-tools"}},
	}
	for i := range n {
		f.Devices = append(f.Devices, Device{Ordinal: i, UUID: newReading(Result{}, uuid(i)), Name: newReading(Result{}, "NVIDIA H100")})
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

// failing returns the facts of a node on which cuInit returns the code.
func failing(code ResultCode, change ...func(*Facts)) Facts {
	return healthy(0, slices.Insert(change, 0, func(f *Facts) { f.Init, f.Count = newResult(code), Reading[int]{} })...)
}

func visible(list string) func(*Facts) { return func(f *Facts) { f.VisibleDevices = &list } }

func without(module bool, why string) func(*Facts) {
	return func(f *Facts) { f.UVMLoaded, f.Files[0].Reason = &module, why }
}

func apart(a, b int, answer Result) func(*Facts) {
	return func(f *Facts) {
		f.InaccessiblePairs = append(f.InaccessiblePairs, DevicePair{a, b, newReading(answer, false)})
	}
}

func with(paths ...DeviceFile) func(*Facts) {
	return func(f *Facts) { f.Files = append(f.Files, paths...) }
}

func idle(w *Expectation)    { w.NeedsGPUs = false }
func cutUp(w *Expectation)   { w.Partitioned = true }
func rack(w *Expectation)    { w.MultiNodeFabric = true }
func nowhere(w *Expectation) { w.NVLinkPairs = nil }

// written returns a short form of a finding: ID, verdict, class, device and observation.
func written(f check.Finding) string {
	parts := []string{f.ID, string(f.Verdict)}
	if f.Class != "" {
		parts = append(parts, string(f.Class))
	}
	if f.Strict {
		parts = append(parts, "strict")
	}
	if f.Device != nil {
		parts = append(parts, f.Device.String())
	}
	return strings.Join(append(parts, f.Observed), " ")
}

// TestInit verifies that a failing cuInit is one finding, with its text and a part of its hint.
func TestInit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		facts Facts
		want  Expectation
		says  string
		hint  string
	}{
		{"no library", failing(LibraryNotFound, func(f *Facts) { f.Detail = "libcuda.so.1: cannot open shared object file" }), wanting(1),
			"FAIL environment cannot load CUDA's libcuda.so.1, although NVML's library can be loaded: LIBRARY_NOT_FOUND: libcuda.so.1: cannot open shared object file", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"},
		{"a driver that hangs", failing(Unresponsive, func(f *Facts) { f.Detail = "waiting for cuInit" }), wanting(1),
			"FAIL node the CUDA driver does not respond: DRIVER_UNRESPONSIVE: waiting for cuInit", "reboot"},
		{"a driver that crashes", failing(ProbeDied), wanting(1), "UNKNOWN environment the process that queried the CUDA driver died: PROBE_DIED; loaded: /usr/lib/libcuda.so.570.86.15; NVIDIA driver: 570.86.15", "CUDA program"},
		{"no memory", failing(2), wanting(1), "FAIL environment cuInit ran out of memory: OUT_OF_MEMORY (2)", "ulimit -v"},
		{"the stub", failing(34, func(f *Facts) { f.Loaded = "/usr/local/cuda/lib64/stubs/libcuda.so" }), wanting(1),
			"FAIL environment the loaded libcuda.so.1 is the toolkit's stub, which is only for linking: STUB_LIBRARY (34); loaded: /usr/local/cuda/lib64/stubs/libcuda.so; NVIDIA driver: 570.86.15", "LD_LIBRARY_PATH"},
		{"no device", failing(100), wanting(1), "FAIL environment CUDA finds no GPU: NO_DEVICE (100)", "/dev/nvidia0"},
		{"no device by the job's own word", failing(100, visible("")), wanting(1), `FAIL user CUDA finds no GPU: NO_DEVICE (100); CUDA_VISIBLE_DEVICES is ""`, "nvidia-smi -L"},
		{"no instance that can be opened", failing(100, with(DeviceFile{capsDir + "/nvidia-cap21", "EPERM"})), wanting(1, cutUp),
			"FAIL environment CUDA finds no GPU: NO_DEVICE (100); the GPUs use MIG, but none of 1 files in /dev/nvidia-caps can be opened", "/dev/nvidia-caps"},
		{"no instance", failing(100, with(DeviceFile{Path: capsDir + "/nvidia-cap21"})), wanting(1, cutUp), "FAIL environment CUDA finds no GPU: NO_DEVICE (100)", "no instance"},
		{"a fabric manager that is not done", failing(802), wanting(1), "WAIT environment CUDA waits for the initialisation of the node's NVSwitches: SYSTEM_NOT_READY (802)", "nvidia-fabricmanager"},
		{"and no job that needs it", failing(802), wanting(1, idle), "WARN environment CUDA waits for the initialisation of the node's NVSwitches: SYSTEM_NOT_READY (802)", "nvidia-fabricmanager"},
		{"another version", failing(803, func(f *Facts) { f.Loaded = "/usr/local/cuda/compat/libcuda.so.535.54.03" }), wanting(1),
			"FAIL environment the version of libcuda does not match the loaded NVIDIA driver: SYSTEM_DRIVER_MISMATCH (803); loaded: /usr/local/cuda/compat/libcuda.so.535.54.03; NVIDIA driver: 570.86.15", "reboot"},
		{"forward compatibility", failing(804, func(f *Facts) { f.Loaded = "" }), wanting(1),
			"FAIL environment the loaded libcuda is from a forward compatibility package, which these GPUs do not support: COMPAT_NOT_SUPPORTED_ON_DEVICE (804); NVIDIA driver: 570.86.15", "compat"},
		{"MPS", failing(805), wanting(1), "FAIL environment MPS is requested, but its daemon cannot be reached: MPS_CONNECTION_FAILED (805)", "nvidia-cuda-mps-control"},
		{"unknown: wedged", failing(999), wanting(1), "FAIL environment the CUDA driver cannot start, for an unknown reason: UNKNOWN (999)", "modprobe -r nvidia_uvm"},
		{"unknown: no module", failing(999, without(false, "ENXIO")), wanting(1), "FAIL environment the CUDA driver cannot start, for an unknown reason: UNKNOWN (999); the kernel module nvidia_uvm is not loaded", "modprobe nvidia_uvm"},
		{"unknown: no file", failing(999, without(true, "ENOENT")), wanting(1), "FAIL environment the CUDA driver cannot start, for an unknown reason: UNKNOWN (999); /dev/nvidia-uvm does not exist", "nvidia-modprobe"},
		{"unknown: a cgroup", failing(999, without(true, "EPERM")), wanting(1), "FAIL environment the CUDA driver cannot start, for an unknown reason: UNKNOWN (999); cannot open /dev/nvidia-uvm: EPERM", "cgroup"},
		{"unknown: an old file", failing(999, without(true, "ENXIO")), wanting(1), "FAIL environment the CUDA driver cannot start, for an unknown reason: UNKNOWN (999); cannot open /dev/nvidia-uvm: ENXIO", "create it again"},
		{"unknown: the module is not known", failing(999, without(true, "ENOENT"), func(f *Facts) { f.UVMLoaded = nil }), wanting(1),
			"FAIL environment the CUDA driver cannot start, for an unknown reason: UNKNOWN (999); /dev/nvidia-uvm does not exist", "nvidia-modprobe"},
		{"unknown: nobody looked", failing(999, func(f *Facts) { f.Files, f.UVMLoaded = nil, nil }), wanting(1), "FAIL environment the CUDA driver cannot start, for an unknown reason: UNKNOWN (999)", "dmesg"},
		{"of tomorrow", failing(777, func(f *Facts) { f.Init.Name = "OF_TOMORROW" }), wanting(1), "FAIL environment cuInit failed: OF_TOMORROW (777)", "CUresult"},
		{"without a name", failing(778), wanting(1), "FAIL environment cuInit failed: CODE_778 (778)", "CUresult"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := CheckFacts(tc.facts, tc.want)
			if len(got) != 1 || written(got[0]) != "cuda.init "+tc.says || !strings.Contains(got[0].Hint, tc.hint) || got[0].Source == "" {
				t.Errorf("got  %+v\nwant %s … %s", got, tc.says, tc.hint)
			}
		})
	}
}

// TestAnswers verifies that each result code has a sentence and an advice.
func TestAnswers(t *testing.T) {
	for code, m := range knownResults {
		switch {
		case m.name == "", newResult(code).Name != m.name:
			t.Errorf("%d has no name of its own", code)
		case code != 0 && m.observed == "", m.verdict != check.Skip && code != 0 && (m.hint == "" || m.class == ""):
			t.Errorf("%s says too little: %+v", m.name, m)
		}
	}
}

// TestShown compares CUDA's devices after cuInit with those of NVML.
func TestShown(t *testing.T) {
	lost := func(f *Facts) { f.Devices[1].UUID = Reading[string]{Reason: Result{Code: 999}} }
	for _, tc := range []struct {
		name  string
		facts Facts
		want  Expectation
		says  []string // about the devices and the peers
	}{
		{"healthy", healthy(2), wanting(2), []string{"cuda.devices PASS 2 devices", "cuda.peers PASS 1 pair"}},
		{"more than the job's", healthy(3), wanting(1), []string{"cuda.devices PASS 3 devices", "cuda.peers SKIP CUDA shows no GPUs connected by NVLink"}},
		{"one is missing", healthy(2), wanting(3), []string{"cuda.devices FAIL environment GPU 2 visible in NVML but not in CUDA", "cuda.peers PASS 1 pair"}},
		{"and nobody needs it", healthy(2), wanting(3, idle, nowhere), []string{"cuda.devices WARN environment GPU 2 visible in NVML but not in CUDA", "cuda.peers SKIP CUDA shows no GPUs connected by NVLink"}},
		{"one is missing by the job's own word", healthy(1, visible("0,9,1")), wanting(2, nowhere),
			[]string{`cuda.devices FAIL user GPU 1 visible in NVML but not in CUDA; CUDA_VISIBLE_DEVICES is "0,9,1"`, "cuda.peers SKIP CUDA shows no GPUs connected by NVLink"}},
		{"NVML does not say which", healthy(1), wanting(2, nowhere, func(w *Expectation) { w.GPUs[0].UUID, w.GPUs[1].UUID = "", "" }),
			[]string{"cuda.devices FAIL environment 1 of the 2 GPUs that NVML shows", "cuda.peers SKIP CUDA shows no GPUs connected by NVLink"}},
		{"CUDA does not say which", healthy(2, lost), wanting(2),
			[]string{"cuda.devices UNKNOWN node cannot read the UUIDs: device 1: UNKNOWN (999)", "cuda.peers SKIP CUDA shows no GPUs connected by NVLink"}},
		{"no count", healthy(0, func(f *Facts) { f.Count = Reading[int]{Reason: Result{Code: 3}} }), wanting(1, nowhere),
			[]string{"cuda.devices UNKNOWN node cannot count the devices: NOT_INITIALIZED (3)", "cuda.peers SKIP CUDA shows no GPUs connected by NVLink"}},
		{"cut up", healthy(1), wanting(7, cutUp), []string{"cuda.devices PASS 1 device; under MIG a process sees at most one instance", "cuda.peers SKIP CUDA shows no GPUs connected by NVLink"}},
		{"one way only", healthy(3, apart(2, 0, Result{})), wanting(3),
			[]string{"cuda.devices PASS 3 devices", "cuda.peers WARN node strict connected by NVLink, but without access to each other's memory: GPU 0 and GPU 2"}},
		{"joined by PCIe only", healthy(2, apart(0, 1, Result{}), apart(1, 0, Result{})), wanting(2, nowhere),
			[]string{"cuda.devices PASS 2 devices", "cuda.peers SKIP CUDA shows no GPUs connected by NVLink"}},
		{"no answer", healthy(2, apart(0, 1, newResult(FunctionNotFound))), wanting(2),
			[]string{"cuda.devices PASS 2 devices", "cuda.peers UNKNOWN node cannot read the peer access of GPUs: GPU 0 and GPU 1: FUNCTION_NOT_FOUND"}},
		{"in a rack", healthy(2, with(DeviceFile{Path: imexChannelDir + "/channel0"})), wanting(2, rack), []string{"cuda.devices PASS 2 devices", "cuda.peers PASS 1 pair"}},
		{"in a rack without a channel", healthy(2), wanting(2, rack),
			[]string{"cuda.devices PASS 2 devices", "cuda.peers WARN node strict no IMEX channel: GPUs of other nodes cannot be reached over NVLink"}},
		{"in a rack with another's channel", healthy(2, with(DeviceFile{imexChannelDir + "/channel7", "EPERM"})), wanting(2, rack),
			[]string{"cuda.devices PASS 2 devices", "cuda.peers WARN node strict none of 1 IMEX channel can be opened: GPUs of other nodes cannot be reached over NVLink"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, f := range CheckFacts(tc.facts, tc.want) {
				got = append(got, written(f))
			}
			want := slices.Insert(slices.Clone(tc.says), 0, "cuda.init PASS CUDA 12.8, /usr/lib/libcuda.so.570.86.15")
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestNoGPU verifies that a node without GPUs is no problem for a job that needs none.
func TestNoGPU(t *testing.T) {
	got := CheckFacts(failing(100), Expectation{})
	if len(got) != 1 || got[0].ID != "cuda.init" || got[0].Verdict != check.Skip || got[0].Hint != "" {
		t.Errorf("got %+v", got)
	}
}

// TestIDs verifies that the findings have no other IDs.
func TestIDs(t *testing.T) {
	for _, f := range CheckFacts(healthy(2), wanting(3)) {
		if !slices.Contains(CheckIDs(), f.ID) {
			t.Errorf("%s is not among %v", f.ID, CheckIDs())
		}
	}
}
