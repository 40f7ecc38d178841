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

// Placeholders for information that is left out.
const (
	host    = "node"
	left    = "(left out)"
	program = "a process"
)

// anonymous returns a copy of the facts without information that identifies the owner or the users
// of a GPU: serial numbers, by which a vendor knows the buyer, and the names and ids of processes.
// It keeps UUIDs, which findings refer to and which identify no person.
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

// sharing is the prefix of the names of the MPS programs, which share a GPU between processes.
// Their names are kept, because they belong to the system and change the verdict on a GPU.
const sharing = "nvidia-cuda-mps"

// unnamed removes the names and ids of processes. It keeps their number, their memory, and whether
// /proc lists them.
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

// discreet returns a copy of the report without the node's name, process names, values of
// variables, and the output of the site's own commands. facts are the facts of the recording; they
// may be nil.
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

// valued matches the start of each NAME=VALUE in a list. A value may contain commas.
var valued = regexp.MustCompile(`(?:^|, )([A-Z][A-Z0-9_]*)=`)

// names returns the names of the variables in a list of NAME=VALUE entries. It returns the text
// unchanged if there are no entries, as in a message that all is well.
func names(list string) string {
	var names []string
	for _, match := range valued.FindAllStringSubmatch(list, -1) {
		names = append(names, match[1])
	}
	return cmp.Or(strings.Join(names, ", "), list)
}

// inUse describes how many processes use a GPU and how much memory they use. It returns observed if
// there are no processes, and a placeholder if the GPU is unknown.
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
