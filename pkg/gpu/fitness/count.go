package fitness

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	sourceCount  = "nvmlDeviceGetCount_v2"
	sourceHandle = "nvmlDeviceGetHandleByIndex_v2"
	sourceSlots  = "/sys/bus/pci/devices"
)

// lostHints are the hints for a GPU without a handle, or one that is lost during the inspection.
var lostHints = map[gpu.Return]string{
	gpu.GPUIsLost:          "drain the node: the GPU has fallen off the bus, which a reboot may mend for a while and a power cycle or a new card for good",
	gpu.ResetRequired:      hintReset,
	gpu.UnknownError:       "drain the node, look into dmesg for NVRM lines of this GPU, and reboot",
	"INSUFFICIENT_POWER":   "drain the node and look at the power cables of this GPU",
	"IRQ_ISSUE":            "drain the node: the GPU's interrupts do not arrive, see dmesg",
	gpu.DriverUnresponsive: "drain and reboot the node: who asks this GPU can't even be killed, so the job step may not end before that either",
	"CORRUPTED_INFOROM":    "drain the node: the GPU's own configuration memory is corrupted, see nvidia-smi and the vendor's return process",
}

// count returns the findings on whether the job has all GPUs that it should have.
func (s scene) count() []check.Finding {
	e := exam{scene: s, Sheet: rule{id: "gpu.count", source: sourceCount}.sheet()}
	e.judgeCount()
	if len(e.Found) == 0 {
		e.judgeEnough()
	}
	return e.Found
}

// judgeCount adds findings for GPUs that are lost, missing or too few. It adds none if all is well.
func (e *exam) judgeCount() {
	counted, ok := e.facts.Count.Get()
	if !ok {
		e.say(check.Unknown, "GPUs can't be counted: "+e.facts.Count.Why.Said(), "run nvidia-smi on the node, and look into dmesg for NVRM lines")
		return
	}
	e.when(counted != len(e.facts.GPUs), check.Unknown, fmt.Sprintf("NVML counts %d GPUs, and %d were looked at", counted, len(e.facts.GPUs)),
		"run \"bringupd check\" on the node again")
	e.judgeLost()
	e.judgeFallen()
	e.judgeMissing()
	e.judgeTooFew()
	e.when(e.unsure, check.Warn,
		fmt.Sprintf("%s has indices, which count the fastest GPU first, and there are %d models: all GPUs are looked at", gpu.VisibleVariable, len(models(e.gpus))),
		"set CUDA_DEVICE_ORDER=PCI_BUS_ID, or list the GPUs by their UUIDs", expecting("CUDA_DEVICE_ORDER=PCI_BUS_ID"), ofTheList)
}

// ofTheList attributes the finding to the job's own CUDA_VISIBLE_DEVICES.
func ofTheList(f *check.Finding) { f.Source, f.Class = gpu.VisibleVariable, check.User }

// judgeEnough adds the finding that no GPU is missing.
func (e *exam) judgeEnough() {
	switch want := e.want.Count; {
	case want > 0:
		f := e.Say(check.Pass, "", fmt.Sprintf("%d of %d", min(e.units, want), want), fmt.Sprintf("%d (%s)", want, e.want.from()), "")
		if e.seen > want {
			f.Observed += fmt.Sprintf(", and NVML shows %d", e.seen)
		}
	case e.units == 0:
		e.Skip("the driver shows no GPU, and none is expected")
	default:
		e.Pass(fmt.Sprintf("%d, and nobody says how many there should be", e.units))
	}
}

// judgeLost adds a finding for each GPU that does not answer.
func (e *exam) judgeLost() {
	for _, g := range e.gpus {
		why, lost := g.Lost()
		if !lost {
			continue
		}
		observed := "does not answer: " + why.Said()
		if g.Hangs != "" {
			observed += ", in " + prose.Cut(g.Hangs, shown)
		}
		f := e.say(check.Fail, observed, lostHints[why])
		f.Device, f.Source, f.Expected = deviceOf(g), sourceHandle, "a GPU that answers"
		if why == gpu.Uninitialized || why.Unasked() {
			f.Verdict = check.Unknown // the result shows nothing about the GPU
		}
		f.Hint = cmp.Or(f.Hint, "run nvidia-smi on the node, and look into dmesg for NVRM lines of this GPU")
	}
}

// judgeFallen adds a finding for each GPU that the kernel lists on the PCI bus, but that does not
// answer there any more. NVML shows such a GPU as lost, or not at all if the driver was reloaded.
func (e *exam) judgeFallen() {
	needed := e.short()
	for _, bus := range e.fallen() {
		f := e.say(check.Fail, "has fallen off the bus: its configuration space reads "+gpu.OffBus, lostHints[gpu.GPUIsLost])
		f.Device, f.Source, f.Expected = &check.Device{Index: -1, Bus: bus}, sourceSlots, "a GPU that answers"
		if !needed {
			f.Verdict = check.Warn
			f.Observed += "; the job does not use it"
		}
	}
}

// fallen returns the PCI addresses of GPUs that have fallen off the bus, except those that NVML
// shows and that are reported elsewhere.
func (s scene) fallen() (addresses []string) {
	for _, slot := range s.facts.Slots {
		told := slices.ContainsFunc(s.facts.GPUs, func(g gpu.GPU) bool {
			return g.Bus.OrZero() == slot.Bus && (g.Answers() || slices.ContainsFunc(s.gpus, func(own gpu.GPU) bool { return own.Index == g.Index }))
		})
		if slot.ID == gpu.OffBus && !told {
			addresses = append(addresses, slot.Bus)
		}
	}
	return addresses
}

// short reports whether the job would use a GPU that has fallen off the bus. If the job's number of
// GPUs is unknown, it is assumed to use all of the node's, unless some that answer on the bus are
// withheld from it.
func (s scene) short() bool {
	if s.want.Count >= 0 {
		return s.units+s.lost < s.least()
	}
	return s.want.Visible == nil && s.onBus() <= len(s.facts.GPUs)
}

// least returns the minimum number of GPUs that the job needs.
func (s scene) least() int {
	if s.want.Needed() {
		return max(s.want.Count, 1)
	}
	return max(s.want.Count, 0)
}

// onBus returns how many GPUs answer on the PCI bus, including those that this process may not use.
// If NVML shows any GPU, only GPUs with the same PCI IDs count: the driver may be too new for
// another model, for example one that drives a display.
func (s scene) onBus() (n int) {
	shown := make(map[string]bool)
	for _, slot := range s.facts.Slots {
		if slices.ContainsFunc(s.facts.GPUs, func(g gpu.GPU) bool { return g.Bus.OrZero() == slot.Bus }) {
			shown[slot.ID] = true
		}
	}
	for _, slot := range s.facts.Slots {
		if slot.ID != "" && slot.ID != gpu.OffBus && (len(shown) == 0 || shown[slot.ID]) {
			n++
		}
	}
	return n
}

// judgeMissing adds a finding for each GPU that CUDA_VISIBLE_DEVICES lists and NVML does not show.
func (e *exam) judgeMissing() {
	for _, selector := range e.missing {
		lists := fmt.Sprintf("%s lists %s", gpu.VisibleVariable, prose.Cut(selector.String(), shown))
		f := e.say(check.Fail, fmt.Sprintf("%s, and NVML shows no such GPU among %d", lists, len(e.facts.GPUs)),
			"see nvidia-smi -L on the node: a GPU of it is gone, or the list is of another node")
		f.Source, f.Expected, f.Class = gpu.VisibleVariable, "GPUs that are there", check.Environment
		switch {
		case selector.UUID != "" && e.nameless:
			f.Verdict, f.Observed = check.Unknown, lists+", which may be a GPU whose UUID can't be read"
		case e.want.Count >= 0 && e.seen >= e.want.Count && e.want.CountFrom != gpu.VisibleVariable:
			f.Class = check.User // the job has as many GPUs as it was granted, so its own list is wrong
		}
	}
}

// judgeTooFew adds a finding if there are fewer GPUs than expected, not counting those that are
// known to be lost.
func (e *exam) judgeTooFew() {
	// Lost and missing GPUs have findings of their own. Do not report them twice.
	least := e.least()
	have := e.units + e.lost + len(e.missing)
	if e.short() {
		have += len(e.fallen())
	}
	if have >= least || e.unsure && e.seen >= least {
		return
	}
	// Report the shortage. If no number was granted, the user's request is at fault.
	f := e.Fail(check.Environment, fmt.Sprintf("%d of %d", e.units, least), fmt.Sprintf("%d (%s)", least, e.want.from()),
		"drain the node and look into dmesg and lspci for the GPUs that are gone, or give the --gpus-per-node that it really has")
	if e.want.Count <= 0 {
		f.Expected, f.Class = "at least 1", check.User
		f.Hint = "ask for GPUs (sbatch --gpus-per-node), or give --gpu-check=auto if the job can do without"
	}
	// Give a better hint if the cause is known.
	switch {
	case e.want.Visible != nil && e.seen >= least:
		ofTheList(f)
		f.Observed += fmt.Sprintf(": %s lists %d, and NVML shows %d", gpu.VisibleVariable, len(e.want.Visible), e.seen)
		f.Hint = "let " + gpu.VisibleVariable + " list as many GPUs as the job has, or unset it"
	case e.hidden > 0:
		f.Observed += fmt.Sprintf(", and %d that this process may not use", e.hidden)
		f.Hint = "ask Slurm for that many GPUs: its cgroup keeps this step from the others"
	case e.onBus() >= least && e.onBus() > len(e.facts.GPUs):
		f.Source = sourceSlots
		f.Observed += fmt.Sprintf(": the node has %d GPUs on its bus, and this process is shown %d", e.onBus(), len(e.facts.GPUs))
		f.Hint = "let the container (docker run --gpus, NVIDIA_VISIBLE_DEVICES) and the step (srun --gpus-per-node: Slurm's cgroup) have them all; " +
			"if they should, look into dmesg for NVRM lines, and at nvidia-smi -B, for GPUs that the driver has left out"
	}
}
