package fitness

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// judgeRecovery: what NVIDIA's driver itself advises, from 570 on.
func judgeRecovery(e *exam) {
	action, _ := get(e, "recovery action", e.gpu.Recovery)
	known, ok := gpu.Recoveries[action]
	e.when(ok, check.Fail, fmt.Sprintf("the driver asks to %s (%d)", known.Observed, action), known.Hint)
	e.when(!ok && action != 0, check.Fail, fmt.Sprintf("the driver asks for an action that this bringupd does not know (%d)", action),
		"see what nvidia-smi -q says of \"GPU Recovery Action\", and drain the node")
}

// neededLooks is how many readings are needed, all of which must have the reason: nvml.h says of a slowdown that it
// "may be also reported during PState or clock change". gpud calls a GPU unhealthy at 0.6 a minute over ten minutes,
// for which no gate has the time; Azure only logs it.
const neededLooks = 3

// hwSlowdown is set together with 0x40 and 0x80, or alone if the hardware gives no reason.
const hwSlowdown = 0x8

// slowdowns are bits of nvmlClocksEventReasons. The power cap (0x4) and an idle GPU (0x1) are as it should be.
var slowdowns = []struct {
	bit    uint64
	word   string
	strict bool
	hint   string
}{
	{0x40, "too hot (HW thermal slowdown)", true, "look at the node's fans, its cooling water and its neighbours' temperatures"},
	{0x80, "power brake (HW power brake slowdown)", true, "look at the node's power supplies: one of them, or the rack, asks the GPUs to take less"},
	{0x20, "warm (SW thermal slowdown)", false, "look at the node's cooling: the GPU is warm before there is any work"},
	{hwSlowdown, "the hardware gives no reason (HW slowdown)", false, "look at the GPU's temperature and at the node's power supplies"},
}

func judgeClocks(e *exam) {
	looks, ok := get(e, "clock reasons", e.gpu.Slowed)
	if ok && len(looks) < neededLooks {
		e.cannot(fmt.Sprintf("clock reasons, more than %d times", len(looks)), "")
	}
	if len(looks) < neededLooks {
		return
	}
	always := ^uint64(0)
	for _, look := range looks {
		always &= look
	}
	var words, hints []string
	strict := false
	for _, s := range slowdowns {
		if always&s.bit != 0 && (s.bit != hwSlowdown || len(words) == 0) {
			words, hints, strict = append(words, s.word), append(hints, s.hint), strict || s.strict
		}
	}
	if len(words) > 0 {
		e.say(check.Warn, fmt.Sprintf("clocks are kept down in %d of %d looks: %s", len(looks), len(looks), strings.Join(words, ", ")),
			strings.Join(hints, "; ")).Strict = strict
	}
}

// When memory is too worn.
const (
	// remapMost is how many rows DCGM lets be remapped after uncorrectable errors before it warns: all spare rows of a
	// bank, and 512 in a GPU.
	remapMost = 512
	// retiredMost is how many retired pages DCGM and the vendor's return process bear. Azure fails from 62, GCM warns
	// from 11.
	retiredMost = 63
	// retiredSoon is DCGM's soft limit.
	retiredSoon = 15
	// dramCorrectedMost is GCM's limit of corrected errors since the last reset. It is a trend and no gate anywhere.
	dramCorrectedMost = 50_000_000
	// sramCorrectedMost is Azure's; GCM counts them with those of DRAM.
	sramCorrectedMost = 10_000
)

// judgeRemapped: all fleets fail on a failed remapping. GCM, Azure and gpud fail on one that is pending too; nvml.h
// says that it "won't affect future work", and no job can reset its GPUs, so it is a warning.
func judgeRemapped(e *exam) {
	rows, _ := get(e, "remapped rows", e.gpu.Remapped)
	e.when(rows.Failed, check.Fail, "rows could not be remapped: no spare rows are left",
		"drain the node and return the GPU: its memory can't be repaired any more")
	e.when(rows.Pending, check.Warn, "a row is remapped at the next reset", hintResetLater, strictly)
	e.when(rows.Uncorrected >= remapMost, check.Warn, fmt.Sprintf("%d rows were remapped after uncorrectable errors", rows.Uncorrected),
		"have the GPU looked at: its spare rows are running out", expecting(fmt.Sprintf("fewer than %d", remapMost)))
}

// judgeUncorrected: DCGM and GCM fail on any. In DRAM the row is remapped and gpu.remap decides, so that such an error
// is a warning, and a failure only in strict mode. So it is with one of SRAM that was contained: it has ended the program
// that met it (Xid 94, whose action is RESTART_APP in NVIDIA's catalog), and a driver that tells its recovery action asks
// for none. An older one does not tell the two apart.
func judgeUncorrected(e *exam) {
	sram, _ := get(e, "SRAM errors", e.gpu.SRAM)
	dram, _ := get(e, "DRAM errors", e.gpu.DRAM)
	action, asked := e.gpu.Recovery.Get()
	contained := asked && action == 0
	some := !sram.ThresholdExceeded && sram.Uncorrected > 0
	e.when(sram.ThresholdExceeded, check.Fail,
		fmt.Sprintf("the GPU says that its SRAM has had too many uncorrectable errors (%d since the last reset)", sram.Uncorrected),
		"drain the node and return the GPU")
	e.when(some && !contained, check.Fail, fmt.Sprintf("uncorrectable errors of SRAM: %d", sram.Uncorrected), hintReset+"; return it if they come again")
	e.when(some && contained, check.Warn, fmt.Sprintf("uncorrectable errors of SRAM: %d, contained: the driver asks for nothing", sram.Uncorrected),
		hintResetLater+"; return the GPU if they come again", strictly)
	e.when(dram.Uncorrected > 0, check.Warn, fmt.Sprintf("uncorrectable errors of DRAM: %d", dram.Uncorrected),
		hintResetLater+", so that the row is replaced", strictly)
	e.forgetful()
}

// forgetful keeps counters of no errors from passing where they have just begun: nvml.h says of NVML_VOLATILE_ECC that,
// without persistence mode, they "are reset each time a compute app is run". Here that is our own question.
func (e *exam) forgetful() {
	if on, ok := e.gpu.Persist.Get(); ok && !on && len(e.Found)+len(e.unread) == 0 {
		e.moot("without persistence mode its counters begin anew with each use")
	}
}

func judgeCorrected(e *exam) {
	ecc, ok := get(e, "ECC mode", e.gpu.ECC)
	off := ok && !ecc.Current
	e.when(off && ecc.Pending, check.Warn, "ECC is off until the next reset", hintResetLater, expecting("ECC on"))
	e.when(off && !ecc.Pending, check.Warn, "ECC is off",
		"switch ECC on (nvidia-smi -e 1) and reset the GPU: without it errors of memory pass for results", expecting("ECC on"))
	if off {
		return // there is nothing to count
	}
	many := func(where string, errors, most uint64) {
		e.when(errors >= most, check.Warn, fmt.Sprintf("corrected errors of %s: %d", where, errors),
			"have the GPU's memory looked at when the node is free", expecting(fmt.Sprintf("fewer than %d since the last reset", most)))
	}
	dram, _ := get(e, "DRAM errors", e.gpu.DRAM)
	many("DRAM", dram.Corrected, dramCorrectedMost)
	sram, _ := get(e, "SRAM errors", e.gpu.SRAM)
	many("SRAM", sram.Corrected, sramCorrectedMost)
	e.forgetful()
}

// judgeRetired is for GPUs before Ampere: those that followed remap rows instead.
func judgeRetired(e *exam) {
	pages, _ := get(e, "retired pages", e.gpu.Retired)
	all := max(pages.SingleBit, 0) + max(pages.DoubleBit, 0)
	observed := fmt.Sprintf("%d retired pages (%d after double-bit errors)", all, pages.DoubleBit)
	e.when(all >= retiredMost, check.Fail, observed, "drain the node and return the GPU: no more pages can be retired")
	e.when(all >= retiredSoon && all < retiredMost, check.Warn, observed, "have the GPU looked at when the node is free: its memory wears out")
	e.when(pages.Pending, check.Fail, "a page is retired at the next reset, and in use until then", hintReset)
}
