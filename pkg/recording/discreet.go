package recording

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

// What stands for what is not told.
const (
	host    = "node"
	left    = "(left out)"
	program = "a process"
)

// anonymous returns the facts without what names a card's owner or whoever uses it: serial numbers, by which a vendor
// knows the buyer, and the names and numbers of processes. UUIDs stay: findings speak of GPUs by them, and they are no
// person's.
func anonymous(facts gpu.Facts) gpu.Facts {
	facts.GPUs = slices.Clone(facts.GPUs)
	for i := range facts.GPUs {
		g := &facts.GPUs[i]
		if serial := left; g.Serial.Value != nil {
			g.Serial.Value = &serial
		}
		g.Procs, g.Screen = unnamed(g.Procs), unnamed(g.Screen)
		g.MIGs = slices.Clone(g.MIGs)
		for m := range g.MIGs {
			g.MIGs[m].Procs = unnamed(g.MIGs[m].Procs)
		}
	}
	return facts
}

// sharing is how the names begin of the programs that let others use a GPU (MPS). They are the system's own, and a GPU
// with them is judged otherwise.
const sharing = "nvidia-cuda-mps"

// unnamed leaves of processes how many there are, with how much memory, and whether /proc knows them.
func unnamed(told gpu.Reading[[]gpu.Process]) gpu.Reading[[]gpu.Process] {
	all, ok := told.Get()
	if !ok {
		return told
	}
	without := make([]gpu.Process, 0, len(all))
	for _, p := range all {
		name := p.Name
		switch {
		case strings.HasPrefix(path.Base(name), sharing):
			name = sharing
		case name != "":
			name = program
		}
		without = append(without, gpu.Process{Used: p.Used, Unknown: p.Unknown, Name: name})
	}
	return gpu.Reading[[]gpu.Process]{Value: &without}
}

// discreet returns the report without the node's name, processes, values of variables, and what a site's own commands
// have said. The facts are those of the recording.
func discreet(report check.Report, facts *gpu.Facts) check.Report {
	report.Host = host
	report.Findings = slices.Clone(report.Findings)
	for i := range report.Findings {
		f := &report.Findings[i]
		switch {
		case strings.HasPrefix(f.ID, "active."):
			f.Observed, f.Lines = left, nil
		case f.ID == "gpu.env":
			f.Observed = names(f.Observed)
		case f.ID == "gpu.busy" && f.Device != nil:
			f.Observed = inUse(facts, f.Device.Index, f.Observed)
		}
	}
	return report
}

// valued is where NAME=VALUE begins in a list. A value may have commas, too.
var valued = regexp.MustCompile(`(?:^|, )([A-Z][A-Z0-9_]*)=`)

// names are those of the variables in such a list; of one that has none, as it says that all is well, it is the list.
func names(list string) string {
	var names []string
	for _, match := range valued.FindAllStringSubmatch(list, -1) {
		names = append(names, match[1])
	}
	return cmp.Or(strings.Join(names, ", "), list)
}

// inUse says of how many processes a finding was, where it was of any.
func inUse(facts *gpu.Facts, index int, observed string) string {
	if facts == nil {
		return left
	}
	at := slices.IndexFunc(facts.GPUs, func(g gpu.GPU) bool { return g.Index == index })
	if at < 0 {
		return left
	}
	g := facts.GPUs[at]
	procs := g.Procs.OrZero()
	if len(procs) == 0 {
		return observed
	}
	var bytes uint64
	for _, p := range procs {
		bytes += p.Used
	}
	return fmt.Sprintf("processes: %d, with %s; %s in use", len(procs), prose.Size(bytes), prose.Size(g.Memory.OrZero().Used))
}
