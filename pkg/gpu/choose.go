package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
)

// choice is the part of a node's GPUs that the job uses.
type choice struct {
	gpus  []GPU // in the order of their indices, also those that do not answer
	units int   // GPUs, or instances of them, that answer and that the job can use
	seen  int   // the same, of all GPUs that this process may use
	lost  int   // of gpus: those that do not answer
	// hidden is how many GPUs this process may not use.
	hidden int

	missing []Selector // entries of CUDA_VISIBLE_DEVICES that name no GPU
	// unsure is set where the indices may mean other GPUs than NVML's of that index: then all are looked at.
	unsure bool
	// nameless is set where a GPU's UUID could not be read, so that a missing one may be there after all.
	nameless bool
}

// choose picks the GPUs of the job. CUDA's indices count what this process may use, so a GPU that it has no permission
// for has none. They are in NVML's order, which is the PCI bus's, only where CUDA is told so; on GPUs of one model
// CUDA's own order ("fastest first") comes to the same.
func choose(f Facts, want Expect) choice {
	allowed := slices.DeleteFunc(slices.Clone(f.GPUs), func(g GPU) bool { return g.Handle == NoPermission })
	c := choice{gpus: allowed, hidden: len(f.GPUs) - len(allowed), nameless: slices.ContainsFunc(allowed, func(g GPU) bool { return g.UUID.Value == nil })}
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
func (c choice) usable() []GPU {
	return slices.DeleteFunc(slices.Clone(c.gpus), func(g GPU) bool { return !g.answers() })
}

// Concerns tells whether an event is of a GPU that the job uses, by what was seen before the job began: not of another
// job's GPU, nor of one that was lost before. An event of an unknown GPU concerns the job.
func Concerns(f Facts, want Expect, e Event) bool {
	if want.forgone() {
		return false
	}
	return e.GPU < 0 && e.UUID == "" || slices.ContainsFunc(choose(f, want).usable(), func(g GPU) bool {
		if uuid, named := g.UUID.Get(); named && e.UUID != "" {
			return uuid == e.UUID
		}
		return g.Index == e.GPU
	})
}

func (c *choice) pick(allowed []GPU, want Expect) {
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
		if chosen[at] = true; allowed[at].answers() {
			c.units++
		}
	}
	c.unsure = byIndex && !want.PCIOrder && slices.Contains(chosen, false) && len(models(allowed)) > 1
	c.gpus = nil
	for i, g := range allowed {
		// A GPU that is lost and has no name may be the one that is missing.
		if chosen[i] || c.unsure || !g.answers() && g.UUID.Value == nil && len(c.missing) > 0 {
			c.gpus = append(c.gpus, g)
		}
	}
}

// find returns the place in gpus of the GPU that s names; -1 if there is none.
func find(gpus []GPU, s Selector) int {
	if s.UUID == "" {
		if s.Index < 0 || s.Index >= len(gpus) {
			return -1
		}
		return s.Index
	}
	return slices.IndexFunc(gpus, func(g GPU) bool {
		uuid := g.UUID.value()
		// MIG-GPU-<uuid>/<instance>/<instance> is how drivers before 470 name an instance.
		old, _, isOld := strings.Cut(s.UUID, "/")
		return begins(uuid, s.UUID) || isOld && uuid != "" && strings.EqualFold("MIG-"+uuid, old) ||
			slices.ContainsFunc(g.MIGs, func(m MIG) bool { return begins(m.UUID, s.UUID) })
	})
}

func begins(uuid, prefix string) bool {
	return len(uuid) >= len(prefix) && strings.EqualFold(uuid[:len(prefix)], prefix)
}

// units is what a job can use of a GPU: itself, or its instances.
func units(g GPU) int {
	switch {
	case !g.answers():
		return 0
	case g.MIG.value().Current:
		return len(g.MIGs)
	default:
		return 1
	}
}

// models returns the names of the GPUs, each once and in order.
func models(gpus []GPU) []string {
	return distinct(gpus, func(g GPU) string { return g.Name.value() })
}

// distinct returns the values that GPUs have, each once and in order.
func distinct(gpus []GPU, value func(GPU) string) []string {
	values := make(map[string]bool)
	for _, g := range gpus {
		values[value(g)] = true
	}
	delete(values, "")
	return slices.Sorted(maps.Keys(values))
}

// answers tells whether the GPU can be worked with.
func (g GPU) answers() bool {
	_, lost := g.lost()
	return !lost
}

// lost tells whether the GPU can't be worked with, and which answer says so. A GPU that is lost while it is asked says
// so in one of the later answers.
func (g GPU) lost() (Return, bool) {
	if g.Handle != Success {
		return g.Handle, true
	}
	for _, why := range []Return{
		g.UUID.Why, g.Bus.Why, g.Name.Why, g.Serial.Why, g.VBIOS.Why, g.GSP.Why, g.Memory.Why, g.Numa.Why, g.Minor.Why, g.Persist.Why,
		g.Compute.Why, g.Recovery.Why, g.Remapped.Why, g.Retired.Why, g.ECC.Why, g.DRAM.Why, g.SRAM.Why, g.Fabric.Why,
		g.PCIe.Why, g.Replays.Why, g.Clocks.Why, g.Load.Why, g.MIG.Why, g.Procs.Why,
	} {
		if why.gone() {
			return why, true
		}
	}
	for _, link := range g.Links {
		if why := link.Active.Why; why.gone() {
			return why, true
		}
	}
	return "", false
}

// Traits are what the nodes of a job are compared by: nodes that are alike for the job have the same traits, in
// whatever order their GPUs come. Left out are what could not be read, and GPUs that are not the job's.
func Traits(f Facts, want Expect) []check.Trait {
	if f.Init != Success || want.forgone() {
		return nil
	}
	well := choose(f, want).usable()
	of := func(value func(GPU) string) string { return strings.Join(distinct(well, value), ", ") }
	return slices.DeleteFunc([]check.Trait{
		{ID: "x.gpu_model", Value: strings.Join(models(well), ", ")},
		{ID: "x.gpu_count", Value: strconv.Itoa(countFor(well, want))},
		{ID: "x.driver", Value: f.Driver.value()},
		{ID: "x.cuda", Value: f.CUDA.value()},
		{ID: "x.vbios", Value: of(func(g GPU) string { return g.VBIOS.value() })},
		{ID: "x.gsp", Value: of(func(g GPU) string { return g.GSP.value() })},
		{ID: "x.memory", Value: of(memoryTrait)},
		{ID: "x.fabric", Value: of(fabricTrait)},
	}, func(t check.Trait) bool { return t.Value == "" })
}

// countFor is how many of the GPUs the job uses. A node may have more than the job asks for, and each node another
// number of them.
func countFor(well []GPU, want Expect) int {
	if want.Count > 0 {
		return min(len(well), want.Count)
	}
	return len(well)
}

// memoryTrait is the size of a GPU's memory: some MiB more or less are the driver's.
func memoryTrait(g GPU) string {
	memory, ok := g.Memory.Get()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d GiB", (memory.Total+1<<29)>>30)
}

// fabricTrait names the NVLink domain and clique of a GPU that is in one.
func fabricTrait(g GPU) string {
	f := g.Fabric.value()
	if f.State != fabricComplete || f.single() {
		return ""
	}
	return fmt.Sprintf("%s/%d", prose.Cut(f.Cluster, shown), f.Clique)
}
