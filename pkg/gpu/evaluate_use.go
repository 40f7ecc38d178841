package gpu

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
)

const (
	// busyMost is how much memory of an idle GPU is in use at most: the driver
	// itself takes some that it doesn't call reserved. GCM has 15 MiB, which a
	// profiling service or MPS breaks; no fleet says more. It is ours, and not
	// proven on hardware.
	busyMost = 512 << 20
	// busyPatience is for how long the last job's processes may still be
	// ending: GCM looks three times, some seconds apart.
	busyPatience = 10 * time.Second
	// busyShown is how many processes are named.
	busyShown = 4
)

// useRules are about who else uses a GPU.
var useRules = []rule{
	{"gpu.busy", "nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetMemoryInfo_v2", "nobody uses the GPU", judgeBusy},
}

// shared are programs that are there to let others use a GPU, by how their names
// in /proc begin.
var shared = []string{"nvidia-cuda-mps"}

func judgeBusy(s scene, g GPU) (o opinion) {
	all, procsOK := get(&o, "processes", g.Procs)
	memory, memoryOK := get(&o, "memory", g.Memory)
	var procs []Process
	alive := false
	for _, p := range all {
		if !isShared(p.Name) {
			procs, alive = append(procs, p), alive || p.Name != ""
		}
	}
	full := memoryOK && memory.Used > busyMost
	if !full && (!procsOK || len(procs) == 0) {
		return o
	}
	f := check.Finding{
		Verdict: check.Wait, Patience: busyPatience, Class: check.Node, Observed: inUse(procs, memory, memoryOK),
		Hint: "see who that is with nvidia-smi, and end what the last job has left (the process numbers are the host's, not a container's)",
	}
	switch {
	case s.want.Visible == nil && s.want.Count > 0 && s.seen > s.want.Count:
		f.Verdict, f.Patience, f.Class = check.Warn, 0, check.User
		f.Hint = fmt.Sprintf("list the job's own GPUs in %s: it has %d of %d, and this may be another job's", visibleVariable, s.want.Count, s.seen)
	case !full && !alive && memoryOK:
		// GCM leaves out processes that do not exist. From within a container
		// none does, so that it is at least told of.
		f.Verdict, f.Patience = check.Warn, 0
		f.Observed += "; /proc knows no such process, and little memory is in use"
	}
	o.say(f)
	return o
}

func isShared(name string) bool {
	for _, prefix := range shared {
		if strings.HasPrefix(path.Base(name), prefix) {
			return true
		}
	}
	return false
}

// inUse says who uses a GPU and how much of its memory.
func inUse(procs []Process, memory Memory, memoryOK bool) string {
	var parts []string
	for i, p := range procs {
		if i == busyShown {
			parts = append(parts, fmt.Sprintf("and %d more", len(procs)-i))
			break
		}
		part := fmt.Sprintf("process %d", p.PID)
		if p.Name != "" {
			part += " (" + clip(p.Name) + ")"
		}
		used := amount(p.Used)
		if p.Unknown {
			used = "an unknown amount"
		}
		parts = append(parts, part+" with "+used)
	}
	if memoryOK {
		parts = append(parts, fmt.Sprintf("%s of %s in use", amount(memory.Used), amount(memory.Total)))
	}
	return strings.Join(parts, ", ")
}

// amount is an amount of memory for people.
func amount(n uint64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// slowVariables make all CUDA work slow, stop it or let another program into it.
// DCGM warns of all but the last before a job, and of those for core dumps, which
// cost nothing until there is one.
var slowVariables = []string{
	"NSIGHT_CUDA_DEBUGGER", "CUDA_INJECTION32_PATH", "CUDA_INJECTION64_PATH", "CUDA_DEVICE_WAITS_ON_EXCEPTION",
	"CUDA_PROFILE", "COMPUTE_PROFILE", "OPENCL_PROFILE", "CUDA_LAUNCH_BLOCKING",
}

// environment is the check of what the driver inherits. DCGM minds any value;
// "0" is how scripts say that they do not want it.
func environment(environ []string) check.Finding {
	f := check.Finding{ID: "gpu.env", Verdict: check.Pass, Observed: "nothing that slows CUDA down", Source: "environment"}
	if environ == nil {
		f.Verdict, f.Observed = check.Skip, "not known"
		return f
	}
	var set []string
	for _, name := range slowVariables {
		if value, _ := lookup(environ, name); value != "" && value != "0" {
			set = append(set, name+"="+clip(value))
		}
	}
	if len(set) > 0 {
		f.Verdict, f.Class = check.Warn, check.User
		f.Observed, f.Expected = strings.Join(set, ", "), "unset"
		f.Hint = "unset them, unless the job is to be debugged or profiled: a profiler, a debugger or waits are in all CUDA work with them"
	}
	return f
}
