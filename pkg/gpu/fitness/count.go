package fitness

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

const (
	sourceCount  = "nvmlDeviceGetCount_v2"
	sourceHandle = "nvmlDeviceGetHandleByIndex_v2"
	sourceSlots  = "/sys/bus/pci/devices"
)

// lostHints are the hints for a GPU without a handle, or one that is lost during the inspection.
var lostHints = map[gpu.NVMLReturn]string{
	gpu.GPUIsLost: "drain the node: the GPU has fallen off the bus; a reboot may help " +
		"for a while, a permanent fix needs a power cycle or a new card",
	gpu.ResetRequired:    hintReset,
	gpu.UnknownError:     "drain the node, see dmesg for NVRM lines of this GPU, and reboot",
	"INSUFFICIENT_POWER": "drain the node and check the power cables of this GPU",
	"IRQ_ISSUE":          "drain the node: the GPU's interrupts are not delivered, see dmesg",
	gpu.DriverUnresponsive: "drain and reboot the node: processes that access this GPU cannot be " +
		"killed, so the job step may hang until the reboot",
	"CORRUPTED_INFOROM": "drain the node: the GPU's InfoROM is corrupted, see nvidia-smi and " +
		"the vendor's RMA process",
}

func (s evaluation) countFindings() []check.Finding {
	e := gpuCheck{evaluation: s, FindingBuilder: gpuRule{id: "gpu.count", source: sourceCount}.newFindings()}
	e.checkCount()
	if len(e.Findings) > 0 {
		return e.Findings
	}
	switch want := e.want.Count; {
	case want > 0:
		f := e.AddFinding(check.Pass, "", fmt.Sprintf("%d of %d", min(e.usableUnits, want), want),
			fmt.Sprintf("%d (%s)", want, e.want.countSourceText()), "")
		if e.permittedUnits > want {
			f.Observed += fmt.Sprintf("; NVML shows %d", e.permittedUnits)
		}
	case e.usableUnits == 0:
		e.AddSkip("the NVIDIA driver shows no GPU, and none is expected")
	default:
		e.AddPass(fmt.Sprintf("%d; the expected number is not known", e.usableUnits))
	}
	return e.Findings
}

// checkCount adds findings for GPUs that are lost, missing or too few. It adds none if all is well.
func (e *gpuCheck) checkCount() {
	counted, ok := e.facts.Count.Get()
	if !ok {
		e.addNodeFinding(check.Unknown, "cannot count the GPUs: "+e.facts.Count.Reason.DisplayText(),
			"run nvidia-smi on the node, and see dmesg for NVRM lines")
		return
	}
	e.addFindingIf(counted != len(e.facts.GPUs), check.Unknown,
		fmt.Sprintf("NVML counts %d GPUs, but %d were checked", counted, len(e.facts.GPUs)),
		"run \"bringupd check\" on the node again")
	e.reportLostGPUs()
	e.reportFallenGPUs()
	e.reportMissingGPUs()
	e.reportShortage()
	f := e.addFindingIf(e.hasAmbiguousIndex, check.Warn,
		fmt.Sprintf("%s has indices, which are ambiguous with %d GPU models (CUDA numbers the "+
			"fastest GPU first): all GPUs are checked", gpu.VisibleDevicesVariable, len(modelNames(e.gpus))),
		"set CUDA_DEVICE_ORDER=PCI_BUS_ID, or list the GPUs by their UUIDs")
	f.Expected = "CUDA_DEVICE_ORDER=PCI_BUS_ID"
	blameVisibleList(f)
}

func blameVisibleList(f *check.Finding) {
	f.Source, f.Class = gpu.VisibleDevicesVariable, check.ClassUser
}

func (e *gpuCheck) reportLostGPUs() {
	for _, g := range e.gpus {
		why, lost := g.LossReason()
		if !lost {
			continue
		}
		observed := "does not respond: " + why.DisplayText()
		if g.Hangs != "" {
			observed += ", in " + textutil.TruncateText(g.Hangs, maxTextLength)
		}
		f := e.addNodeFinding(check.Fail, observed, lostHints[why])
		f.Device, f.Source, f.Expected = findingDevice(g), sourceHandle, "a GPU that responds"
		if why == gpu.Uninitialized || why.IsUnavailable() {
			f.Verdict = check.Unknown // the result shows nothing about the GPU
		}
		f.Hint = cmp.Or(f.Hint, "run nvidia-smi on the node, and see dmesg for NVRM lines of this GPU")
	}
}

// reportFallenGPUs adds a finding for each GPU that the kernel lists on the PCI bus, but that does
// not answer there any more. NVML shows such a GPU as lost, or not at all if the driver was
// reloaded.
func (e *gpuCheck) reportFallenGPUs() {
	needed := e.needsFallenGPU()
	for _, bus := range e.fallenAddresses() {
		f := e.addNodeFinding(check.Fail, "has fallen off the bus: its "+
			"configuration space reads "+gpu.OffBus, lostHints[gpu.GPUIsLost])
		f.Device, f.Source, f.Expected = &check.Device{Index: -1, Bus: bus}, sourceSlots, "a GPU that responds"
		if !needed {
			f.Verdict = check.Warn
			f.Observed += "; the job does not use it"
		}
	}
}

// fallenAddresses returns the PCI addresses of GPUs that have fallen off the bus, except those that
// NVML shows and that are reported elsewhere.
func (s evaluation) fallenAddresses() (addresses []string) {
	for _, slot := range s.facts.Slots {
		reported := slices.ContainsFunc(s.facts.GPUs, func(g gpu.GPU) bool {
			return g.Bus.OrZero() == slot.Bus && (g.IsUsable() || slices.ContainsFunc(s.gpus,
				func(own gpu.GPU) bool { return own.Index == g.Index }))
		})
		if slot.ID == gpu.OffBus && !reported {
			addresses = append(addresses, slot.Bus)
		}
	}
	return addresses
}

// needsFallenGPU reports whether the job would use a GPU that has fallen off the bus. If the job's
// number of GPUs is unknown, it is assumed to use all of the node's, unless some that answer on the
// bus are withheld from it.
func (s evaluation) needsFallenGPU() bool {
	if s.want.Count >= 0 {
		return s.usableUnits+s.lostCount < s.minGPUs()
	}
	return s.want.Visible == nil && s.countOnBus() <= len(s.facts.GPUs)
}

func (s evaluation) minGPUs() int {
	if s.want.NeedsGPUs() {
		return max(s.want.Count, 1)
	}
	return max(s.want.Count, 0)
}

// countOnBus returns how many GPUs answer on the PCI bus, including those that this process may not
// use. If NVML shows any GPU, only GPUs with the same PCI IDs count: the driver may be too new for
// another model, for example one that drives a display.
func (s evaluation) countOnBus() (n int) {
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

// reportMissingGPUs adds a finding for each GPU that CUDA_VISIBLE_DEVICES lists and NVML does not
// show.
func (e *gpuCheck) reportMissingGPUs() {
	for _, selector := range e.missingSelectors {
		lists := fmt.Sprintf("%s lists %s", gpu.VisibleDevicesVariable,
			textutil.TruncateText(selector.String(), maxTextLength))
		f := e.addNodeFinding(check.Fail,
			fmt.Sprintf("%s, which is none of the %d GPUs that NVML shows", lists, len(e.facts.GPUs)),
			"compare with nvidia-smi -L on the node: a GPU is missing, or the list is from another node")
		f.Source, f.Expected, f.Class = gpu.VisibleDevicesVariable, "GPUs of this node", check.ClassEnvironment
		switch {
		case selector.UUID != "" && e.hasUnreadableUUID:
			f.Verdict, f.Observed = check.Unknown, lists+", which may be a GPU whose UUID cannot be read"
		case e.want.Count >= 0 && e.permittedUnits >= e.want.Count && e.want.CountSource != gpu.VisibleDevicesVariable:
			f.Class = check.ClassUser // the job has as many GPUs as it was granted, so its own list is wrong
		}
	}
}

// reportShortage adds a finding if there are fewer GPUs than expected, not counting those that are
// known to be lost.
func (e *gpuCheck) reportShortage() {
	// Lost and missing GPUs have findings of their own. Do not report them twice.
	least := e.minGPUs()
	have := e.usableUnits + e.lostCount + len(e.missingSelectors)
	if e.needsFallenGPU() {
		have += len(e.fallenAddresses())
	}
	if have >= least || e.hasAmbiguousIndex && e.permittedUnits >= least {
		return
	}
	// Report the shortage. Its correction names what the user has given. If no number was granted, the
	// request is at fault.
	correct := "--" + countKey
	if e.want.isGivenByUser() {
		correct = e.want.CountSource
	}
	f := e.AddFailure(check.ClassEnvironment, fmt.Sprintf("%d of %d", e.usableUnits, least),
		fmt.Sprintf("%d (%s)", least, e.want.countSourceText()),
		"drain the node and see dmesg and lspci for the missing GPUs, or correct "+correct)
	if e.want.Count <= 0 {
		f.Expected, f.Class = "at least 1", check.ClassUser
		f.Hint = "request GPUs (sbatch --gpus-per-node), or use --gpu-check=auto if the job needs none"
	}
	// Give a better hint if the cause is known.
	switch {
	case e.want.Visible != nil && e.permittedUnits >= least:
		blameVisibleList(f)
		f.Observed += fmt.Sprintf(": %s lists %d, but NVML shows %d", gpu.VisibleDevicesVariable,
			len(e.want.Visible), e.permittedUnits)
		f.Hint = "let " + gpu.VisibleDevicesVariable + " list all GPUs of the job, or unset it"
	case e.hiddenCount > 0:
		f.Observed += fmt.Sprintf("; %d not accessible to this process", e.hiddenCount)
		f.Hint = "request that many GPUs from Slurm: its cgroup hides the others from this step"
	case e.countOnBus() >= least && e.countOnBus() > len(e.facts.GPUs):
		f.Source = sourceSlots
		f.Observed += fmt.Sprintf(": the node has %d GPUs on its PCI bus, but this process sees %d",
			e.countOnBus(), len(e.facts.GPUs))
		f.Hint = "give the container (docker run --gpus, NVIDIA_VISIBLE_DEVICES) and the step " +
			"(srun --gpus-per-node, Slurm's cgroup) all GPUs; if they have them, see dmesg for " +
			"NVRM lines and nvidia-smi -B for GPUs that the NVIDIA driver excludes"
	}
}
