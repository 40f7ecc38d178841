package fitness

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// EvaluateFacts evaluates the facts for a job with the given expectations. A check that passes has
// one finding for the node; otherwise it has one for each GPU and problem. A query that was not
// possible results in a Skip, a failed one in Unknown; neither ever results in a Pass.
func EvaluateFacts(f gpu.Facts, want Expectation) []check.Finding {
	// Without NVML there is no more to check.
	switch {
	case f.Init == gpu.Success:
	case want.hasOnlyOtherVendors(f):
		return evaluateOtherGPUs(f, want)
	default:
		return []check.Finding{initFailureFinding(f, want)}
	}
	// NVML works. Stop here if the job uses no GPU.
	versions := "driver " + cmp.Or(f.Driver.OrZero(), "version unknown")
	if cuda, ok := f.CUDA.Get(); ok {
		versions += ", CUDA " + cuda
	}
	findings := []check.Finding{{ID: "gpu.nvml", Verdict: check.Pass, Observed: versions, Source: sourceInit}}
	if want.HasNoGPUs() {
		return append(findings, check.Finding{
			ID: "gpu.count", Verdict: check.Skip, Source: sourceCount,
			Observed: fmt.Sprintf("the job uses none of the node's %d GPUs (%s)", len(f.GPUs), want.countSourceText()),
		})
	}
	// Check the number of GPUs, then each GPU.
	s := evaluation{facts: f, want: want, gpuSelection: selectGPUs(f, want)}
	findings = append(findings, s.countFindings()...)
	for _, r := range gpuRules {
		findings = append(findings, s.applyRule(r)...)
	}
	return findings
}

type evaluation struct {
	facts gpu.Facts
	want  Expectation
	gpuSelection
}

// gpuRule is a check that is applied to each GPU separately.
type gpuRule struct {
	id       string
	source   string // queried functions of NVML
	expected string // expected state
	checkGPU func(*gpuCheck)
}

func (r gpuRule) newFindings() check.FindingBuilder {
	return check.FindingBuilder{Template: check.Finding{ID: r.id, Source: r.source}}
}

var gpuRules = []gpuRule{
	{"gpu.recovery", "nvmlDeviceGetFieldValues(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)", "no action", checkRecovery},
	{"gpu.remap", "nvmlDeviceGetRemappedRows", "no failure, nothing pending", checkRemapped},
	{"gpu.ecc_unc", "nvmlDeviceGetTotalEccErrors, nvmlDeviceGetSramEccErrorStatus",
		"no uncorrectable errors since the last reset", checkUncorrected},
	{"gpu.retired", "nvmlDeviceGetRetiredPages", "fewer than 63 pages, none pending", checkRetired},

	{"gpu.fabric", "nvmlDeviceGetGpuFabricInfoV", "joined and healthy", checkFabric},
	{"gpu.nvlink", "nvmlDeviceGetNvLinkState, nvmlDeviceGetP2PStatus",
		"as many active links as the node's other GPUs, and P2P with them", checkNVLink},
	{"gpu.c2c", "nvmlDeviceGetFieldValues(NVML_FI_DEV_C2C_LINK_COUNT, " +
		"NVML_FI_DEV_C2C_LINK_GET_STATUS)", "all links to the CPU active", checkC2C},
	{"gpu.mig", "nvmlDeviceGetMigMode", "usable by the job, no change pending", checkMIG},
	{"gpu.compute_mode", "nvmlDeviceGetComputeMode", "default", checkComputeMode},
	{idBusy, "nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetMemoryInfo_v2", "not in use", checkBusy},
}

// ListIDs returns the IDs of all checks that EvaluateFacts makes.
func ListIDs() []string {
	ids := []string{"gpu.nvml", "gpu.driver_unresponsive", "gpu.count"}
	for _, r := range gpuRules {
		ids = append(ids, r.id)
	}
	return ids
}

// gpuCheck is one rule applied to one GPU. The check has passed if there are neither findings nor
// skips.
type gpuCheck struct {
	evaluation
	check.FindingBuilder
	expected string // expected state
	gpu      gpu.GPU
	skips    []string // why a part of the check does not apply, or could not be made
}

// addSkip adds a reason why a part of the check was skipped, unless it was added before.
func (e *gpuCheck) addSkip(why string) {
	if !slices.Contains(e.skips, why) {
		e.skips = append(e.skips, why)
	}
}

// addUnreadable adds a value that could not be read: as a reason to skip the check if nothing is
// wrong, and as a finding otherwise.
func (e *gpuCheck) addUnreadable(what string, why gpu.NVMLReturn) {
	if why.IsUnavailable() {
		e.addSkip(what + ": " + why.DisplayText())
		return
	}
	observed := fmt.Sprintf("cannot read %s: %s", what, why.DisplayText())
	if slices.ContainsFunc(e.Findings, func(f check.Finding) bool { return f.Observed == observed }) {
		return
	}
	hint := "run nvidia-smi -q on the node: the NVIDIA driver returns an error for this query"
	if why == gpu.NoPermission {
		hint = "run \"bringupd check\" as a user with permission for this query, or give the container the whole GPU"
	}
	e.addNodeFinding(check.Unknown, observed, hint)
}

// addNodeFinding adds a finding that the operator of the node can fix. The caller may change the
// finding until the next one is added.
func (e *gpuCheck) addNodeFinding(verdict check.Verdict, observed, hint string) *check.Finding {
	return e.AddFinding(verdict, check.ClassNode, observed, e.expected, hint)
}

// addFindingIf adds a finding like addNodeFinding, or returns one that is not added.
func (e *gpuCheck) addFindingIf(
	is bool, verdict check.Verdict, observed, hint string,
) *check.Finding {
	if !is {
		return new(check.Finding)
	}
	return e.addNodeFinding(verdict, observed, hint)
}

// Hints that several rules use.
const (
	hintReset      = "drain the node, and reset the GPU (nvidia-smi --gpu-reset) or reboot"
	hintResetLater = "reset the GPU (nvidia-smi --gpu-reset) or reboot after the job"
)

// readValue returns the value of a reading. If there is none, it returns zero and false, and adds
// the reason to the check.
func readValue[T any](e *gpuCheck, what string, r gpu.Reading[T]) (T, bool) {
	value, ok := r.Get()
	if !ok {
		e.addUnreadable(what, r.Reason)
	}
	return value, ok
}

func (s evaluation) applyRule(r gpuRule) []check.Finding {
	var findings []check.Finding
	var gaps skipReasons
	well := 0
	// A GPU that does not answer has a finding of gpu.count. Here it is only skipped.
	for _, g := range s.gpus {
		if why, lost := g.LossReason(); lost {
			gaps.addGPU("does not respond ("+why.DisplayText()+")", g.Index)
			continue
		}
		e := gpuCheck{evaluation: s, FindingBuilder: r.newFindings(), expected: r.expected, gpu: g}
		e.Template.Device = findingDevice(g)
		r.checkGPU(&e)
		if len(e.Findings)+len(e.skips) == 0 {
			well++
		}
		for _, why := range e.skips {
			gaps.addGPU(why, g.Index)
		}
		findings = append(findings, e.Findings...)
	}
	return append(findings, s.summaryFinding(r, well, gaps)...)
}

// summaryFinding returns the summary of all GPUs without a problem: a Pass, or a Skip if values are
// missing. It returns nil if there is nothing to add to the findings of single GPUs.
func (s evaluation) summaryFinding(r gpuRule, well int, gaps skipReasons) []check.Finding {
	all := len(s.gpus)
	verdict, observed := check.Skip, gaps.formatReasons(all)
	switch {
	case all == 0:
		observed = "no GPU to check"
	case len(gaps) > 0 && well > 0:
		observed += fmt.Sprintf("; passed: %d of %d", well, all)
	case len(gaps) == 0 && well < all:
		return nil
	case len(gaps) == 0:
		verdict, observed = check.Pass, fmt.Sprintf("%d of %d", well, all)
	}
	sheet := r.newFindings()
	sheet.AddFinding(verdict, "", observed, r.expected, "")
	return sheet.Findings
}

func findingDevice(g gpu.GPU) *check.Device {
	return &check.Device{Index: g.Index, UUID: g.UUID.OrZero(), Bus: g.Bus.OrZero()}
}

// skipReasons are the reasons why a check was skipped, in the order in which they were added, each
// with its GPUs.
type skipReasons []skipReason

type skipReason struct {
	text string
	gpus []int
}

func (t *skipReasons) addGPU(what string, gpu int) {
	at := slices.IndexFunc(*t, func(g skipReason) bool { return g.text == what })
	if at < 0 {
		at = len(*t)
		*t = append(*t, skipReason{text: what})
	}
	(*t)[at].gpus = append((*t)[at].gpus, gpu)
}

// formatReasons returns all reasons as one text. all is the number of the job's GPUs; a reason that
// does not apply to all of them is preceded by the GPUs' indices.
func (t skipReasons) formatReasons(all int) string {
	var parts []string
	for _, g := range t {
		if n := len(g.gpus); n < all {
			g.text = textutil.PluralForm(n, "GPU") + " " + formatIndices(g.gpus) + ": " + g.text
		}
		parts = append(parts, g.text)
	}
	return strings.Join(parts, "; ")
}
