package fitness

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// The IDs of the checks of the CUDA driver.
const (
	idCUDAInit    = "cuda.init"
	idCUDADevices = "cuda.devices"
)

// CUDACheckIDs returns the IDs of all checks that CheckCUDA makes.
func CUDACheckIDs() []string { return []string{idCUDAInit, idCUDADevices} }

// CanQueryCUDA reports whether the CUDA driver may be queried: NVML shows the job a GPU that
// answers, and the driver does not hang for a GPU, because a CUDA call would hang as well.
func CanQueryCUDA(f gpu.Facts, want Expectation) bool {
	hangs := func(g gpu.GPU) bool { return g.Handle == gpu.DriverUnresponsive }
	return f.Init == gpu.Success && !want.HasNoGPUs() && !slices.ContainsFunc(f.GPUs, hangs) &&
		len(selectGPUs(f, want).answeringGPUs()) > 0
}

// CheckCUDA compares what CUDA shows with what NVML shows the job, and returns the findings. If
// cuInit has failed, it is the only finding. If the job needs no GPUs, the worst verdict is Warn.
func CheckCUDA(shown gpu.CUDAFacts, f gpu.Facts, want Expectation) []check.Finding {
	findings := []check.Finding{cudaInitFinding(shown, f)}
	if shown.Init == gpu.Success {
		findings = append(findings, cudaDevicesFinding(shown, f, want))
	}
	for i := range findings {
		if one := &findings[i]; !want.NeedsGPUs() && (one.Verdict == check.Fail || one.Verdict == check.Wait) {
			one.Verdict = check.Warn
		}
	}
	return findings
}

func cudaInitFinding(shown gpu.CUDAFacts, f gpu.Facts) check.Finding {
	if shown.Init == gpu.Success {
		return check.Finding{ID: idCUDAInit, Source: "cuInit", Verdict: check.Pass, Observed: shown.Loaded}
	}
	m, known := cudaFailures[shown.Init]
	if !known {
		m = environmentFault("cuInit failed", hintCUDAReload)
	}
	finding := check.Finding{
		ID: idCUDAInit, Source: "cuInit", Expected: "cuInit succeeds",
		Verdict: m.verdict, Class: m.class, Hint: m.hint, Observed: m.observed + ": " + string(shown.Init),
	}
	if shown.Code != 0 {
		finding.Observed += fmt.Sprintf(" (%d)", shown.Code)
	}
	if shown.Detail != "" {
		finding.Observed += ": " + textutil.TruncateText(shown.Detail, 2*maxTextLength)
	}
	if driver, ok := f.Driver.Get(); ok && shown.Loaded != "" {
		finding.Observed += fmt.Sprintf("; loaded: %s; NVIDIA driver: %s", shown.Loaded, driver)
	}
	if shown.VisibleDevices != nil && (shown.Init == "NO_DEVICE" || shown.Init == "INVALID_DEVICE") {
		blameCUDAList(&finding, *shown.VisibleDevices)
	}
	return finding
}

func blameCUDAList(f *check.Finding, visible string) {
	f.Class = check.ClassUser
	f.Observed += fmt.Sprintf("; %s is %q", gpu.VisibleDevicesVariable, textutil.TruncateText(visible, maxTextLength))
	f.Hint = "use CUDA's indices or UUIDs (nvidia-smi -L) in " + gpu.VisibleDevicesVariable +
		": CUDA ignores all entries after an invalid one"
}

// cudaDevicesFinding compares the number of devices with NVML's. According to NVIDIA's guide to MIG,
// CUDA shows a process at most one instance, and then no whole GPU, so under MIG one is enough.
func cudaDevicesFinding(shown gpu.CUDAFacts, f gpu.Facts, want Expectation) check.Finding {
	e := check.FindingBuilder{Template: check.Finding{ID: idCUDADevices, Source: "cuDeviceGetCount"}}
	usable := selectGPUs(f, want).answeringGPUs()
	least := len(usable)
	if slices.ContainsFunc(usable, func(g gpu.GPU) bool { return g.MIG.OrZero().Current }) {
		least = 1
	}
	switch count, ok := shown.Count.Get(); {
	case !ok:
		e.AddFinding(check.Unknown, check.ClassNode,
			"cannot count the devices: "+shown.Count.Reason.DisplayText(), "", hintReset)
	case count >= least:
		e.AddPass(fmt.Sprintf("%d %s", count, textutil.PluralForm(count, "device")))
	default:
		finding := e.AddFailure(check.ClassEnvironment,
			fmt.Sprintf("%d of the %d GPUs that NVML shows", count, len(usable)),
			strconv.Itoa(least), "check that the job's cgroup or container has the /dev/nvidia* "+
				"files of all its GPUs; "+
				"see nvidia-smi -q for a needed reset, and dmesg for NVRM lines")
		if shown.VisibleDevices != nil {
			blameCUDAList(finding, *shown.VisibleDevices)
		}
	}
	return e.Findings[0]
}

type cudaFailure struct {
	verdict  check.Verdict
	class    check.Class
	observed string
	hint     string
}

// environmentFault returns a failure that is no fault of the node's hardware.
func environmentFault(observed, hint string) cudaFailure {
	return cudaFailure{check.Fail, check.ClassEnvironment, observed, hint}
}

const (
	hintMPS = "check that nvidia-cuda-mps-control runs for this user with the same " +
		"CUDA_MPS_PIPE_DIRECTORY; or unset the variable and switch the GPUs from " +
		"EXCLUSIVE_PROCESS to DEFAULT (nvidia-smi -c 0)"
	hintCUDAReload = "check that /dev/nvidia-uvm exists and can be opened (modprobe nvidia_uvm; " +
		"nvidia-modprobe -u -c 0; in a container, NVIDIA's runtime or --nv), see dmesg for NVRM " +
		"and nvidia-uvm lines, or reboot"
	hintCUDALibrary = "use the libcuda.so.1 of the loaded NVIDIA driver: remove directories with " +
		"another one (such as /usr/local/cuda/compat, or the toolkit's lib64/stubs) from " +
		"LD_LIBRARY_PATH; after a driver update, reboot the node"
	hintCUDADevices = "check that the job's cgroup or container has the device files of its GPUs (/dev/nvidia0 …, " +
		"/dev/nvidia-caps under MIG), and see nvidia-smi -q for a GPU that needs a reset or has MIG but no instance"
)

// cudaFailures are the known failures of cuInit, by their names in cuda.h. Failures that cuInit
// never returns (of launches, modules, streams) are left out.
var cudaFailures = map[gpu.NVMLReturn]cudaFailure{
	gpu.LibraryNotFound: environmentFault("cannot load CUDA's libcuda.so.1, although NVML's library can be loaded",
		"in a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility (utility alone gives "+
			"nvidia-smi without CUDA), or "+
			"run it with --nv; on the node itself, install the CUDA part of the NVIDIA driver"),
	gpu.FunctionNotFound: environmentFault("the loaded libcuda.so.1 has no cuInit", hintCUDALibrary),
	gpu.NoCgo:            {check.Skip, "", "this bringupd was built without cgo and cannot query CUDA", ""},
	gpu.DriverUnresponsive: {check.Fail, check.ClassNode, "the CUDA driver does not respond",
		"drain and reboot the node: processes that use a hung driver cannot be killed"},
	gpu.ProbeDied: {check.Unknown, check.ClassEnvironment, "the process that queried the CUDA driver died",
		"run a small CUDA program on the node (nvidia-smi uses only NVML): if it crashes too, the " +
			"driver's libraries are broken"},

	// CUDA reserves as many addresses as all GPUs and the host have memory.
	"OUT_OF_MEMORY": environmentFault("cuInit ran out of memory",
		"raise the address space limit (ulimit -v unlimited), and check the free host memory of the job's cgroup"),
	"STUB_LIBRARY": environmentFault("the loaded libcuda.so.1 is the toolkit's stub", hintCUDALibrary),
	"CALL_REQUIRES_NEWER_DRIVER": environmentFault("the NVIDIA driver is too old "+
		"for this libcuda", hintCUDALibrary),
	"SYSTEM_DRIVER_MISMATCH": environmentFault("the version of libcuda does not match the "+
		"loaded NVIDIA driver", hintCUDALibrary),
	"COMPAT_NOT_SUPPORTED_ON_DEVICE": environmentFault("libcuda is from a forward compatibility "+
		"package, which these GPUs do not support", hintCUDALibrary),
	"NO_DEVICE":      environmentFault("CUDA finds no GPU", hintCUDADevices),
	"INVALID_DEVICE": environmentFault("a GPU that CUDA needs is missing or cannot be used", hintCUDADevices),
	"NOT_PERMITTED":  environmentFault("the CUDA driver has no permission to use the GPUs", hintCUDADevices),
	// A container whose seccomp profile refuses a system call causes it, for example.
	"OPERATING_SYSTEM": environmentFault("the operating system rejected a call of the CUDA driver",
		"in a container, check its seccomp profile and capabilities; see dmesg and the job's limits (ulimit -a)"),
	"DEVICE_UNAVAILABLE": environmentFault("a GPU is in exclusive or prohibited mode, or in use by another job",
		"find the processes that use it (nvidia-smi), and set its compute mode to DEFAULT (nvidia-smi -c 0)"),
	"ECC_UNCORRECTABLE":    {check.Fail, check.ClassNode, "a GPU had an uncorrectable memory error", hintReset},
	"NVLINK_UNCORRECTABLE": {check.Fail, check.ClassNode, "a GPU had an uncorrectable NVLink error", hintReset},
	"SYSTEM_NOT_READY": {check.Wait, check.ClassEnvironment,
		"CUDA waits for the initialisation of the node's NVSwitches",
		"check that nvidia-fabricmanager runs in the same version as the driver (Fabric in nvidia-smi -q)"},
	"MPS_CONNECTION_FAILED": environmentFault("MPS is requested, but its daemon cannot be reached", hintMPS),
	"MPS_SERVER_NOT_READY": {check.Wait, check.ClassEnvironment,
		"the MPS server does not accept clients yet", hintMPS},
}
