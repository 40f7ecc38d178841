package fitness

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

const sourceInit = "nvmlInit_v2"

// initFailure describes a failure of nvmlInit. It has one verdict for jobs that need GPUs, and one
// for jobs of which this is not known.
type initFailure struct {
	verdictIfNeeded, verdictOtherwise check.Verdict
	observed                          string
	hint                              string
}

// initFailures are the meanings of the failures of nvmlInit. A node without GPUs often has the
// library but no driver, and a job without GPUs may have no access to the driver. Neither is a
// fault if the job needs no GPU.
var initFailures = map[gpu.NVMLReturn]initFailure{
	gpu.LibraryNotFound: {check.Fail, check.Skip, "libnvidia-ml.so.1 not found",
		"in a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility or run it with --nv; on a " +
			"node without the NVIDIA driver, choose nodes with GPUs, or drop --gpus-per-node, or use --gpu-check=off"},
	gpu.DriverNotLoaded: {check.Wait, check.Skip, "the NVIDIA driver is not loaded",
		"load it (modprobe nvidia), see dmesg for the reason, or use --gpu-check=off if the job needs no GPU"},
	gpu.LibRMVersionMismatch: {check.Fail, check.Fail, "the version of the NVML library differs " +
		"from that of the loaded NVIDIA driver",
		"reboot the node after a driver update; a container must use the host's " +
			"libnvidia-ml.so.1, which the NVIDIA container runtime mounts"},
	gpu.OperatingSystem: {check.Fail, check.Warn, "the operating system or a cgroup denies this " +
		"process access to /dev/nvidiactl",
		"give the container or the job step access to the /dev/nvidia* devices: request GPUs from " +
			"Slurm, or run the container with --gpus or --nv"},
	gpu.NoPermission: {check.Fail, check.Warn, "this user has no permission to use the NVIDIA driver",
		"give this user access to /dev/nvidiactl and /dev/nvidia* (NVreg_DeviceFileMode, the " +
			"group of the device files)"},
	gpu.NoCgo: {check.Unknown, check.Skip, "this bringupd was built without cgo and cannot query GPUs",
		"use a bringupd built with CGO_ENABLED=1, or use --gpu-check=off"},
	gpu.DriverUnresponsive: {check.Fail, check.Fail, "the NVIDIA driver does not respond",
		"drain and reboot the node: processes that access a hung driver cannot be killed, so the " +
			"job step may hang until the reboot"},
	gpu.ProbeDied: {check.Unknown, check.Unknown, "the process that queried NVML died",
		"run \"bringupd check\" and nvidia-smi on the node: if they crash too, the NVIDIA driver " +
			"or its library is broken"},
	gpu.UnknownError: {check.Fail, check.Unknown, "cannot initialise NVML: UNKNOWN, an internal " +
		"error of the NVIDIA driver",
		"see dmesg for NVRM lines and reboot the node"},
}

func initFailureFinding(f gpu.Facts, want Expectation) check.Finding {
	a, known := initFailures[f.Init]
	if !known {
		a = initFailure{check.Unknown, check.Unknown, "cannot initialise NVML: " +
			f.Init.DisplayText(), "see dmesg for NVRM lines, and run nvidia-smi on the node"}
	}
	// Choose the verdict by whether the job needs GPUs.
	finding := check.Finding{
		ID: "gpu.nvml", Verdict: a.verdictOtherwise, Observed: a.observed,
		Expected: "nvmlInit succeeds", Source: sourceInit, Hint: a.hint, Class: check.ClassEnvironment,
	}
	switch {
	case want.NeedsGPUs():
		finding.Verdict = a.verdictIfNeeded
	case want.HasNoGPUs() && f.Init == gpu.DriverUnresponsive:
		finding.Verdict = check.Warn // the job does not need the driver, but the operator should know
	case want.HasNoGPUs():
		finding.Verdict = check.Skip
	}
	// Add details for some failures.
	switch f.Init {
	case gpu.LibraryNotFound:
		explainMissingLibrary(&finding, want)
	case gpu.DriverUnresponsive:
		finding.ID, finding.Expected, finding.Class = "gpu.driver_unresponsive", "a response", check.ClassNode
	case gpu.NoCgo:
		finding.Source = "bringupd"
		warnIfSigns(&finding, want)
	case gpu.DriverNotLoaded:
		warnIfSigns(&finding, want)
	}
	if f.Detail != "" {
		finding.Observed += ": " + textutil.TruncateText(f.Detail, maxTextLength)
	}
	if finding.Verdict == check.Skip { // the job is not affected
		finding.Hint, finding.Class = "", ""
	}
	return finding
}

// AttachingFinding returns the finding for a query that is waiting for the driver to attach the
// GPUs.
func AttachingFinding(p gpu.Progress) check.Finding {
	observed := fmt.Sprintf("%d of %d GPUs are initialised", p.Initialised, p.Total)
	if p.SlowCalls != "" {
		observed += "; waiting for " + textutil.TruncateText(p.SlowCalls, maxTextLength)
	}
	return check.Finding{
		ID: "gpu.nvml", Verdict: check.Wait, Class: check.ClassNode, Source: sourceInit,
		Observed: observed, Expected: "all GPUs",
		Hint: "run nvidia-persistenced on the node: without persistence mode the NVIDIA driver " +
			"initialises the GPUs one by one for each job",
	}
}

// warnIfSigns turns a Skip into a Warn if there are signs of GPUs on the node, and adds them to the
// finding.
func warnIfSigns(f *check.Finding, want Expectation) {
	if len(want.Signs) == 0 || want.HasNoGPUs() {
		return
	}
	if f.Verdict == check.Skip {
		f.Verdict = check.Warn
	}
	f.Observed += ", but there are signs of GPUs: " +
		textutil.TruncateText(strings.Join(want.Signs, ", "), maxTextLength)
}

func explainMissingLibrary(f *check.Finding, want Expectation) {
	warnIfSigns(f, want)
	switch signs := len(want.Signs) > 0; {
	case signs && !gpu.HasOnlyPCIDevices(want.Signs):
		f.Hint = "the NVIDIA driver is loaded but its library is missing, as in a container: set " +
			"NVIDIA_DRIVER_CAPABILITIES=compute,utility, or use --nv"
	case signs:
		f.Hint = "install and load the NVIDIA driver on this node, or use --gpu-check=off if the job needs no GPU"
	}
	if want.Count > 0 {
		f.Observed += fmt.Sprintf("; %d GPUs are expected (%s)", want.Count, want.countSourceText())
	}
}
