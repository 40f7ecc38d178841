package fitness

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

const (
	idBusy = "gpu.busy"
	// maxIdleMemory is the maximum memory in use on an idle GPU. The driver uses some memory that it
	// does not report as reserved. GCM's limit is 15 MiB, which a profiling service or MPS exceeds;
	// other fleets publish no limit. This value is our own, and not verified on hardware.
	maxIdleMemory = 512 << 20
	// maxBusyWait is how long processes of the previous job may take to end. The kernel frees
	// terabytes of pinned memory page by page, and there are no published figures for that. Slurm
	// waits a minute before it considers a killed process unkillable and drains the node (slurm.conf,
	// UnkillableStepTimeout).
	maxBusyWait = time.Minute
	// maxShownProcesses is the maximum number of processes in a message.
	maxShownProcesses = 4
)

// checkMIG checks that the MIG mode does not change at the next reset, and that there are instances
// if it is on.
func checkMIG(e *gpuCheck) {
	mig, _ := readValue(e, "MIG mode", e.gpu.MIG)
	switch {
	case mig.Current != mig.Pending:
		e.addNodeFinding(check.Fail, fmt.Sprintf("MIG is %s, but %s after the next reset",
			formatOnOff(mig.Current, true), formatOnOff(mig.Pending, true)),
			hintReset+", or revert the change with nvidia-smi -mig")
	case mig.Current && len(e.gpu.MIGInstances) == 0:
		e.addNodeFinding(check.Fail, "MIG is on, but there are no instances",
			"create instances (nvidia-smi mig -cgi … -C), or disable MIG (nvidia-smi -mig 0) and reset the GPU")
	}
}

// checkComputeMode checks the compute mode. The values are those of nvmlComputeMode_t.
func checkComputeMode(e *gpuCheck) {
	const hint = "set it to DEFAULT on the node (nvidia-smi -c 0)"
	switch mode, _ := readValue(e, "compute mode", e.gpu.ComputeMode); mode {
	case 0: // default mode
	case 1, 3:
		e.addNodeFinding(check.Warn, "exclusive: a second process that opens the GPU gets an "+
			"error, for example helper processes of Ray or NCCL", hint)
	case 2:
		e.addNodeFinding(check.Fail, "prohibited: no process can use the GPU", hint)
	default:
		e.addNodeFinding(check.Unknown, fmt.Sprintf("unknown mode (%d)", mode), hint)
	}
}

// mpsNamePrefix is the prefix of the names of MPS processes, which exist to share a GPU.
const mpsNamePrefix = "nvidia-cuda-mps"

// checkBusy checks that the job's GPU is idle. With MIG it checks the job's instances, because
// other instances may belong to other jobs.
func checkBusy(e *gpuCheck) {
	if !e.gpu.MIG.OrZero().Current {
		e.checkUse("", e.gpu.Processes, e.gpu.Memory)
		return
	}
	// The job uses the instances listed by UUID, or all if there is no list. If an entry names only
	// the GPU, CUDA uses one of its instances, but it is not documented which one.
	instances := slices.DeleteFunc(slices.Clone(e.gpu.MIGInstances), func(m gpu.MIGInstance) bool {
		return e.want.Visible != nil && !slices.ContainsFunc(e.want.Visible,
			func(v gpu.Selector) bool { return v.UUID != "" && v.MatchesPrefix(m.UUID) })
	})
	if len(instances) == 0 {
		e.addSkip("MIG is on, and the job's instances are not known")
	}
	for _, m := range instances {
		e.checkUse("instance "+textutil.TruncateText(m.UUID, maxTextLength)+": ", m.Processes, m.Memory)
	}
}

// readPrivileged returns the value of a reading that may need privileges: according to nvml.h,
// users see processes of others only "if the caller has appropriate privileges". Missing permission
// is not a fault.
func readPrivileged[T any](e *gpuCheck, what string, r gpu.Reading[T]) (value T, ok bool) {
	if r.Reason == gpu.NoPermission {
		e.addSkip(what + " cannot be read by this user")
		return value, false
	}
	return readValue(e, what, r)
}

// checkUse checks that a GPU or an instance is idle. The text of its finding begins with [whose],
// which is empty for a whole GPU.
func (e *gpuCheck) checkUse(whose string, running gpu.Reading[[]gpu.Process], filled gpu.Reading[gpu.Memory]) {
	all, procsOK := readPrivileged(e, "processes", running)
	var memory gpu.Memory
	var memoryOK bool
	// If the GPU's memory is a NUMA node (Grace), the kernel manages it: according to nvml.h
	// (nvmlDeviceGetMemoryInfo_v2), pages are "not released even after the process terminates", and
	// the system may use them itself.
	if _, coherent := e.gpu.Numa.Get(); !coherent {
		memory, memoryOK = readPrivileged(e, "memory sizes", filled)
	}
	// Ignore MPS and processes that draw graphics: programs of a desktop often compute a little. Then
	// decide whether the GPU is in use.
	procs := slices.DeleteFunc(slices.Clone(all), func(p gpu.Process) bool {
		return strings.HasPrefix(path.Base(p.Name), mpsNamePrefix) ||
			slices.ContainsFunc(e.gpu.GraphicsProcesses.OrZero(),
				func(drawing gpu.Process) bool { return drawing.PID == p.PID })
	})
	alive := slices.ContainsFunc(procs, func(p gpu.Process) bool { return p.Name != "" })
	full := memoryOK && memory.Used > maxIdleMemory+e.graphicsMemory(memory.Used)
	if !full && (!procsOK || len(procs) == 0) {
		return
	}
	// Wait for processes to end, unless they may belong to another job or do not exist any more.
	f := e.addNodeFinding(check.Wait, whose+describeUse(procs, memory, memoryOK),
		"find the processes with nvidia-smi, and kill what is left of the last job (PIDs are "+
			"those of the host, not of a container)")
	f.MaxWait = maxBusyWait
	switch {
	case e.want.Visible == nil && e.want.Count > 0 && e.permittedUnits > e.want.Count:
		f.Verdict, f.MaxWait, f.Class = check.Warn, 0, check.ClassUser
		f.Hint = fmt.Sprintf("list the job's GPUs in %s: it has %d of the node's %d, and this one "+
			"may belong to another job", gpu.VisibleDevicesVariable, e.want.Count, e.permittedUnits)
	case !full && !alive && memoryOK:
		// GCM ignores processes that do not exist in /proc. In a container none of them exists, so report
		// them as a warning.
		f.Verdict, f.MaxWait = check.Warn, 0
		f.Observed += "; not in /proc, and little memory is in use"
	}
}

// graphicsMemory returns the memory used by graphics processes, in bytes. If the driver does not
// report it, the result is the parameter used, which is all memory in use.
func (e *gpuCheck) graphicsMemory(used uint64) (sum uint64) {
	for _, p := range e.gpu.GraphicsProcesses.OrZero() {
		if p.Unknown {
			return used
		}
		sum += min(p.Used, used)
	}
	return sum
}

func describeUse(procs []gpu.Process, memory gpu.Memory, memoryOK bool) string {
	var users []string
	for _, p := range procs {
		user := fmt.Sprintf("process %d", p.PID)
		if p.Name != "" {
			user += " (" + textutil.TruncateText(p.Name, maxTextLength) + ")"
		}
		used := formatBytes(p.Used)
		if p.Unknown {
			used = "an unknown amount of memory"
		}
		users = append(users, user+" with "+used)
	}
	text := textutil.JoinLimited(users, maxShownProcesses, ", ")
	if !memoryOK {
		return text
	}
	return strings.TrimPrefix(text+fmt.Sprintf(", %s of %s in use", formatBytes(memory.Used),
		formatBytes(memory.Total)), ", ")
}

func formatBytes(n uint64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
