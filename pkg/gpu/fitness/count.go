package fitness

import (
	"cmp"
	"fmt"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	sourceCount  = "nvmlDeviceGetCount_v2"
	sourceHandle = "nvmlDeviceGetHandleByIndex_v2"
)

// lostHints are what to do about a GPU that gives no handle, or goes while it is asked.
var lostHints = map[gpu.Return]string{
	gpu.GPUIsLost:        "drain the node: the GPU has fallen off the bus, which a reboot may mend for a while and a power cycle or a new card for good",
	gpu.ResetRequired:    hintReset,
	gpu.UnknownError:     "drain the node, look into dmesg for NVRM lines of this GPU, and reboot",
	"INSUFFICIENT_POWER": "drain the node and look at the power cables of this GPU",
	"IRQ_ISSUE":          "drain the node: the GPU's interrupts do not arrive, see dmesg",
	"CORRUPTED_INFOROM":  "drain the node: the GPU's own configuration memory is corrupted, see nvidia-smi and the vendor's return process",
}

// count says whether the job has the GPUs that it should have.
func (s scene) count() []check.Finding {
	e := exam{scene: s, Sheet: rule{id: "gpu.count", source: sourceCount}.sheet()}
	e.judgeCount()
	if len(e.Found) == 0 {
		e.judgeEnough()
	}
	return e.Found
}

func (e *exam) judgeCount() {
	counted, ok := e.facts.Count.Get()
	if !ok {
		e.say(check.Unknown, "GPUs can't be counted: "+e.facts.Count.Why.Said(), "run nvidia-smi on the node, and look into dmesg for NVRM lines")
		return
	}
	e.when(counted != len(e.facts.GPUs), check.Unknown, fmt.Sprintf("NVML counts %d GPUs, and %d were looked at", counted, len(e.facts.GPUs)),
		"run \"bringupd check\" on the node again")
	e.judgeLost()
	e.judgeMissing()
	e.judgeTooFew()
	e.when(e.unsure, check.Warn,
		fmt.Sprintf("%s has indices, which count the fastest GPU first, and there are %d models: all GPUs are looked at", gpu.VisibleVariable, len(models(e.gpus))),
		"set CUDA_DEVICE_ORDER=PCI_BUS_ID, or list the GPUs by their UUIDs", expecting("CUDA_DEVICE_ORDER=PCI_BUS_ID"), ofTheList)
}

// ofTheList blames the job's own list of GPUs.
func ofTheList(f *check.Finding) { f.Source, f.Class = gpu.VisibleVariable, check.User }

// judgeEnough tells of GPUs of which none is missing.
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

// judgeLost tells of GPUs that do not answer.
func (e *exam) judgeLost() {
	for _, g := range e.gpus {
		why, lost := g.Lost()
		if !lost {
			continue
		}
		f := e.say(check.Fail, "does not answer: "+why.Said(), lostHints[why])
		f.Device, f.Source, f.Expected = deviceOf(g), sourceHandle, "a GPU that answers"
		if why == gpu.Uninitialized || why.Unasked() {
			f.Verdict = check.Unknown // this says nothing about the GPU
		}
		f.Hint = cmp.Or(f.Hint, "run nvidia-smi on the node, and look into dmesg for NVRM lines of this GPU")
	}
}

// judgeMissing tells of GPUs that are listed and not there.
func (e *exam) judgeMissing() {
	for _, selector := range e.missing {
		lists := fmt.Sprintf("%s lists %s", gpu.VisibleVariable, prose.Cut(selector.String(), shown))
		f := e.say(check.Fail, fmt.Sprintf("%s, and NVML shows no such GPU among %d", lists, len(e.facts.GPUs)),
			"see nvidia-smi -L on the node: a GPU of it is gone, or the list is of another node")
		f.Source, f.Expected = gpu.VisibleVariable, "GPUs that are there"
		switch {
		case selector.UUID != "" && e.nameless:
			f.Verdict, f.Observed = check.Unknown, lists+", which may be a GPU whose UUID can't be read"
		case e.want.Count >= 0 && e.seen >= e.want.Count && e.want.CountFrom != gpu.VisibleVariable:
			f.Class = check.User // as many are there as were granted
		}
	}
}

// judgeTooFew tells of GPUs that are short of the number expected, beyond those that are known to be lost.
func (e *exam) judgeTooFew() {
	least := max(e.want.Count, 0)
	if e.want.Needed() {
		least = max(least, 1)
	}
	have := e.units + e.lost + len(e.missing)
	if have >= least || e.unsure && e.seen >= least {
		return
	}
	f := e.Fail(check.Node, fmt.Sprintf("%d of %d", e.units, least), fmt.Sprintf("%d (%s)", least, e.want.from()),
		"drain the node and look into dmesg and lspci for the GPUs that are gone, or give the --gpus-per-node that it really has")
	if e.want.Count <= 0 {
		f.Expected, f.Class = "at least 1", check.User
		f.Hint = "ask for GPUs (sbatch --gpus-per-node), or give --gpu-check=auto if the job can do without"
	}
	switch {
	case e.want.Visible != nil && e.seen >= least:
		ofTheList(f)
		f.Observed += fmt.Sprintf(": %s lists %d, and NVML shows %d", gpu.VisibleVariable, len(e.want.Visible), e.seen)
		f.Hint = "let " + gpu.VisibleVariable + " list as many GPUs as the job has, or unset it"
	case e.hidden > 0:
		f.Class = check.User
		f.Observed += fmt.Sprintf(", and %d that this process may not use", e.hidden)
		f.Hint = "ask Slurm for that many GPUs: its cgroup keeps this step from the others"
	}
}
