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

// otherUnits returns the GPUs of AMD or Intel, or their tiles, that the job may use, and their
// number. Tiles are counted if more were granted than there are GPUs. The error is that of the
// environment variable that selects GPUs.
func otherUnits(f gpu.Facts, want Expectation) (units []gpu.Unit, count int, err error) {
	// The position of a GPU in the machine's topology does not matter here.
	lookup := func(name string) (string, bool) { return envlist.Lookup(want.Environ, name) }
	units, err = gpu.BuildTopology("", f).VisibleUnits(lookup)
	count = len(distinctValues(units, func(u gpu.Unit) string { return strconv.Itoa(u.Index) }))
	if want.Count > count {
		count = len(units)
	}
	return units, count, err
}

// evaluateOtherGPUs returns the findings for a node without any sign of NVIDIA. The health of GPUs
// can be checked only by NVML, so GPUs of other vendors are only counted. Too few are a Fail only if
// GPUs are required, because launchers count differently: a GPU may be a module, a half of it, a
// partition or a tile.
func evaluateOtherGPUs(f gpu.Facts, want Expectation) []check.Finding {
	s := check.FindingBuilder{Template: check.Finding{ID: "gpu.nvml", Source: "/sys/class/kfd, /sys/class/drm"}}
	units, have, err := otherUnits(f, want)
	expected := "at least 1 GPU"
	if want.Count > 0 {
		expected = fmt.Sprintf("%d (%s)", want.Count, want.countSourceText())
	}
	if len(f.OtherGPUs) == 0 {
		hint := "GPUs of other vendors are not checked; use --gpu-check=off if the job needs none of these"
		if want.isGivenByUser() {
			hint = "leave out " + want.CountSource + " if the job needs no GPU; " + hint
		}
		s.AddWarning(check.ClassEnvironment, "no sign of an NVIDIA, AMD or Intel GPU on this node",
			expected, hint)
	} else {
		models := distinctValues(f.OtherGPUs, func(o gpu.OtherGPU) string { return o.Model })
		s.AddSkip(fmt.Sprintf("no NVIDIA GPU: %d others (%s) are counted, but their health is not checked",
			len(f.OtherGPUs), strings.Join(models, ", ")))
		s.Template.ID = "gpu.count"
		switch {
		case want.HasNoGPUs():
			s.AddSkip(fmt.Sprintf("the job uses none of the node's %d GPUs (%s)", len(f.OtherGPUs),
				want.countSourceText()))
		case err != nil:
			s.AddWarning(check.ClassEnvironment, err.Error(), expected,
				"list only GPUs that this process may use in the variable, or unset it")
		case have < want.Count || len(units) == 0 && want.NeedsGPUs():
			hidden := slices.DeleteFunc(slices.Clone(f.OtherGPUs), func(o gpu.OtherGPU) bool { return o.Reason == "" })
			s.AddWarning(check.ClassEnvironment, fmt.Sprintf("%d of %d, and %d not accessible "+
				"to this process", have, max(want.Count, 1), len(hidden)), expected,
				"compare rocm-smi or xpu-smi with the GPUs granted to the job, and give the step "+
					"and the container access to "+
					"/dev/kfd and /dev/dri/renderD* (on most systems, the groups render and video)")
		default:
			s.AddFinding(check.Pass, "", strconv.Itoa(have), expected, "")
		}
	}
	required := want.Mode == check.ModeRequire || want.Mode == check.ModeStrict ||
		len(f.OtherGPUs) == 0 && want.isGivenByUser()
	for i := range s.Findings {
		if required && s.Findings[i].Verdict == check.Warn {
			s.Findings[i].Verdict = check.Fail
		}
	}
	return s.Findings
}

func otherAttributes(f gpu.Facts, want Expectation) []check.Attribute {
	units, count, _ := otherUnits(f, want)
	attributes := []check.Attribute{{ID: check.AttrGPUCount, Value: strconv.Itoa(count)}}
	if models := distinctValues(units, func(u gpu.Unit) string { return u.Model }); len(models) > 0 {
		attributes = append(attributes, check.Attribute{ID: check.AttrGPUModel, Value: strings.Join(models, ", ")})
	}
	return attributes
}
