package fitness

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

const sourceKernel = "/sys/class/kfd, /sys/class/drm, /sys/bus/pci"

// otherGPUs are the GPUs of a node without any sign of NVIDIA.
type otherGPUs struct {
	gpus        []gpu.OtherGPU
	usableUnits []gpu.Unit // GPUs, or tiles of GPUs, that the job may use
	usableCount int        // number of GPUs that usable belongs to
	selectorErr error      // error in the environment variable that selects GPUs
}

// newOtherGPUs returns the GPUs in the facts. The environment may select some of them for the job.
func newOtherGPUs(f gpu.Facts, environ []string) (c otherGPUs) {
	c.gpus = f.OtherGPUs
	// The position of a GPU in the machine's topology does not matter here.
	c.usableUnits, c.selectorErr = gpu.BuildTopology("", f).VisibleUnits(func(name string) (string, bool) { return envlist.Lookup(environ, name) })
	c.usableCount = len(distinctValues(c.usableUnits, func(u gpu.Unit) string { return fmt.Sprint(u.Index) }))
	return c
}

// evaluateOtherGPUs returns the findings for a node without any sign of NVIDIA. The health of GPUs
// can be checked only by NVML, so GPUs of other vendors are only counted.
func evaluateOtherGPUs(f gpu.Facts, want Expectation) []check.Finding {
	s := check.FindingBuilder{Template: check.Finding{ID: "gpu.nvml", Source: sourceKernel}}
	if len(f.OtherGPUs) == 0 {
		s.AddWarning(check.ClassEnvironment, "no sign of an NVIDIA, AMD or Intel GPU on this node", fmt.Sprintf("%d GPUs (%s)", want.Count, want.countSourceText()),
			"GPUs of other vendors are not checked; use --gpu-check=off if the job needs none of these")
		if want.Mode == check.ModeRequire || want.Mode == check.ModeStrict {
			s.Findings[0].Verdict, s.Findings[0].Expected = check.Fail, "GPUs"
		}
		return s.Findings
	}
	c := newOtherGPUs(f, want.Environ)
	counts := make(map[string]int) // of the GPUs by model
	for _, other := range c.gpus {
		counts[other.Model]++
	}
	var models []string
	for _, model := range distinctValues(c.gpus, func(o gpu.OtherGPU) string { return o.Model }) {
		models = append(models, fmt.Sprintf("%d %s", counts[model], model))
	}
	s.AddSkip(fmt.Sprintf("no NVIDIA GPU: %s are counted, but their health is not checked", strings.Join(models, ", ")))
	s.Template.ID = "gpu.count"
	if want.HasNoGPUs() {
		s.AddSkip(fmt.Sprintf("the job uses none of the node's %d GPUs (%s)", len(c.gpus), want.countSourceText()))
		return s.Findings
	}
	c.reportLostGPUs(&s, want)
	c.checkCount(&s, want)
	return s.Findings
}

// jobGPUCount returns the number of GPUs of the job. Tiles are counted if more were granted than
// there are GPUs.
func (c otherGPUs) jobGPUCount(want Expectation) int {
	if want.Count > c.usableCount {
		return len(c.usableUnits)
	}
	return c.usableCount
}

// reportLostGPUs adds a finding for each GPU that the kernel lists but that does not answer, and
// for each one without a driver.
func (c otherGPUs) reportLostGPUs(s *check.FindingBuilder, want Expectation) {
	missed := want.Count < 0 || c.jobGPUCount(want) < want.Count
	for i, o := range c.gpus {
		var f *check.Finding
		switch o.Reason {
		case gpu.GPUIsLost:
			f = s.AddFailure(check.ClassNode, "has fallen off the bus: its configuration space reads "+gpu.OffBus, "a GPU that responds", lostHints[gpu.GPUIsLost])
		case gpu.DriverNotLoaded:
			f = s.AddFailure(check.ClassEnvironment, "is on the PCI bus, but not attached to its driver", "a GPU that is attached to its driver",
				"drain the node, and see dmesg for messages of amdgpu, xe or i915 about this GPU")
		default:
			continue
		}
		f.Device = &check.Device{Index: i, UUID: o.UUID, Bus: o.Bus}
		if !missed || o.Reason == gpu.DriverNotLoaded && !want.NeedsGPUs() {
			f.Verdict = check.Warn
		}
	}
}

// checkCount adds a finding if the job has fewer GPUs than granted. It is a Fail only if GPUs are
// required, because launchers count differently: a GPU may be a module, a half of it, a partition
// or a tile.
func (c otherGPUs) checkCount(s *check.FindingBuilder, want Expectation) {
	have := c.jobGPUCount(want)
	observed, expected := strconv.Itoa(have), ""
	if want.Count >= 0 {
		observed, expected = fmt.Sprintf("%d of %d", have, want.Count), fmt.Sprintf("%d (%s)", want.Count, want.countSourceText())
	}
	// Count the GPUs that the job cannot use, by reason.
	hidden, lost := 0, 0
	for _, o := range c.gpus {
		switch o.Reason {
		case "":
		case gpu.NoPermission:
			hidden++
		default: // reportLostGPUs reports these
			lost++
		}
	}
	short := have+lost < want.Count || have+lost == 0 && want.NeedsGPUs()
	if !short && c.selectorErr == nil {
		if len(s.Findings) == 1 { // none of the GPUs has a finding
			s.AddFinding(check.Pass, "", observed, expected, "")
		}
		return
	}
	// Report the shortage, with a hint that fits its cause.
	hint := "compare rocm-smi, amd-smi or xpu-smi on the node with the GPUs granted to the job"
	switch {
	case c.selectorErr != nil:
		observed, hint = c.selectorErr.Error(), "list only GPUs that this process may use in the variable, or unset it"
	case hidden > 0:
		observed += fmt.Sprintf("; %d not accessible to this process", hidden)
		hint = "give the step and the container access to /dev/kfd and /dev/dri/renderD* (on most systems, the groups render and video)"
	}
	f := s.AddWarning(check.ClassEnvironment, observed, expected, hint)
	if want.Mode == check.ModeRequire || want.Mode == check.ModeStrict {
		f.Verdict = check.Fail
	}
}

// attributes returns the attributes by which nodes of this kind are compared.
func (c otherGPUs) attributes(want Expectation) []check.Attribute {
	count := check.Attribute{ID: check.AttrGPUCount, Value: strconv.Itoa(c.jobGPUCount(want))}
	models := distinctValues(c.usableUnits, func(u gpu.Unit) string { return u.Model })
	if len(models) == 0 {
		return []check.Attribute{count}
	}
	return []check.Attribute{{ID: check.AttrGPUModel, Value: strings.Join(slices.Sorted(slices.Values(models)), ", ")}, count}
}
