package gpu

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/check"
)

// When memory is too worn.
const (
	// remapMost is how many rows DCGM lets be remapped after uncorrectable
	// errors before it warns: all spare rows of a bank, and 512 in a GPU.
	remapMost = 512
	// retiredMost is how many retired pages DCGM and the vendor's return
	// process bear. Azure fails from 62, GCM warns from 11.
	retiredMost = 63
	// retiredSoon is DCGM's soft limit.
	retiredSoon = 15
	// dramCorrectedMost is GCM's limit of corrected errors since the last
	// reset. It is a trend and no gate anywhere.
	dramCorrectedMost = 50_000_000
	// sramCorrectedMost is Azure's; GCM counts them with those of DRAM.
	sramCorrectedMost = 10_000
)

// memoryRules are about the wear of a GPU's memory.
var memoryRules = []rule{
	{"gpu.remap", "nvmlDeviceGetRemappedRows", "no failure, nothing pending", judgeRemapped},
	{"gpu.ecc_unc", "nvmlDeviceGetTotalEccErrors, nvmlDeviceGetSramEccErrorStatus", "no uncorrectable error since the last reset", judgeUncorrected},
	{"gpu.ecc_corr", "nvmlDeviceGetEccMode, nvmlDeviceGetTotalEccErrors", "ECC on, and few corrected errors", judgeCorrected},
	{"gpu.retired", "nvmlDeviceGetRetiredPages", fmt.Sprintf("fewer than %d pages, none pending", retiredMost), judgeRetired},
}

// judgeRemapped: all fleets fail on a failed remapping. GCM, Azure and gpud fail
// on one that is pending too; nvml.h says that it "won't affect future work", and
// no job can reset its GPUs, so it is only told of.
func judgeRemapped(_ scene, g GPU) (o opinion) {
	rows, ok := get(&o, "remapped rows", g.Remapped)
	if !ok {
		return o
	}
	if rows.Failed {
		o.say(check.Finding{Verdict: check.Fail, Class: check.Node, Observed: "rows could not be remapped: no spare rows are left",
			Hint: "drain the node and return the GPU: its memory can't be repaired any more"})
	}
	if rows.Pending {
		o.say(check.Finding{Verdict: check.Warn, Class: check.Node, Strict: true, Observed: "a row is remapped at the next reset",
			Hint: "reset the GPU (nvidia-smi --gpu-reset) or reboot once the job is over"})
	}
	if rows.Uncorrected >= remapMost {
		o.say(check.Finding{Verdict: check.Warn, Class: check.Node, Expected: fmt.Sprintf("fewer than %d", remapMost),
			Observed: fmt.Sprintf("%d rows were remapped after uncorrectable errors", rows.Uncorrected),
			Hint:     "have the GPU looked at: its spare rows are running out"})
	}
	return o
}

// judgeUncorrected: DCGM and GCM fail on any; in DRAM the row is remapped, so
// that gpu.remap decides, and there it is only told of but for strict.
func judgeUncorrected(_ scene, g GPU) (o opinion) {
	sram, ok := get(&o, "SRAM errors", g.SRAM)
	switch {
	case !ok:
	case sram.ThresholdExceeded:
		o.say(check.Finding{Verdict: check.Fail, Class: check.Node,
			Observed: fmt.Sprintf("the GPU says that its SRAM has had too many uncorrectable errors (%d since the last reset)", sram.Uncorrected),
			Hint:     "drain the node and return the GPU"})
	case sram.Uncorrected > 0:
		o.say(check.Finding{Verdict: check.Fail, Class: check.Node, Observed: fmt.Sprintf("uncorrectable errors of SRAM: %d", sram.Uncorrected),
			Hint: "drain the node and reset the GPU (nvidia-smi --gpu-reset) or reboot; return it if they come again"})
	}
	if dram, ok := get(&o, "DRAM errors", g.DRAM); ok && dram.Uncorrected > 0 {
		o.say(check.Finding{Verdict: check.Warn, Class: check.Node, Strict: true, Observed: fmt.Sprintf("uncorrectable errors of DRAM: %d", dram.Uncorrected),
			Hint: "reset the GPU (nvidia-smi --gpu-reset) or reboot once the job is over, so that the row is replaced"})
	}
	return o
}

func judgeCorrected(_ scene, g GPU) (o opinion) {
	ecc, ok := get(&o, "ECC mode", g.ECC)
	if ok && !ecc.Current {
		observed, hint := "ECC is off", "switch ECC on (nvidia-smi -e 1) and reset the GPU: without it errors of memory pass for results"
		if ecc.Pending {
			observed, hint = "ECC is off until the next reset", "reset the GPU (nvidia-smi --gpu-reset) or reboot once the job is over"
		}
		o.say(check.Finding{Verdict: check.Warn, Class: check.Node, Expected: "ECC on", Observed: observed, Hint: hint})
		return o // there is nothing to count
	}
	many := func(where string, errors, most uint64) {
		if errors >= most {
			o.say(check.Finding{Verdict: check.Warn, Class: check.Node, Expected: fmt.Sprintf("fewer than %d since the last reset", most),
				Observed: fmt.Sprintf("corrected errors of %s: %d", where, errors), Hint: "have the GPU's memory looked at when the node is free"})
		}
	}
	if dram, ok := get(&o, "DRAM errors", g.DRAM); ok {
		many("DRAM", dram.Corrected, dramCorrectedMost)
	}
	if sram, ok := get(&o, "SRAM errors", g.SRAM); ok {
		many("SRAM", sram.Corrected, sramCorrectedMost)
	}
	return o
}

// judgeRetired is for GPUs before Ampere: those that followed remap rows instead.
func judgeRetired(_ scene, g GPU) (o opinion) {
	pages, ok := get(&o, "retired pages", g.Retired)
	if !ok {
		return o
	}
	all := max(pages.SingleBit, 0) + max(pages.DoubleBit, 0)
	observed := fmt.Sprintf("%d retired pages (%d after double-bit errors)", all, pages.DoubleBit)
	switch {
	case all >= retiredMost:
		o.say(check.Finding{Verdict: check.Fail, Class: check.Node, Observed: observed, Hint: "drain the node and return the GPU: no more pages can be retired"})
	case all >= retiredSoon:
		o.say(check.Finding{Verdict: check.Warn, Class: check.Node, Observed: observed, Hint: "have the GPU looked at when the node is free: its memory wears out"})
	}
	if pages.Pending {
		o.say(check.Finding{Verdict: check.Fail, Class: check.Node, Observed: "a page is retired at the next reset, and in use until then",
			Hint: "drain the node and reset the GPU (nvidia-smi --gpu-reset) or reboot"})
	}
	return o
}
