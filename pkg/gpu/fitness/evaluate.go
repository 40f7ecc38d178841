package fitness

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Evaluate returns what the facts mean for a job that expects that. Where all is well a check has one finding for the
// node, and otherwise one for each GPU and each thing that is wrong. What could not be asked is a Skip, and what did
// not work when asked is Unknown: neither is ever a Pass.
func Evaluate(f gpu.Facts, want Expect) []check.Finding {
	switch {
	case f.Init == gpu.Success:
	case want.foreign(f):
		return withoutNVIDIA(f, want)
	default:
		return []check.Finding{noNVML(f, want)}
	}
	findings := []check.Finding{{ID: "gpu.nvml", Verdict: check.Pass, Observed: versions(f), Source: sourceInit}}
	if want.Forgone() {
		return append(findings, check.Finding{
			ID: "gpu.count", Verdict: check.Skip, Source: sourceCount,
			Observed: fmt.Sprintf("the job has none of the node's %d (%s)", len(f.GPUs), want.from()),
		})
	}
	s := scene{facts: f, want: want, choice: choose(f, want)}
	findings = append(findings, s.count()...)
	for _, r := range rules {
		findings = append(findings, s.apply(r)...)
	}
	return append(findings, environment(want.Environ)...)
}

// scene is what a check may look at.
type scene struct {
	facts gpu.Facts
	want  Expect
	choice
}

// rule is a check of one GPU after the other.
type rule struct {
	id     string
	source string // what was asked
	expect string // what passes
	judge  func(*exam)
}

// sheet is one for the findings of the rule.
func (r rule) sheet() check.Sheet {
	return check.Sheet{Each: check.Finding{ID: r.id, Source: r.source}}
}

// rules are all of them, in the order of their findings.
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

// IDs are those of all checks that Evaluate makes.
func IDs() []string {
	ids := []string{"gpu.nvml", "gpu.driver_unresponsive", "gpu.count", "gpu.env"}
	for _, r := range rules {
		ids = append(ids, r.id)
	}
	return ids
}

// exam is one rule applied to one GPU of a scene. Nothing wrong and nothing unread means that all is well.
type exam struct {
	scene
	check.Sheet
	expect string // what passes
	gpu    gpu.GPU
	unread []hole // parts of the question that have no answer
}

// hole is something that could not be read.
type hole struct {
	what string     // SRAM errors
	why  gpu.Return // empty: nobody asked
	moot bool       // an answer would not tell anything, or is not for this user to have: what says it all
}

// cannot notes, once, what could not be read.
func (e *exam) cannot(what string, why gpu.Return) {
	e.note(hole{what: what, why: why})
}

// moot notes why there is nothing to be learned here, and that this is nobody's fault.
func (e *exam) moot(why string) { e.note(hole{what: why, moot: true}) }

func (e *exam) note(u hole) {
	if !slices.Contains(e.unread, u) {
		e.unread = append(e.unread, u)
	}
}

// say adds a finding, which the operator of the node can mend. The caller may change it until it adds the next.
func (e *exam) say(verdict check.Verdict, observed, hint string) *check.Finding {
	return e.Say(verdict, check.Node, observed, e.expect, hint)
}

// when adds a finding if the condition holds.
func (e *exam) when(is bool, verdict check.Verdict, observed, hint string, more ...detail) {
	if is {
		f := e.say(verdict, observed, hint)
		for _, add := range more {
			add(f)
		}
	}
}

// detail sets what only some findings have.
type detail func(*check.Finding)

// strictly marks a Warn that becomes a Fail in strict mode.
func strictly(f *check.Finding) { f.Strict = true }

// expecting sets what would pass, where the rule's own words are too wide.
func expecting(text string) detail { return func(f *check.Finding) { f.Expected = text } }

// Hints that several rules have.
const (
	hintReset      = "drain the node and reset the GPU (nvidia-smi --gpu-reset) or reboot"
	hintResetLater = "reset the GPU (nvidia-smi --gpu-reset) or reboot once the job is over"
)

// get returns the value of a reading; if it has none it returns zero, and notes why.
func get[T any](e *exam, what string, r gpu.Reading[T]) (T, bool) {
	value, ok := r.Get()
	if !ok {
		e.cannot(what, r.Why)
	}
	return value, ok
}

// apply applies a rule to all GPUs.
func (s scene) apply(r rule) []check.Finding {
	var findings []check.Finding
	var gaps gaps
	well := 0
	for _, g := range s.gpus {
		if why, lost := g.Lost(); lost {
			gaps.add("does not answer ("+why.Said()+")", g.Index)
			continue
		}
		e := exam{scene: s, Sheet: r.sheet(), expect: r.expect, gpu: g}
		e.Each.Device = deviceOf(g)
		r.judge(&e)
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

// rest returns the one finding about the GPUs that have no fault: a Skip if some answers are missing.
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

// deviceOf is the GPU as findings name it.
func deviceOf(g gpu.GPU) *check.Device {
	return &check.Device{Index: g.Index, UUID: g.UUID.OrZero(), Bus: g.Bus.OrZero()}
}

// sayUnread tells of an error where an answer should be.
func (e *exam) sayUnread(u hole) {
	hint := "run nvidia-smi -q on the node: the driver answers this question with an error"
	if u.why == gpu.NoPermission {
		hint = "run \"bringupd check\" as a user who may ask this, or let the container see the whole GPU"
	}
	e.say(check.Unknown, fmt.Sprintf("%s could not be read: %s", u.what, u.why.Said()), hint)
}

// gaps list what is not known, in the order in which it came up, and of which GPUs.
type gaps []gap

type gap struct {
	what string
	gpus []int
}

func (t *gaps) add(what string, gpu int) {
	at := slices.IndexFunc(*t, func(g gap) bool { return g.what == what })
	if at < 0 {
		at = len(*t)
		*t = append(*t, gap{what: what})
	}
	(*t)[at].gpus = append((*t)[at].gpus, gpu)
}

// of joins the gaps into one text. It names the GPUs where a gap is not common to all.
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
