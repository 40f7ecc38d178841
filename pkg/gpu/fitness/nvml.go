package fitness

import (
	"cmp"
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
	// explainMissingLibrary may replace this text
	gpu.LibraryNotFound: {check.Fail, check.Skip, "there is no libnvidia-ml.so.1",
		"in a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility or run it with --nv; on a node without NVIDIA's driver, " +
			"choose nodes that have GPUs, or take back --gpus-per-node, or give --gpu-check=off"},
	gpu.DriverNotLoaded: {check.Wait, check.Skip, "NVIDIA's driver is not loaded",
		"load the driver (modprobe nvidia) and look into dmesg for why it isn't, or give --gpu-check=off if the job needs no GPU"},
	gpu.LibRMVersionMismatch: {check.Fail, check.Fail, "the library is of another version than the driver that is loaded",
		"reboot the node after a driver update, or mend the container: its libnvidia-ml.so.1 must be the host's, as the NVIDIA container runtime mounts it"},
	gpu.OperatingSystem: {check.Fail, check.Warn, "the operating system or a cgroup keeps this process from /dev/nvidiactl",
		"let the container or the job step use the /dev/nvidia* devices: ask Slurm for GPUs, or run the container with --gpus or --nv"},
	gpu.NoPermission: {check.Fail, check.Warn, "this user may not talk to the driver",
		"give this user access to /dev/nvidiactl and /dev/nvidia* (NVreg_DeviceFileMode, the group of the device files)"},
	gpu.NoCgo: {check.Unknown, check.Skip, "this bringupd was built without cgo, so it can't ask for GPUs",
		"use a bringupd that was built with CGO_ENABLED=1, or give --gpu-check=off"},
	gpu.DriverUnresponsive: {check.Fail, check.Fail, "the driver does not answer",
		"drain and reboot the node: who asks a wedged driver can't even be killed, so the job step may not end before that either"},
	gpu.ProbeDied: {check.Unknown, check.Unknown, "the process that asked NVML has died",
		"run \"bringupd check\" and nvidia-smi on the node: if they die too, the driver or its library is broken"},
	gpu.UnknownError: {check.Fail, check.Unknown, "NVML does not begin: UNKNOWN, an internal error of the driver",
		"look into dmesg for NVRM lines and reboot the node"},
}

// initFailureFinding returns the finding for a failed nvmlInit.
func initFailureFinding(f gpu.Facts, want Expectation) check.Finding {
	a, known := initFailures[f.Init]
	if !known {
		a = initFailure{check.Unknown, check.Unknown, "NVML does not begin: " + f.Init.DisplayText(), "look into dmesg for NVRM lines, and run nvidia-smi on the node"}
	}
	// Choose the verdict by whether the job needs GPUs.
	finding := check.Finding{
		ID: "gpu.nvml", Verdict: a.verdictOtherwise, Observed: a.observed, Expected: "SUCCESS", Source: sourceInit, Hint: a.hint, Class: check.ClassEnvironment,
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
		explainMissingLibrary(&finding, f, want)
	case gpu.DriverUnresponsive:
		finding.ID, finding.Expected, finding.Class = "gpu.driver_unresponsive", "an answer", check.ClassNode
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
	observed := fmt.Sprintf("%d of %d GPUs have come", p.Initialised, p.Total)
	if p.SlowCalls != "" {
		observed += "; waiting for " + textutil.TruncateText(p.SlowCalls, maxTextLength)
	}
	return check.Finding{
		ID: "gpu.nvml", Verdict: check.Wait, Class: check.ClassNode, Source: sourceInit, Observed: observed, Expected: "all GPUs",
		Hint: "run nvidia-persistenced on the node: without persistence mode the driver attaches one GPU after the other, anew for each job",
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
	f.Observed += ", and there are signs of GPUs: " + textutil.TruncateText(strings.Join(want.Signs, ", "), maxTextLength)
}

// explainMissingLibrary adds the most likely reason for the missing library to the finding.
func explainMissingLibrary(f *check.Finding, facts gpu.Facts, want Expectation) {
	if facts.Library != "" {
		f.Observed = "there is no " + facts.Library
	}
	warnIfSigns(f, want)
	switch signs := len(want.Signs) > 0; {
	case signs && !gpu.HasOnlyPCIDevices(want.Signs):
		f.Hint = "the driver is there and its library isn't, as in a container without it: set NVIDIA_DRIVER_CAPABILITIES=compute,utility, or run the container with --nv"
	case signs:
		f.Hint = "install and load NVIDIA's driver on this node, or give --gpu-check=off if the job needs no GPU"
	}
	if want.Count > 0 {
		f.Observed += fmt.Sprintf(", and %d GPUs are expected (%s)", want.Count, want.countSourceText())
	}
}

// formatVersions returns the versions of the driver and of CUDA as text.
func formatVersions(f gpu.Facts) string {
	text := "driver " + cmp.Or(f.Driver.OrZero(), "of an unknown version")
	if cuda, ok := f.CUDA.Get(); ok {
		text += ", CUDA " + cuda
	}
	return text
}
