package fitness

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Evaluate evaluates the facts for a job with the given expectations. A check that passes has one
// finding for the node; otherwise it has one for each GPU and problem. A query that was not
// possible results in a Skip, a failed one in Unknown; neither ever results in a Pass.
func Evaluate(f gpu.Facts, want Expect) []check.Finding {
	// Without NVML there is no more to check.
	switch {
	case f.Init == gpu.Success:
	case want.foreign(f):
		return withoutNVIDIA(f, want)
	default:
		return []check.Finding{noNVML(f, want)}
	}
	// NVML works. Stop here if the job uses no GPU.
	findings := []check.Finding{{ID: "gpu.nvml", Verdict: check.Pass, Observed: versions(f), Source: sourceInit}}
	if want.Forgone() {
		return append(findings, check.Finding{
			ID: "gpu.count", Verdict: check.Skip, Source: sourceCount,
			Observed: fmt.Sprintf("the job has none of the node's %d (%s)", len(f.GPUs), want.from()),
		})
	}
	// Check the number of GPUs, then each GPU, then the environment.
	s := scene{facts: f, want: want, choice: choose(f, want)}
	findings = append(findings, s.count()...)
	for _, r := range rules {
		findings = append(findings, s.apply(r)...)
	}
	return append(findings, environment(want.Environ)...)
}

// scene is the input of all checks.
type scene struct {
	facts gpu.Facts
	want  Expect
	choice
}

// rule is a check that is applied to each GPU separately.
type rule struct {
	id     string
	source string // queried functions of NVML
	expect string // expected state
	judge  func(*exam)
}

// sheet returns an empty Sheet for the findings of the rule.
func (r rule) sheet() check.Sheet {
	return check.Sheet{Each: check.Finding{ID: r.id, Source: r.source}}
}

// rules are all rules, in the order of their findings.
var rules = []rule{
	{"gpu.recovery", "nvmlDeviceGetFieldValues(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)", "no action", judgeRecovery},
	{"gpu.clocks", "nvmlDeviceGetCurrentClocksEventReasons", "not slowed down by its hardware", judgeClocks},

	{"gpu.remap", "nvmlDeviceGetRemappedRows", "no failure, nothing pending", judgeRemapped},
	{"gpu.ecc_unc", "nvmlDeviceGetTotalEccErrors, nvmlDeviceGetSramEccErrorStatus", "no uncorrectable error since the last reset", judgeUncorrected},
	{"gpu.ecc_corr", "nvmlDeviceGetEccMode, nvmlDeviceGetTotalEccErrors", "ECC on, and few corrected errors", judgeCorrected},
	{"gpu.retired", "nvmlDeviceGetRetiredPages", "fewer than 63 pages, none pending", judgeRetired},

	{"gpu.fabric", "nvmlDeviceGetGpuFabricInfoV", "joined, healthy, in the same clique as its siblings", judgeFabric},
	{"gpu.nvlink", "nvmlDeviceGetNvLinkState, nvmlDeviceGetP2PStatus", "as many active links as its siblings, which it reaches", judgeNVLink},
	{"gpu.c2c", "nvmlDeviceGetFieldValues(NVML_FI_DEV_C2C_LINK_COUNT, NVML_FI_DEV_C2C_LINK_GET_STATUS)", "all links to the CPU active", judgeC2C},
	{"gpu.pcie", "nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetCurrPcieLinkGeneration", "as many lanes and as fast as its siblings, all of it under load", judgePCIe},

	{"gpu.persistence", "nvmlDeviceGetPersistenceMode", "on", judgePersistence},
	{"gpu.mig", "nvmlDeviceGetMigMode", "as the job needs it, and nothing pending", judgeMIG},
	{"gpu.compute_mode", "nvmlDeviceGetComputeMode", "default", judgeCompute},
	{idBusy, "nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetMemoryInfo_v2", "nobody uses the GPU", judgeBusy},
}

// IDs returns the IDs of all checks that Evaluate makes.
func IDs() []string {
	ids := []string{"gpu.nvml", "gpu.driver_unresponsive", "gpu.count", "gpu.env"}
	for _, r := range rules {
		ids = append(ids, r.id)
	}
	return ids
}

// exam is one rule applied to one GPU. The check has passed if there are neither findings nor
// unread values.
type exam struct {
	scene
	check.Sheet
	expect string // expected state
	gpu    gpu.GPU
	unread []hole // values that could not be read
}

// hole is a value that could not be read.
type hole struct {
	what string     // name of the value: SRAM errors
	why  gpu.Return // empty if it was not queried
	moot bool       // the value would be meaningless, or this user may not read it; the text in what gives the reason
}

// cannot adds an unread value, with the reason. Duplicates are ignored.
func (e *exam) cannot(what string, why gpu.Return) {
	e.note(hole{what: what, why: why})
}

// moot adds a reason why the check does not apply to this GPU. This is no fault.
func (e *exam) moot(why string) { e.note(hole{what: why, moot: true}) }

// note adds an unread value, unless it was added before.
func (e *exam) note(u hole) {
	if !slices.Contains(e.unread, u) {
		e.unread = append(e.unread, u)
	}
}

// say adds a finding that the operator of the node can fix. The caller may change the finding until
// the next one is added.
func (e *exam) say(verdict check.Verdict, observed, hint string) *check.Finding {
	return e.Say(verdict, check.Node, observed, e.expect, hint)
}

// when adds a finding if the condition holds. more modifies it.
func (e *exam) when(is bool, verdict check.Verdict, observed, hint string, more ...detail) {
	if is {
		f := e.say(verdict, observed, hint)
		for _, add := range more {
			add(f)
		}
	}
}

// detail modifies a finding.
type detail func(*check.Finding)

// strictly marks a Warn that becomes a Fail in strict mode.
func strictly(f *check.Finding) { f.Strict = true }

// expecting sets the expected state, if it is more specific than the rule's.
func expecting(text string) detail { return func(f *check.Finding) { f.Expected = text } }

// Hints that several rules use.
const (
	hintReset      = "drain the node and reset the GPU (nvidia-smi --gpu-reset) or reboot"
	hintResetLater = "reset the GPU (nvidia-smi --gpu-reset) or reboot once the job is over"
)

// get returns the value of a reading. If there is none, it returns zero and false, and adds an
// unread value to the check.
func get[T any](e *exam, what string, r gpu.Reading[T]) (T, bool) {
	value, ok := r.Get()
	if !ok {
		e.cannot(what, r.Why)
	}
	return value, ok
}

// apply applies a rule to all GPUs of the job and returns the findings.
func (s scene) apply(r rule) []check.Finding {
	var findings []check.Finding
	var gaps gaps
	well := 0
	// A GPU that does not answer has a finding of gpu.count. Here it is only skipped.
	for _, g := range s.gpus {
		if why, lost := g.Lost(); lost {
			gaps.add("does not answer ("+why.Said()+")", g.Index)
			continue
		}
		e := exam{scene: s, Sheet: r.sheet(), expect: r.expect, gpu: g}
		e.Each.Device = deviceOf(g)
		r.judge(&e)
		// Classify the values that could not be read: skipped ones are summarised, errors are findings.
		if len(e.Found)+len(e.unread) == 0 {
			well++
		}
		for _, u := range e.unread {
			switch {
			case u.moot:
				gaps.add(u.what, g.Index)
			case u.why.Unasked():
				gaps.add(u.what+": "+u.why.Said(), g.Index)
			default:
				e.sayUnread(u)
			}
		}
		findings = append(findings, e.Found...)
	}
	return append(findings, s.rest(r, well, gaps)...)
}

// rest returns the summary of all GPUs without a problem: a Pass, or a Skip if values are missing.
// It returns nil if there is nothing to add to the findings of single GPUs.
func (s scene) rest(r rule, well int, gaps gaps) []check.Finding {
	all := len(s.gpus)
	verdict, observed := check.Skip, gaps.of(all)
	switch {
	case all == 0:
		observed = "no GPU to look at"
	case len(gaps) > 0 && well > 0:
		observed += fmt.Sprintf("; well: %d of %d", well, all)
	case len(gaps) == 0 && well < all:
		return nil
	case len(gaps) == 0:
		verdict, observed = check.Pass, fmt.Sprintf("%d of %d", well, all)
	}
	sheet := r.sheet()
	sheet.Say(verdict, "", observed, r.expect, "")
	return sheet.Found
}

// deviceOf returns the identity of a GPU for findings.
func deviceOf(g gpu.GPU) *check.Device {
	return &check.Device{Index: g.Index, UUID: g.UUID.OrZero(), Bus: g.Bus.OrZero()}
}

// sayUnread adds a finding for a query that has failed.
func (e *exam) sayUnread(u hole) {
	hint := "run nvidia-smi -q on the node: the driver answers this question with an error"
	if u.why == gpu.NoPermission {
		hint = "run \"bringupd check\" as a user who may ask this, or let the container see the whole GPU"
	}
	e.say(check.Unknown, fmt.Sprintf("%s could not be read: %s", u.what, u.why.Said()), hint)
}

// gaps are the reasons why a check was skipped, in the order in which they were added, each with
// its GPUs.
type gaps []gap

// gap is one reason and the indices of the GPUs that it applies to.
type gap struct {
	what string
	gpus []int
}

// add adds a GPU to a reason. A new reason is appended.
func (t *gaps) add(what string, gpu int) {
	at := slices.IndexFunc(*t, func(g gap) bool { return g.what == what })
	if at < 0 {
		at = len(*t)
		*t = append(*t, gap{what: what})
	}
	(*t)[at].gpus = append((*t)[at].gpus, gpu)
}

// of returns all reasons as one text. all is the number of the job's GPUs; a reason that does not
// apply to all of them is preceded by the GPUs' indices.
func (t gaps) of(all int) string {
	var parts []string
	for _, g := range t {
		if n := len(g.gpus); n < all {
			g.what = prose.Noun(n, "GPU") + " " + numbers(g.gpus) + ": " + g.what
		}
		parts = append(parts, g.what)
	}
	return strings.Join(parts, "; ")
}
