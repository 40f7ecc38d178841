package fitness

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/process"
)

const sourceKernel = "/sys/class/kfd, /sys/class/drm, /sys/bus/pci"

// otherGPUs are the GPUs of a node without any sign of NVIDIA.
type otherGPUs struct {
	all    []gpu.Other
	usable []gpu.Unit // GPUs, or tiles of GPUs, that the job may use
	whole  int        // number of GPUs that usable belongs to
	wrong  error      // error in the environment variable that selects GPUs
}

// otherGPUsOf returns the GPUs in the facts. The environment may select some of them for the job.
func otherGPUsOf(f gpu.Facts, environ []string) (c otherGPUs) {
	c.all = f.Others
	// The position of a GPU in the machine's topology does not matter here.
	c.usable, c.wrong = gpu.Topologize("", f).Visible(func(name string) (string, bool) { return process.LookupEnv(environ, name) })
	c.whole = len(distinct(c.usable, func(u gpu.Unit) string { return fmt.Sprint(u.Index) }))
	return c
}

// withoutNVIDIA returns the findings for a node without any sign of NVIDIA. The health of GPUs can
// be checked only by NVML, so GPUs of other vendors are only counted.
func withoutNVIDIA(f gpu.Facts, want Expect) []check.Finding {
	s := check.Sheet{Each: check.Finding{ID: "gpu.nvml", Source: sourceKernel}}
	if len(f.Others) == 0 {
		s.Warn(check.Environment, "nothing on this node shows a GPU of NVIDIA, AMD or Intel", fmt.Sprintf("%d GPUs (%s)", want.Count, want.from()),
			"GPUs of other vendors are not checked; give --gpu-check=off if the job needs none that bringupd knows")
		if want.Mode == check.ModeRequire || want.Mode == check.ModeStrict {
			s.Found[0].Verdict, s.Found[0].Expected = check.Fail, "GPUs"
		}
		return s.Found
	}
	c := otherGPUsOf(f, want.Environ)
	s.Skip(fmt.Sprintf("no GPU of NVIDIA: %s are counted, and their health is not checked", c.describe()))
	s.Each.ID = "gpu.count"
	if want.Forgone() {
		s.Skip(fmt.Sprintf("the job has none of the node's %d (%s)", len(c.all), want.from()))
		return s.Found
	}
	c.judgeLost(&s, want)
	c.judgeCount(&s, want)
	return s.Found
}

// describe returns the number of GPUs of each model: 8 AMD Instinct MI300X.
func (c otherGPUs) describe() string {
	var parts []string
	for _, model := range distinct(c.all, func(o gpu.Other) string { return o.Model }) {
		n := 0
		for _, o := range c.all {
			if o.Model == model {
				n++
			}
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, model))
	}
	return strings.Join(parts, ", ")
}

// has returns the number of GPUs of the job. Tiles are counted if more were granted than there are
// GPUs.
func (c otherGPUs) has(want Expect) int {
	if want.Count > c.whole {
		return len(c.usable)
	}
	return c.whole
}

// judgeLost adds a finding for each GPU that the kernel lists but that does not answer, and for
// each one without a driver.
func (c otherGPUs) judgeLost(s *check.Sheet, want Expect) {
	missed := want.Count < 0 || c.has(want) < want.Count
	for i, o := range c.all {
		var f *check.Finding
		switch o.Why {
		case gpu.GPUIsLost:
			f = s.Fail(check.Node, "has fallen off the bus: its configuration space reads "+gpu.OffBus, "a GPU that answers", lostHints[gpu.GPUIsLost])
		case gpu.DriverNotLoaded:
			f = s.Fail(check.Environment, "is on the PCI bus, and its driver does not have it", "a GPU that its driver has",
				"drain the node, and look into dmesg for what amdgpu, xe or i915 says of this GPU")
		default:
			continue
		}
		f.Device = &check.Device{Index: i, UUID: o.UUID, Bus: o.Bus}
		if !missed || o.Why == gpu.DriverNotLoaded && !want.Needed() {
			f.Verdict = check.Warn
		}
	}
}

// judgeCount adds a finding if the job has fewer GPUs than granted. It is a Fail only if GPUs are
// required, because launchers count differently: a GPU may be a module, a half of it, a partition
// or a tile.
func (c otherGPUs) judgeCount(s *check.Sheet, want Expect) {
	have := c.has(want)
	observed, expected := strconv.Itoa(have), ""
	if want.Count >= 0 {
		observed, expected = fmt.Sprintf("%d of %d", have, want.Count), fmt.Sprintf("%d (%s)", want.Count, want.from())
	}
	// Count the GPUs that the job cannot use, by reason.
	hidden, lost := 0, 0
	for _, o := range c.all {
		switch o.Why {
		case "":
		case gpu.NoPermission:
			hidden++
		default: // judgeLost reports these
			lost++
		}
	}
	short := have+lost < want.Count || have+lost == 0 && want.Needed()
	if !short && c.wrong == nil {
		if len(s.Found) == 1 { // none of the GPUs has a finding
			s.Say(check.Pass, "", observed, expected, "")
		}
		return
	}
	// Report the shortage, with a hint that fits its cause.
	hint := "compare rocm-smi, amd-smi or xpu-smi on the node with what the job has been granted"
	switch {
	case c.wrong != nil:
		observed, hint = c.wrong.Error(), "let the variable list GPUs that this process may use, or unset it"
	case hidden > 0:
		observed += fmt.Sprintf(", and %d that this process may not use", hidden)
		hint = "let the step and the container use /dev/kfd and /dev/dri/renderD*, which belong to the groups render and video on most systems"
	}
	f := s.Warn(check.Environment, observed, expected, hint)
	if want.Mode == check.ModeRequire || want.Mode == check.ModeStrict {
		f.Verdict = check.Fail
	}
}

// traits returns the attributes by which nodes of this kind are compared.
func (c otherGPUs) traits(want Expect) []check.Trait {
	count := check.Trait{ID: check.GPUCount, Value: strconv.Itoa(c.has(want))}
	models := distinct(c.usable, func(u gpu.Unit) string { return u.Model })
	if len(models) == 0 {
		return []check.Trait{count}
	}
	return []check.Trait{{ID: check.GPUModel, Value: strings.Join(slices.Sorted(slices.Values(models)), ", ")}, count}
}
