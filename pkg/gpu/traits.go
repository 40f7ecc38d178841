package gpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
)

// Traits are what the nodes of a job are compared by: the same on nodes that are
// equal for it, in whatever order their GPUs come. What could not be read is left
// out, and so are the GPUs that are not the job's.
func Traits(f Facts, want Expect) []check.Trait {
	if f.Init != Success || want.forgone() {
		return nil
	}
	var traits []check.Trait
	add := func(id string, values ...string) {
		if value := strings.Join(values, ", "); value != "" {
			traits = append(traits, check.Trait{ID: id, Value: value})
		}
	}
	well := usable(f, want)
	add("x.gpu_model", models(well)...)
	add("x.gpu_count", strconv.Itoa(countFor(well, want)))
	driver, _ := f.Driver.Get()
	add("x.driver", driver)
	cuda, _ := f.CUDA.Get()
	add("x.cuda", cuda)
	add("x.vbios", distinct(well, func(g GPU) (string, bool) { return g.VBIOS.Get() })...)
	add("x.gsp", distinct(well, func(g GPU) (string, bool) { return g.GSP.Get() })...)
	add("x.memory", distinct(well, func(g GPU) (string, bool) {
		// Some MiB more or less are the driver's: it's the size that counts.
		m, ok := g.Memory.Get()
		return fmt.Sprintf("%d GiB", (m.Total+1<<29)>>30), ok
	})...)
	add("x.fabric", distinct(well, fabricTrait)...)
	return traits
}

// countFor is how many of the GPUs the job means to use. Where it is told how
// many, nodes may well have more, and not all as many more.
func countFor(well []GPU, want Expect) int {
	if want.Count > 0 {
		return min(len(well), want.Count)
	}
	return len(well)
}

// fabricTrait names the NVLink domain and clique of a GPU that is in one.
func fabricTrait(g GPU) (string, bool) {
	f, ok := g.Fabric.Get()
	if !ok || f.State != fabricComplete || strings.Trim(f.Cluster, "0-") == "" {
		return "", false
	}
	return fmt.Sprintf("%s/%d", clip(f.Cluster), f.Clique), true
}
