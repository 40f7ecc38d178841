package fitness

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

type gpuSelection struct {
	gpus           []gpu.GPU // by index, including those that do not answer
	usableUnits    int       // GPUs or MIG instances that answer and that the job can use
	permittedUnits int       // same as units, but counted over all GPUs that this process may use
	lostCount      int       // number of GPUs in gpus that do not answer
	// hiddenCount is the number of GPUs that this process may not use.
	hiddenCount int

	missingSelectors []gpu.Selector // entries of CUDA_VISIBLE_DEVICES that match no GPU
	// hasAmbiguousIndex says that an index in CUDA_VISIBLE_DEVICES may mean another GPU than NVML's
	// index does. All GPUs are then checked.
	hasAmbiguousIndex bool
	// hasUnreadableUUID says that the UUID of a GPU could not be read, so a missing GPU may be present
	// after all.
	hasUnreadableUUID bool
}

// selectGPUs selects the job's GPUs. CUDA's indices count only the GPUs that this process may use,
// so a GPU without permission has no index. CUDA uses NVML's order, which is the order on the PCI
// bus, only if CUDA_DEVICE_ORDER says so. If all GPUs are of the same model, CUDA's default order
// ("fastest first") is the same.
func selectGPUs(f gpu.Facts, want Expectation) gpuSelection {
	allowed := slices.DeleteFunc(slices.Clone(f.GPUs), func(g gpu.GPU) bool { return g.Handle == gpu.NoPermission })
	c := gpuSelection{gpus: allowed, hiddenCount: len(f.GPUs) - len(allowed),
		hasUnreadableUUID: slices.ContainsFunc(allowed, func(g gpu.GPU) bool { return g.UUID.Value == nil })}
	for _, g := range allowed {
		c.permittedUnits += countUnits(g)
	}
	if c.usableUnits = c.permittedUnits; want.Visible != nil {
		c.applyVisibleList(allowed, want)
	}
	c.lostCount = len(c.gpus) - len(c.answeringGPUs())
	return c
}

func (c gpuSelection) answeringGPUs() []gpu.GPU {
	return slices.DeleteFunc(slices.Clone(c.gpus), func(g gpu.GPU) bool { return !g.IsUsable() })
}

// ConcernsJob reports whether an event is about a GPU that the job uses, according to the facts
// read before the job started. Events of other jobs' GPUs, and of GPUs that were lost before, do
// not concern the job. An event without a GPU does.
func ConcernsJob(f gpu.Facts, want Expectation, e gpu.Event) bool {
	if want.HasNoGPUs() {
		return false
	}
	return e.GPU < 0 && e.UUID == "" || slices.ContainsFunc(selectGPUs(f, want).answeringGPUs(), func(g gpu.GPU) bool {
		if uuid, named := g.UUID.Get(); named && e.UUID != "" {
			return uuid == e.UUID
		}
		return g.Index == e.GPU
	})
}

// applyVisibleList restricts the choice to the GPUs that CUDA_VISIBLE_DEVICES lists.
func (c *gpuSelection) applyVisibleList(allowed []gpu.GPU, want Expectation) {
	chosen := make([]bool, len(allowed))
	byIndex := false
	c.usableUnits = 0
	for _, s := range want.Visible {
		at := findSelected(allowed, s)
		if at < 0 {
			c.missingSelectors = append(c.missingSelectors, s)
			continue
		}
		byIndex = byIndex || s.UUID == ""
		if chosen[at] = true; allowed[at].IsUsable() {
			c.usableUnits++
		}
	}
	c.hasAmbiguousIndex = byIndex && !want.PCIBusOrder && slices.Contains(chosen, false) && len(modelNames(allowed)) > 1
	c.gpus = nil
	for i, g := range allowed {
		// A GPU that is lost and has no known UUID may be the missing one.
		if chosen[i] || c.hasAmbiguousIndex || !g.IsUsable() && g.UUID.Value == nil && len(c.missingSelectors) > 0 {
			c.gpus = append(c.gpus, g)
		}
	}
}

func findSelected(gpus []gpu.GPU, s gpu.Selector) int {
	if s.UUID == "" {
		if s.Index < 0 || s.Index >= len(gpus) {
			return -1
		}
		return s.Index
	}
	return slices.IndexFunc(gpus, func(g gpu.GPU) bool {
		return s.MatchesPrefix(g.UUID.OrZero()) ||
			slices.ContainsFunc(g.MIGInstances, func(m gpu.MIGInstance) bool { return s.MatchesPrefix(m.UUID) })
	})
}

// countUnits returns how many devices a job can use of a GPU: its MIG instances if MIG is on,
// otherwise 1, and 0 if the GPU does not answer.
func countUnits(g gpu.GPU) int {
	switch {
	case !g.IsUsable():
		return 0
	case g.MIG.OrZero().Current:
		return len(g.MIGInstances)
	default:
		return 1
	}
}

func modelNames(gpus []gpu.GPU) []string {
	return distinctValues(gpus, func(g gpu.GPU) string { return g.Name.OrZero() })
}

// distinctValues returns the sorted values of the GPUs, without duplicates and empty values.
func distinctValues[T any](gpus []T, value func(T) string) []string {
	values := make(map[string]bool)
	for _, g := range gpus {
		values[value(g)] = true
	}
	delete(values, "")
	return slices.Sorted(maps.Keys(values))
}

// Attributes returns the attributes by which the nodes of a job are compared. Nodes that are equal
// for the job have equal attributes, in whatever order their GPUs are listed. Attributes that could
// not be read are omitted. GPUs that do not belong to the job are ignored.
func Attributes(f gpu.Facts, want Expectation) []check.Attribute {
	switch {
	case want.HasNoGPUs():
		return nil
	case len(f.OtherGPUs) > 0:
		return otherAttributes(f, want)
	case f.Init == gpu.LibraryNotFound && want.Count > 0: // other nodes may have GPUs
		return []check.Attribute{{ID: check.AttrGPUCount, Value: "0"}}
	case f.Init != gpu.Success:
		return nil
	}
	// Compare the GPUs that answer. An attribute has one value for each different value of a GPU.
	well := selectGPUs(f, want).answeringGPUs()
	used := len(well) // each node may have more GPUs than the job requests, in different numbers
	if want.Count > 0 {
		used = min(used, want.Count)
	}
	of := func(value func(gpu.GPU) string) string { return strings.Join(distinctValues(well, value), ", ") }
	return slices.DeleteFunc([]check.Attribute{
		{ID: "x.gpu_model", Value: strings.Join(modelNames(well), ", ")},
		{ID: "x.gpu_count", Value: strconv.Itoa(used)},
		{ID: "x.driver", Value: f.Driver.OrZero()},
		{ID: "x.cuda", Value: f.CUDA.OrZero()},
		{ID: "x.vbios", Value: of(func(g gpu.GPU) string { return g.VBIOS.OrZero() })},
		{ID: "x.gsp", Value: of(func(g gpu.GPU) string { return g.GSP.OrZero() })},
		{ID: "x.memory", Value: of(memoryAttribute)},
		{ID: "x.nvlink", Value: of(linksAttribute)},
		{ID: "x.mig", Value: of(func(g gpu.GPU) string {
			mode, known := g.MIG.Get()
			return formatOnOff(mode.Current, known)
		})},
	}, func(t check.Attribute) bool { return t.Value == "" })
}

// memoryAttribute returns the size of a GPU's memory, rounded to GiB because the driver reserves
// some MiB.
func memoryAttribute(g gpu.GPU) string {
	memory, ok := g.Memory.Get()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d GiB", (memory.Total+1<<29)>>30)
}

// linksAttribute returns the number of active NVLinks of a GPU. With MIG, NVML reports all links as
// down, so the result is "".
func linksAttribute(g gpu.GPU) string {
	active, _, known := countActiveLinks(g)
	if len(g.Links) == 0 || !known || g.MIG.OrZero().Current {
		return ""
	}
	return strconv.Itoa(active)
}

func formatOnOff(on, known bool) string {
	switch {
	case !known:
		return ""
	case on:
		return "on"
	}
	return "off"
}
