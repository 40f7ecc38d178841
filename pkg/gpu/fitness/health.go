package fitness

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// checkRecovery checks the recovery action that NVIDIA's driver itself recommends, since driver
// 570.
func checkRecovery(e *gpuCheck) {
	action, _ := readValue(e, "recovery action", e.gpu.Recovery)
	known, ok := gpu.RecoveryActions[action]
	e.addFindingIf(ok, check.Fail, fmt.Sprintf("%s (%d)", known.Meaning, action), known.Action)
	e.addFindingIf(!ok && action != 0, check.Fail, fmt.Sprintf("the GPU requests an unknown action (%d)", action),
		"drain the node, and see \"GPU Recovery Action\" in nvidia-smi -q")
}

// maxRetiredPages is the maximum number of retired pages for DCGM and for the vendor's return
// process. Azure fails from 62, GCM warns from 11.
const maxRetiredPages = 63

// checkRemapped checks the remapped memory rows. All fleets fail on a failed remapping. GCM, Azure
// and gpud also fail on a pending one. Here that is a warning, because according to nvml.h it
// "won't affect future work", and a job cannot reset its GPUs.
func checkRemapped(e *gpuCheck) {
	rows, _ := readValue(e, "remapped rows", e.gpu.Remapped)
	e.addFindingIf(rows.Failed, check.Fail, "row remapping failed: no spare rows are left",
		"drain the node and replace the GPU (RMA): its memory cannot be repaired any more")
	e.addFindingIf(rows.Pending, check.Warn, "a row remapping is pending until a reset",
		hintResetLater).Strict = true
}

// checkUncorrected checks for uncorrectable memory errors. DCGM and GCM fail on any. Here an error
// of DRAM is a warning, and fails only in strict mode: its row is remapped, and gpu.remap decides.
// The same is true of a contained error of SRAM: it has ended only the program that was affected
// (Xid 94, with the action RESTART_APP in NVIDIA's catalog), and the driver requests no recovery
// action. Drivers that do not report a recovery action do not show whether an error was contained,
// so it is a failure.
func checkUncorrected(e *gpuCheck) {
	sram, _ := readValue(e, "SRAM errors", e.gpu.SRAM)
	dram, _ := readValue(e, "DRAM errors", e.gpu.DRAM)
	action, asked := e.gpu.Recovery.Get()
	contained := asked && action == 0
	some := !sram.ThresholdExceeded && sram.Uncorrected > 0
	e.addFindingIf(sram.ThresholdExceeded, check.Fail,
		fmt.Sprintf("the GPU reports that its SRAM has exceeded the threshold of uncorrectable "+
			"errors (%d since the last reset)", sram.Uncorrected),
		"drain the node and replace the GPU (RMA)")
	e.addFindingIf(some && !contained, check.Fail, fmt.Sprintf("uncorrectable SRAM errors: %d",
		sram.Uncorrected), hintReset+"; replace it (RMA) if they occur again")
	e.addFindingIf(some && contained, check.Warn, fmt.Sprintf("uncorrectable SRAM errors: %d, "+
		"contained (the NVIDIA driver requests no action)", sram.Uncorrected),
		hintResetLater+"; replace the GPU (RMA) if they occur again").Strict = true
	e.addFindingIf(dram.Uncorrected > 0, check.Warn, fmt.Sprintf("uncorrectable DRAM errors: %d", dram.Uncorrected),
		hintResetLater+", which remaps the row").Strict = true
	e.skipIfCountersReset()
}

// skipIfCountersReset skips the check if its counters are zero only because they have just been
// reset: according to nvml.h (NVML_VOLATILE_ECC) they "are reset each time a compute app is run"
// without persistence mode. Our own query has that effect.
func (e *gpuCheck) skipIfCountersReset() {
	if on, ok := e.gpu.Persistence.Get(); ok && !on && len(e.Findings)+len(e.skips) == 0 {
		e.addSkip("the error counters are not meaningful without persistence mode: they reset with each use")
	}
}

// checkRetired checks the retired memory pages of GPUs before Ampere. Later ones remap rows
// instead.
func checkRetired(e *gpuCheck) {
	pages, _ := readValue(e, "retired pages", e.gpu.Retired)
	all := max(pages.SingleBit, 0) + max(pages.DoubleBit, 0)
	observed := fmt.Sprintf("%d retired pages (%d after double-bit errors)", all, pages.DoubleBit)
	e.addFindingIf(all >= maxRetiredPages, check.Fail, observed,
		"drain the node and replace the GPU (RMA): no more pages can be retired")
	e.addFindingIf(pages.Pending, check.Fail, "a page retirement is pending until a reset", hintReset)
}
