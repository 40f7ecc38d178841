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

// choice is the part of a node's GPUs that the job uses.
type choice struct {
	gpus  []gpu.GPU // in the order of their indices, also those that do not answer
	units int       // GPUs, or instances of them, that answer and that the job can use
	seen  int       // the same, of all GPUs that this process may use
	lost  int       // of gpus: those that do not answer
	// hidden is how many GPUs this process may not use.
	hidden int

	missing []gpu.Selector // entries of CUDA_VISIBLE_DEVICES that name no GPU
	// unsure is set where the indices may mean other GPUs than NVML's of that index: then all are looked at.
	unsure bool
	// nameless is set where a GPU's UUID could not be read, so that a missing one may be there after all.
	nameless bool
}

// choose picks the GPUs of the job. CUDA's indices count what this process may use, so a GPU that it has no permission
// for has none. They are in NVML's order, which is the PCI bus's, only where CUDA is told so; on GPUs of one model
// CUDA's own order ("fastest first") comes to the same.
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

// usable returns those of the job's GPUs that answer.
func (c choice) usable() []gpu.GPU {
	return slices.DeleteFunc(slices.Clone(c.gpus), func(g gpu.GPU) bool { return !g.Answers() })
}

// Concerns tells whether an event is of a GPU that the job uses, by what was seen before the job began: not of another
// job's GPU, nor of one that was lost before. An event of an unknown GPU concerns the job.
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
		// A GPU that is lost and has no name may be the one that is missing.
		if chosen[i] || c.unsure || !g.Answers() && g.UUID.Value == nil && len(c.missing) > 0 {
			c.gpus = append(c.gpus, g)
		}
	}
}

// instances are those of a GPU with MIG that the job has: those that are listed by name, or all where none is listed. Of
// an entry that names the GPU alone CUDA says only that it takes one.
func (s scene) instances(g gpu.GPU) []gpu.MIG {
	return slices.DeleteFunc(slices.Clone(g.MIGs), func(m gpu.MIG) bool {
		return s.want.Visible != nil && !slices.ContainsFunc(s.want.Visible, func(v gpu.Selector) bool { return v.UUID != "" && v.Begins(m.UUID) })
	})
}

// find returns the place in gpus of the GPU that s names; -1 if there is none.
func find(gpus []gpu.GPU, s gpu.Selector) int {
	if s.UUID == "" {
		if s.Index < 0 || s.Index >= len(gpus) {
			return -1
		}
		return s.Index
	}
	return slices.IndexFunc(gpus, func(g gpu.GPU) bool {
		uuid := g.UUID.OrZero()
		// MIG-GPU-<uuid>/<instance>/<instance> is how drivers before 470 name an instance.
		old, _, isOld := strings.Cut(s.UUID, "/")
		return s.Begins(uuid) || isOld && uuid != "" && strings.EqualFold("MIG-"+uuid, old) ||
			slices.ContainsFunc(g.MIGs, func(m gpu.MIG) bool { return s.Begins(m.UUID) })
	})
}

// units is what a job can use of a GPU: itself, or its instances.
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

// models returns the names of the GPUs, each once and in order.
func models(gpus []gpu.GPU) []string {
	return distinct(gpus, func(g gpu.GPU) string { return g.Name.OrZero() })
}

// distinct returns the values that GPUs have, each once and in order.
func distinct[T any](gpus []T, value func(T) string) []string {
	values := make(map[string]bool)
	for _, g := range gpus {
		values[value(g)] = true
	}
	delete(values, "")
	return slices.Sorted(maps.Keys(values))
}

// Traits are what the nodes of a job are compared by: nodes that are alike for the job have the same traits, in
// whatever order their GPUs come. Left out are what could not be read, and GPUs that are not the job's.
func Traits(f gpu.Facts, want Expect) []check.Trait {
	switch {
	case want.Forgone():
		return nil
	case len(f.Others) > 0:
		return otherGPUsOf(f, want.Environ).traits(want)
	case f.Init == gpu.LibraryNotFound && want.Count > 0: // nothing shows a GPU here, and others may have some
		return []check.Trait{{ID: check.GPUCount, Value: "0"}}
	case f.Init != gpu.Success:
		return nil
	}
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

// countFor is how many of the GPUs the job uses. A node may have more than the job asks for, and each node another
// number of them.
func countFor(well []gpu.GPU, want Expect) int {
	if want.Count > 0 {
		return min(len(well), want.Count)
	}
	return len(well)
}

// memoryTrait is the size of a GPU's memory: some MiB more or less are the driver's.
func memoryTrait(g gpu.GPU) string {
	memory, ok := g.Memory.Get()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d GiB", (memory.Total+1<<29)>>30)
}

// fabricTrait names the NVLink domain and clique of a GPU that is in one.
func fabricTrait(g gpu.GPU) string {
	f := g.Fabric.OrZero()
	if f.State != gpu.FabricComplete || f.Single() {
		return ""
	}
	return fmt.Sprintf("%s/%d", prose.Cut(f.Cluster, shown), f.Clique)
}

// linksTrait is how many NVLinks of a GPU are active. Under MIG all are reported as down.
func linksTrait(g gpu.GPU) string {
	active, _, known := activeLinks(g)
	if len(g.Links) == 0 || !known || g.MIG.OrZero().Current {
		return ""
	}
	return strconv.Itoa(active)
}

// pcieTrait is the most that a GPU's link could be, and how many lanes of it there are where the GPU is in its fastest
// state: at rest it may have fewer, and a slower one.
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

func powerTrait(g gpu.GPU) string {
	limit := g.Power.OrZero().Limit
	if limit <= 0 {
		return ""
	}
	return fmt.Sprintf("%d W", (limit+500)/1000)
}

func clocksTrait(g gpu.GPU) string {
	clocks := g.Clocks.OrZero()
	if clocks.Graphics <= 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d MHz", clocks.Graphics, clocks.Memory)
}

func onOff(on, known bool) string {
	switch {
	case !known:
		return ""
	case on:
		return "on"
	}
	return "off"
}

func switchTrait(r gpu.Reading[gpu.Switch]) string { return onOff(r.OrZero().Current, r.Value != nil) }

// When an idle GPU is out of the ordinary. The limits are ours: of the idle machines in testdata/facts the warmest GPU,
// an air-cooled B200, has 53 °C, and an A100 slows itself down at 89; the thirstiest of 200 W and more, again the B200,
// draws 21 % of its limit. Smaller cards rest at up to half of theirs (a T4 at 34 of 70 W).
const (
	idleHot  = 70 // °C
	idleDraw = 40 // % of the default limit
	idleFrom = 200_000
)

// idleTrait is empty for most GPUs.
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
