package fitness

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	idBusy = "gpu.busy"
	// busyMost is how much memory of an idle GPU is in use at most: the driver itself takes some that it doesn't call
	// reserved. GCM has 15 MiB, which a profiling service or MPS breaks; no fleet says more. It is ours, and not proven
	// on hardware.
	busyMost = 512 << 20
	// busyPatience is for how long the last job's processes may still be ending. The kernel gives terabytes of pinned
	// memory back page by page, and nobody has published how long that takes: a minute is what Slurm waits before it calls
	// a killed process unkillable and drains the node (slurm.conf, UnkillableStepTimeout).
	busyPatience = time.Minute
	// busyShown is how many processes are named.
	busyShown = 4
)

// judgePersistence: gpud calls it unhealthy, Azure switches it on or fails.
func judgePersistence(e *exam) {
	on, ok := get(e, "persistence mode", e.gpu.Persist)
	e.when(ok && !on, check.Warn, "off: the driver starts anew with each first use, and forgets its counters",
		"run nvidia-persistenced on the node, or nvidia-smi -pm 1", strictly)
}

func judgeMIG(e *exam) {
	mig, _ := get(e, "MIG mode", e.gpu.MIG)
	switch {
	case mig.Current != mig.Pending:
		e.say(check.Fail, fmt.Sprintf("MIG is %s, and %s after the next reset", onOff(mig.Current, true), onOff(mig.Pending, true)),
			hintReset+", or take the change back with nvidia-smi -mig")
	case mig.Current && len(e.gpu.MIGs) == 0:
		e.say(check.Fail, "MIG is on, and there is no instance to use",
			"make instances (nvidia-smi mig -cgi … -C), or switch MIG off (nvidia-smi -mig 0) and reset the GPU")
	}
}

// judgeCompute: by nvmlComputeMode_t.
func judgeCompute(e *exam) {
	const hint = "set it to DEFAULT on the node (nvidia-smi -c 0)"
	switch mode, _ := get(e, "compute mode", e.gpu.Compute); mode {
	case 0: // default
	case 1, 3:
		e.say(check.Warn, "exclusive: a second process that opens the GPU, as helpers of Ray and NCCL do, gets an error", hint)
	case 2:
		e.say(check.Fail, "prohibited: no process can use the GPU", hint)
	default:
		e.say(check.Unknown, fmt.Sprintf("a mode that this bringupd does not know (%d)", mode), hint)
	}
}

// sharing is how the names in /proc begin of programs that are there to let others use a GPU.
const sharing = "nvidia-cuda-mps"

// judgeBusy looks at what the job has of a GPU: under MIG at its instances, as the whole GPU is other tenants' too.
func judgeBusy(e *exam) {
	if !e.gpu.MIG.OrZero().Current {
		e.judgeUse("", e.gpu.Procs, e.gpu.Memory)
		return
	}
	instances := e.instances(e.gpu)
	if len(instances) == 0 {
		e.moot("MIG is on, and no instance is known to be the job's")
	}
	for _, m := range instances {
		e.judgeUse("instance "+prose.Cut(m.UUID, shown)+": ", m.Procs, m.Memory)
	}
}

// told returns the value of a reading that is not for everybody: nvml.h lets users see what others do on a GPU only "if
// the caller has appropriate privileges".
func told[T any](e *exam, what string, r gpu.Reading[T]) (value T, ok bool) {
	if r.Why == gpu.NoPermission {
		e.moot(what + " are not for this user to see")
		return value, false
	}
	return get(e, what, r)
}

// judgeUse looks at a GPU, or an instance. Whose begins what it finds.
func (e *exam) judgeUse(whose string, running gpu.Reading[[]gpu.Process], filled gpu.Reading[gpu.Memory]) {
	all, procsOK := told(e, "processes", running)
	var memory gpu.Memory
	var memoryOK bool
	// Where the GPU's memory is a NUMA node (Grace) it is the kernel's: nvml.h says of nvmlDeviceGetMemoryInfo_v2 that
	// pages are "not released even after the process terminates", and that the system may use them for itself.
	if _, coherent := e.gpu.Numa.Get(); !coherent {
		memory, memoryOK = told(e, "amounts of memory", filled)
	}
	procs := slices.DeleteFunc(slices.Clone(all), func(p gpu.Process) bool {
		return strings.HasPrefix(path.Base(p.Name), sharing) || e.draws(p.PID)
	})
	alive := slices.ContainsFunc(procs, func(p gpu.Process) bool { return p.Name != "" })
	full := memoryOK && memory.Used > busyMost+e.drawn(memory.Used)
	if !full && (!procsOK || len(procs) == 0) {
		return
	}
	f := e.say(check.Wait, whose+inUse(procs, memory, memoryOK),
		"see who that is with nvidia-smi, and end what the last job has left (the process numbers are the host's, not a container's)")
	f.Patience = busyPatience
	switch {
	case e.want.Visible == nil && e.want.Count > 0 && e.seen > e.want.Count:
		f.Verdict, f.Patience, f.Class = check.Warn, 0, check.User
		f.Hint = fmt.Sprintf("list the job's own GPUs in %s: it has %d of %d, and this may be another job's", gpu.VisibleVariable, e.want.Count, e.seen)
	case !full && !alive && memoryOK:
		// GCM leaves out processes that do not exist. In a container none does: there it is at least told of.
		f.Verdict, f.Patience = check.Warn, 0
		f.Observed += "; /proc knows no such process, and little memory is in use"
	}
}

// draws tells whether a process draws on the GPU: a desktop's programs often compute a little as well.
func (e *exam) draws(pid int) bool {
	return slices.ContainsFunc(e.gpu.Screen.OrZero(), func(p gpu.Process) bool { return p.PID == pid })
}

// drawn is how much memory a desktop's programs have; all that is in use where the driver does not tell.
func (e *exam) drawn(used uint64) (sum uint64) {
	for _, p := range e.gpu.Screen.OrZero() {
		if p.Unknown {
			return used
		}
		sum += min(p.Used, used)
	}
	return sum
}

// inUse says who uses a GPU and how much of its memory.
func inUse(procs []gpu.Process, memory gpu.Memory, memoryOK bool) string {
	var users []string
	for _, p := range procs {
		user := fmt.Sprintf("process %d", p.PID)
		if p.Name != "" {
			user += " (" + prose.Cut(p.Name, shown) + ")"
		}
		used := amount(p.Used)
		if p.Unknown {
			used = "an unknown amount"
		}
		users = append(users, user+" with "+used)
	}
	text := prose.List(users, busyShown, ", ")
	if !memoryOK {
		return text
	}
	return strings.TrimPrefix(text+fmt.Sprintf(", %s of %s in use", amount(memory.Used), amount(memory.Total)), ", ")
}

// amount is an amount of memory for people.
func amount(n uint64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// slowVariables make all CUDA work slow, stop it or let another program into it. DCGM warns of all but the last before
// a job, and of those for core dumps, which cost nothing until there is one.
var slowVariables = []string{
	"NSIGHT_CUDA_DEBUGGER", "CUDA_INJECTION32_PATH", "CUDA_INJECTION64_PATH", "CUDA_DEVICE_WAITS_ON_EXCEPTION",
	"CUDA_PROFILE", "COMPUTE_PROFILE", "OPENCL_PROFILE", "CUDA_LAUNCH_BLOCKING",
}

// environment is the check of what the driver inherits. DCGM minds any value; "0" is how scripts say that they do not
// want it.
func environment(environ []string) []check.Finding {
	var set []string
	for _, name := range slowVariables {
		if value, _ := process.LookupEnv(environ, name); value != "" && value != "0" {
			set = append(set, name+"="+prose.Cut(value, shown))
		}
	}
	sheet := rule{id: "gpu.env", source: "environment"}.sheet()
	switch {
	case environ == nil:
		sheet.Skip("not known")
	case len(set) == 0:
		sheet.Pass("nothing that slows CUDA down")
	default:
		sheet.Warn(check.User, strings.Join(set, ", "), "unset",
			"unset them, unless the job is to be debugged or profiled: a profiler, a debugger or waits are in all CUDA work with them")
	}
	return sheet.Found
}
