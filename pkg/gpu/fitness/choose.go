package fitness

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

// choice is the selection of a node's GPUs that belong to the job.
type choice struct {
	gpus  []gpu.GPU // by index, including those that do not answer
	units int       // GPUs or MIG instances that answer and that the job can use
	seen  int       // same as units, but counted over all GPUs that this process may use
	lost  int       // number of GPUs in gpus that do not answer
	// hidden is the number of GPUs that this process may not use.
	hidden int

	missing []gpu.Selector // entries of CUDA_VISIBLE_DEVICES that match no GPU
	// unsure says that an index in CUDA_VISIBLE_DEVICES may mean another GPU than NVML's index does.
	// All GPUs are then checked.
	unsure bool
	// nameless says that the UUID of a GPU could not be read, so a missing GPU may be present after
	// all.
	nameless bool
}

// choose selects the job's GPUs. CUDA's indices count only the GPUs that this process may use, so a
// GPU without permission has no index. CUDA uses NVML's order, which is the order on the PCI bus,
// only if CUDA_DEVICE_ORDER says so. If all GPUs are of the same model, CUDA's default order
// ("fastest first") is the same.
func choose(f gpu.Facts, want Expect) choice {
	allowed := slices.DeleteFunc(slices.Clone(f.GPUs), func(g gpu.GPU) bool { return g.Handle == gpu.NoPermission })
	c := choice{gpus: allowed, hidden: len(f.GPUs) - len(allowed), nameless: slices.ContainsFunc(allowed, func(g gpu.GPU) bool { return g.UUID.Value == nil })}
	for _, g := range allowed {
		c.seen += units(g)
	}
	if c.units = c.seen; want.Visible != nil {
		c.pick(allowed, want)
	}
	c.lost = len(c.gpus) - len(c.usable())
	return c
}

// usable returns the job's GPUs that answer.
func (c choice) usable() []gpu.GPU {
	return slices.DeleteFunc(slices.Clone(c.gpus), func(g gpu.GPU) bool { return !g.Answers() })
}

// Concerns reports whether an event is about a GPU that the job uses, according to the facts read
// before the job started. Events of other jobs' GPUs, and of GPUs that were lost before, do not
// concern the job. An event without a GPU does.
func Concerns(f gpu.Facts, want Expect, e gpu.Event) bool {
	if want.Forgone() {
		return false
	}
	return e.GPU < 0 && e.UUID == "" || slices.ContainsFunc(choose(f, want).usable(), func(g gpu.GPU) bool {
		if uuid, named := g.UUID.Get(); named && e.UUID != "" {
			return uuid == e.UUID
		}
		return g.Index == e.GPU
	})
}

// pick restricts the choice to the GPUs that CUDA_VISIBLE_DEVICES lists.
func (c *choice) pick(allowed []gpu.GPU, want Expect) {
	chosen := make([]bool, len(allowed))
	byIndex := false
	c.units = 0
	for _, s := range want.Visible {
		at := find(allowed, s)
		if at < 0 {
			c.missing = append(c.missing, s)
			continue
		}
		byIndex = byIndex || s.UUID == ""
		if chosen[at] = true; allowed[at].Answers() {
			c.units++
		}
	}
	c.unsure = byIndex && !want.PCIOrder && slices.Contains(chosen, false) && len(models(allowed)) > 1
	c.gpus = nil
	for i, g := range allowed {
		// A GPU that is lost and has no known UUID may be the missing one.
		if chosen[i] || c.unsure || !g.Answers() && g.UUID.Value == nil && len(c.missing) > 0 {
			c.gpus = append(c.gpus, g)
		}
	}
}

// instances returns the MIG instances of g that the job uses: those listed by UUID, or all if there
// is no list. If an entry names only the GPU, CUDA uses one of its instances, but it is not
// documented which one.
func (s scene) instances(g gpu.GPU) []gpu.MIG {
	return slices.DeleteFunc(slices.Clone(g.MIGs), func(m gpu.MIG) bool {
		return s.want.Visible != nil && !slices.ContainsFunc(s.want.Visible, func(v gpu.Selector) bool { return v.UUID != "" && v.Begins(m.UUID) })
	})
}

// find returns the index in gpus of the GPU that s selects, or -1 if there is none.
func find(gpus []gpu.GPU, s gpu.Selector) int {
	if s.UUID == "" {
		if s.Index < 0 || s.Index >= len(gpus) {
			return -1
		}
		return s.Index
	}
	return slices.IndexFunc(gpus, func(g gpu.GPU) bool {
		uuid := g.UUID.OrZero()
		// Drivers before 470 name an instance MIG-GPU-<uuid>/<instance>/<instance>.
		old, _, isOld := strings.Cut(s.UUID, "/")
		return s.Begins(uuid) || isOld && uuid != "" && strings.EqualFold("MIG-"+uuid, old) ||
			slices.ContainsFunc(g.MIGs, func(m gpu.MIG) bool { return s.Begins(m.UUID) })
	})
}

// units returns how many devices a job can use of a GPU: its MIG instances if MIG is on, otherwise
// 1, and 0 if the GPU does not answer.
func units(g gpu.GPU) int {
	switch {
	case !g.Answers():
		return 0
	case g.MIG.OrZero().Current:
		return len(g.MIGs)
	default:
		return 1
	}
}

// models returns the sorted model names of the GPUs, without duplicates.
func models(gpus []gpu.GPU) []string {
	return distinct(gpus, func(g gpu.GPU) string { return g.Name.OrZero() })
}

// distinct returns the sorted values of the GPUs, without duplicates and empty values.
func distinct[T any](gpus []T, value func(T) string) []string {
	values := make(map[string]bool)
	for _, g := range gpus {
		values[value(g)] = true
	}
	delete(values, "")
	return slices.Sorted(maps.Keys(values))
}

// Traits returns the attributes by which the nodes of a job are compared. Nodes that are equal for
// the job have equal attributes, in whatever order their GPUs are listed. Attributes that could not
// be read are omitted. GPUs that do not belong to the job are ignored.
func Traits(f gpu.Facts, want Expect) []check.Trait {
	switch {
	case want.Forgone():
		return nil
	case len(f.Others) > 0:
		return otherGPUsOf(f, want.Environ).traits(want)
	case f.Init == gpu.LibraryNotFound && want.Count > 0: // no sign of a GPU on this node, but other nodes may have some
		return []check.Trait{{ID: check.GPUCount, Value: "0"}}
	case f.Init != gpu.Success:
		return nil
	}
	// Compare the GPUs that answer. An attribute has one value for each different value of a GPU.
	well := choose(f, want).usable()
	of := func(value func(gpu.GPU) string) string { return strings.Join(distinct(well, value), ", ") }
	return slices.DeleteFunc([]check.Trait{
		{ID: "x.gpu_model", Value: strings.Join(models(well), ", ")},
		{ID: "x.gpu_count", Value: strconv.Itoa(countFor(well, want))},
		{ID: "x.driver", Value: f.Driver.OrZero()},
		{ID: "x.cuda", Value: f.CUDA.OrZero()},
		{ID: "x.vbios", Value: of(func(g gpu.GPU) string { return g.VBIOS.OrZero() })},
		{ID: "x.gsp", Value: of(func(g gpu.GPU) string { return g.GSP.OrZero() })},
		{ID: "x.memory", Value: of(memoryTrait)},
		{ID: "x.fabric", Value: of(fabricTrait)},
		{ID: "x.nvlink", Value: of(linksTrait)},
		{ID: "x.pcie", Value: of(pcieTrait)},
		{ID: "x.power_limit", Value: of(powerTrait)},
		{ID: "x.app_clocks", Value: of(clocksTrait)},
		{ID: "x.persistence", Value: of(func(g gpu.GPU) string { return onOff(g.Persist.Get()) })},
		{ID: "x.ecc", Value: of(func(g gpu.GPU) string { return switchTrait(g.ECC) })},
		{ID: "x.mig", Value: of(func(g gpu.GPU) string { return switchTrait(g.MIG) })},
		{ID: "x.gpu_idle", Value: of(idleTrait)},
	}, func(t check.Trait) bool { return t.Value == "" })
}

// countFor returns how many of the GPUs the job uses. Each node may have more GPUs than the job
// requests, in different numbers.
func countFor(well []gpu.GPU, want Expect) int {
	if want.Count > 0 {
		return min(len(well), want.Count)
	}
	return len(well)
}

// memoryTrait returns the size of a GPU's memory, rounded to GiB because the driver reserves some
// MiB.
func memoryTrait(g gpu.GPU) string {
	memory, ok := g.Memory.Get()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d GiB", (memory.Total+1<<29)>>30)
}

// fabricTrait returns the NVLink domain and clique of a GPU, or "" if it is in none.
func fabricTrait(g gpu.GPU) string {
	f := g.Fabric.OrZero()
	if f.State != gpu.FabricComplete || f.Single() {
		return ""
	}
	return fmt.Sprintf("%s/%d", prose.Cut(f.Cluster, shown), f.Clique)
}

// linksTrait returns the number of active NVLinks of a GPU. With MIG, NVML reports all links as
// down, so the result is "".
func linksTrait(g gpu.GPU) string {
	active, _, known := activeLinks(g)
	if len(g.Links) == 0 || !known || g.MIG.OrZero().Current {
		return ""
	}
	return strconv.Itoa(active)
}

// pcieTrait returns the maximum width and generation of a GPU's PCIe link. If the GPU is in its
// fastest performance state, the current width is included when it is smaller. An idle GPU may have
// a narrower and slower link.
func pcieTrait(g gpu.GPU) string {
	link := g.PCIe.OrZero()
	if !trained(link) {
		return ""
	}
	text := fmt.Sprintf("x%d gen%d", link.MaxWidth, link.MaxGen)
	if state, told := g.State.Get(); told && state == 0 && link.Width < link.MaxWidth {
		text = fmt.Sprintf("x%d of ", link.Width) + text
	}
	return text
}

// powerTrait returns the power limit of a GPU in W.
func powerTrait(g gpu.GPU) string {
	limit := g.Power.OrZero().Limit
	if limit <= 0 {
		return ""
	}
	return fmt.Sprintf("%d W", (limit+500)/1000)
}

// clocksTrait returns the application clocks of a GPU: graphics/memory.
func clocksTrait(g gpu.GPU) string {
	clocks := g.Clocks.OrZero()
	if clocks.Graphics <= 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d MHz", clocks.Graphics, clocks.Memory)
}

// onOff returns "on" or "off", or "" if the mode is not known.
func onOff(on, known bool) string {
	switch {
	case !known:
		return ""
	case on:
		return "on"
	}
	return "off"
}

// switchTrait returns the current state of a mode: "on", "off", or "" if unknown.
func switchTrait(r gpu.Reading[gpu.Switch]) string { return onOff(r.OrZero().Current, r.Value != nil) }

// Limits above which an idle GPU is unusual. They are our own choice. On the idle machines in
// testdata/facts, the warmest GPU, an air-cooled B200, has 53 °C (an A100 throttles at 89 °C).
// Among GPUs with a limit of 200 W and more, the highest draw is 21 % of the limit, on the same
// B200. Smaller cards draw up to half of their limit when idle (a T4: 34 of 70 W), so power is
// checked only for GPUs with a default limit of at least idleFrom, in mW.
const (
	idleHot  = 70 // °C
	idleDraw = 40 // % of the default limit
	idleFrom = 200_000
)

// idleTrait returns how an idle GPU is unusual; "" for most GPUs, and for busy ones.
func idleTrait(g gpu.GPU) string {
	load, known := g.Load.Get()
	procs, told := g.Procs.Get()
	if !known || !told || load > 0 || len(procs)+len(g.Screen.OrZero()) > 0 {
		return ""
	}
	power := g.Power.OrZero()
	switch thirsty := power.Default >= idleFrom && power.Draw > power.Default/100*idleDraw; {
	case g.Temperature.OrZero() >= idleHot && thirsty:
		return "hot, and draws much power"
	case g.Temperature.OrZero() >= idleHot:
		return "hot"
	case thirsty:
		return "draws much power"
	}
	return ""
}
