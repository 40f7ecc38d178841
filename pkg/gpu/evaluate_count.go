package gpu

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/check"
)

const (
	sourceCount  = "nvmlDeviceGetCount_v2"
	sourceHandle = "nvmlDeviceGetHandleByIndex_v2"
)

// lostHints are what to do about a GPU that gives no handle, or goes while it is
// asked.
var lostHints = map[Return]string{
	GPUIsLost:            "drain the node: the GPU has fallen off the bus, which a reboot may mend for a while and a power cycle or a new card for good",
	ResetRequired:        "drain the node and reset the GPU (nvidia-smi --gpu-reset) or reboot",
	UnknownError:         "drain the node, look into dmesg for NVRM lines of this GPU, and reboot",
	"INSUFFICIENT_POWER": "drain the node and look at the power cables of this GPU",
	"IRQ_ISSUE":          "drain the node: the GPU's interrupts do not arrive, see dmesg",
	"CORRUPTED_INFOROM":  "drain the node: the GPU's own configuration memory is corrupted, see nvidia-smi and the vendor's return process",
}

// count says whether the job has the GPUs that it should have.
func (s scene) count() []check.Finding {
	counted, ok := s.facts.Count.Get()
	if !ok {
		return []check.Finding{{
			ID: "gpu.count", Verdict: check.Unknown, Source: sourceCount, Class: check.Node,
			Observed: "GPUs can't be counted: " + said(s.facts.Count.Why), Hint: "run nvidia-smi on the node, and look into dmesg for NVRM lines",
		}}
	}
	var findings []check.Finding
	if counted != len(s.facts.GPUs) {
		findings = append(findings, check.Finding{
			ID: "gpu.count", Verdict: check.Unknown, Source: sourceCount, Class: check.Node,
			Observed: fmt.Sprintf("NVML counts %d GPUs, and %d were looked at", counted, len(s.facts.GPUs)),
			Hint:     "run \"bringupd check\" on the node again",
		})
	}
	findings = append(findings, s.lostOnes()...)
	findings = append(findings, s.missingOnes()...)
	findings = append(findings, s.tooFew()...)
	if s.unsure {
		findings = append(findings, check.Finding{
			ID: "gpu.count", Verdict: check.Warn, Source: visibleVariable, Class: check.User,
			Observed: fmt.Sprintf("%s has indices, which count the fastest GPU first, and there are %d models: all GPUs are looked at", visibleVariable, len(models(s.gpus))),
			Expected: "CUDA_DEVICE_ORDER=PCI_BUS_ID",
			Hint:     "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or list the GPUs by their UUIDs",
		})
	}
	if len(findings) == 0 {
		findings = append(findings, s.enough())
	}
	return findings
}

// enough is the finding where none is missing.
func (s scene) enough() check.Finding {
	f := check.Finding{ID: "gpu.count", Verdict: check.Pass, Source: sourceCount}
	switch {
	case s.want.Count > 0:
		f.Observed = fmt.Sprintf("%d of %d", min(s.units, s.want.Count), s.want.Count)
		f.Expected = fmt.Sprintf("%d (%s)", s.want.Count, s.want.from())
		if s.seen > s.want.Count {
			f.Observed += fmt.Sprintf(", and NVML shows %d", s.seen)
		}
	case s.units == 0:
		f.Verdict, f.Observed = check.Skip, "the driver shows no GPU, and none is expected"
	default:
		f.Observed = fmt.Sprintf("%d, and nobody says how many there should be", s.units)
	}
	return f
}

// lostOnes are the findings about GPUs that do not answer.
func (s scene) lostOnes() []check.Finding {
	var findings []check.Finding
	for _, g := range s.gpus {
		why, lost := g.lost()
		if !lost {
			continue
		}
		f := check.Finding{
			ID: "gpu.count", Device: deviceOf(g), Verdict: check.Fail, Source: sourceHandle, Class: check.Node,
			Observed: "does not answer: " + said(why), Expected: "a GPU that answers", Hint: lostHints[why],
		}
		switch {
		case why == Uninitialized || unasked(why):
			f.Verdict = check.Unknown // says nothing of the GPU
			fallthrough
		case f.Hint == "":
			f.Hint = "run nvidia-smi on the node, and look into dmesg for NVRM lines of this GPU"
		}
		findings = append(findings, f)
	}
	return findings
}

// missingOnes are the findings about GPUs that are listed and not there.
func (s scene) missingOnes() []check.Finding {
	var findings []check.Finding
	for _, selector := range s.missing {
		f := check.Finding{
			ID: "gpu.count", Verdict: check.Fail, Source: visibleVariable, Class: check.Node,
			Observed: fmt.Sprintf("%s lists %s, and NVML shows no such GPU among %d", visibleVariable, clip(selector.String()), len(s.facts.GPUs)),
			Expected: "GPUs that are there",
			Hint:     "see nvidia-smi -L on the node: a GPU of it is gone, or the list is of another node",
		}
		switch {
		case selector.UUID != "" && s.nameless:
			f.Verdict = check.Unknown
			f.Observed = fmt.Sprintf("%s lists %s, which may be a GPU whose UUID can't be read", visibleVariable, clip(selector.String()))
		case s.want.Count >= 0 && s.seen >= s.want.Count && s.want.CountFrom != visibleVariable:
			f.Class = check.User // all that were granted are there
		}
		findings = append(findings, f)
	}
	return findings
}

// tooFew is the finding about GPUs that are short of the number expected, beyond
// those that are known to be lost.
func (s scene) tooFew() []check.Finding {
	least := max(s.want.Count, 0)
	if s.want.Needed() {
		least = max(least, 1)
	}
	have := s.units + s.lost + len(s.missing)
	if have >= least || s.unsure && s.seen >= least {
		return nil
	}
	f := check.Finding{
		ID: "gpu.count", Verdict: check.Fail, Source: sourceCount, Class: check.Node,
		Observed: fmt.Sprintf("%d of %d", s.units, least), Expected: fmt.Sprintf("%d (%s)", least, s.want.from()),
		Hint: "drain the node and look into dmesg and lspci for the GPUs that are gone, or give the --gpus-per-node that it really has",
	}
	if s.want.Count <= 0 {
		f.Expected = "at least 1"
		f.Hint = "ask for GPUs (sbatch --gpus-per-node), or give --gpu-check=auto if the job can do without"
		f.Class = check.User
	}
	hidden := 0
	for _, g := range s.facts.GPUs {
		if g.Handle == NoPermission {
			hidden++
		}
	}
	switch {
	case s.want.Visible != nil && s.seen >= least:
		f.Source, f.Class = visibleVariable, check.User
		f.Observed += fmt.Sprintf(": %s lists %d, and NVML shows %d", visibleVariable, len(s.want.Visible), s.seen)
		f.Hint = "let " + visibleVariable + " list as many GPUs as the job has, or unset it"
	case hidden > 0:
		f.Class = check.User
		f.Observed += fmt.Sprintf(", and %d that this process may not use", hidden)
		f.Hint = "ask Slurm for that many GPUs: its cgroup keeps this step from the others"
	}
	return []check.Finding{f}
}
