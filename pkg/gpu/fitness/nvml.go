package fitness

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

const sourceInit = "nvmlInit_v2"

// initAnswer describes a failure of nvmlInit. It has one verdict for jobs that need GPUs, and one
// for jobs of which this is not known.
type initAnswer struct {
	wanted, idle check.Verdict
	observed     string
	hint         string
}

// initAnswers are the meanings of the failures of nvmlInit. A node without GPUs often has the
// library but no driver, and a job without GPUs may have no access to the driver. Neither is a
// fault if the job needs no GPU.
var initAnswers = map[gpu.Return]initAnswer{
	gpu.LibraryNotFound: {check.Fail, check.Skip, "there is no libnvidia-ml.so.1", // noLibrary may replace this text
		"in a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility or run it with --nv; on a node without NVIDIA's driver, " +
			"choose nodes that have GPUs, or take back --gpus-per-node, or give --gpu-check=off"},
	gpu.DriverNotLoaded: {check.Wait, check.Skip, "NVIDIA's driver is not loaded",
		"load the driver (modprobe nvidia) and look into dmesg for why it isn't, or give --gpu-check=off if the job needs no GPU"},
	gpu.LibRMVersion: {check.Fail, check.Fail, "the library is of another version than the driver that is loaded",
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

// noNVML returns the finding for a failed nvmlInit.
func noNVML(f gpu.Facts, want Expect) check.Finding {
	a, known := initAnswers[f.Init]
	if !known {
		a = initAnswer{check.Unknown, check.Unknown, "NVML does not begin: " + f.Init.Said(), "look into dmesg for NVRM lines, and run nvidia-smi on the node"}
	}
	// Choose the verdict by whether the job needs GPUs.
	finding := check.Finding{
		ID: "gpu.nvml", Verdict: a.idle, Observed: a.observed, Expected: "SUCCESS", Source: sourceInit, Hint: a.hint, Class: check.Environment,
	}
	switch {
	case want.Needed():
		finding.Verdict = a.wanted
	case want.Forgone() && f.Init == gpu.DriverUnresponsive:
		finding.Verdict = check.Warn // the job does not need the driver, but the operator should know
	case want.Forgone():
		finding.Verdict = check.Skip
	}
	// Add details for some failures.
	switch f.Init {
	case gpu.LibraryNotFound:
		noLibrary(&finding, f, want)
	case gpu.DriverUnresponsive:
		finding.ID, finding.Expected, finding.Class = "gpu.driver_unresponsive", "an answer", check.Node
	case gpu.NoCgo:
		finding.Source = "bringupd"
		raise(&finding, want)
	case gpu.DriverNotLoaded:
		raise(&finding, want)
	}
	if f.Detail != "" {
		finding.Observed += ": " + prose.Cut(f.Detail, shown)
	}
	if finding.Verdict == check.Skip { // the job is not affected
		finding.Hint, finding.Class = "", ""
	}
	return finding
}

// Attaching returns the finding for a query that is waiting for the driver to attach the GPUs.
func Attaching(p gpu.Progress) check.Finding {
	observed := fmt.Sprintf("%d of %d GPUs have come", p.Came, p.Of)
	if p.Waits != "" {
		observed += "; waiting for " + prose.Cut(p.Waits, shown)
	}
	return check.Finding{
		ID: "gpu.nvml", Verdict: check.Wait, Class: check.Node, Source: sourceInit, Observed: observed, Expected: "all GPUs",
		Hint: "run nvidia-persistenced on the node: without persistence mode the driver attaches one GPU after the other, anew for each job",
	}
}

// raise turns a Skip into a Warn if there are signs of GPUs on the node, and adds them to the
// finding.
func raise(f *check.Finding, want Expect) {
	if len(want.Signs) == 0 || want.Forgone() {
		return
	}
	if f.Verdict == check.Skip {
		f.Verdict = check.Warn
	}
	f.Observed += ", and there are signs of GPUs: " + prose.Cut(strings.Join(want.Signs, ", "), shown)
}

// noLibrary adds the most likely reason for the missing library to the finding.
func noLibrary(f *check.Finding, facts gpu.Facts, want Expect) {
	if facts.Library != "" {
		f.Observed = "there is no " + facts.Library
	}
	raise(f, want)
	switch signs := len(want.Signs) > 0; {
	case signs && !gpu.OnlyOnBus(want.Signs):
		f.Hint = "the driver is there and its library isn't, as in a container without it: set NVIDIA_DRIVER_CAPABILITIES=compute,utility, or run the container with --nv"
	case signs:
		f.Hint = "install and load NVIDIA's driver on this node, or give --gpu-check=off if the job needs no GPU"
	}
	if want.Count > 0 {
		f.Observed += fmt.Sprintf(", and %d GPUs are expected (%s)", want.Count, want.from())
	}
}

// versions returns the versions of the driver and of CUDA as text.
func versions(f gpu.Facts) string {
	text := "driver " + cmp.Or(f.Driver.OrZero(), "of an unknown version")
	if cuda, ok := f.CUDA.Get(); ok {
		text += ", CUDA " + cuda
	}
	return text
}
