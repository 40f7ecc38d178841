package preflight

import (
	"path"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// Placeholders for information that is left out.
const (
	hostPlaceholder    = "node"
	omittedText        = "(left out)"
	processPlaceholder = "a process"
)

// anonymizeFacts returns a copy of the facts without the names and ids of processes. It keeps UUIDs,
// which findings refer to and which identify no person.
func anonymizeFacts(facts gpu.Facts) *gpu.Facts {
	facts.GPUs = slices.Clone(facts.GPUs)
	for i := range facts.GPUs {
		g := &facts.GPUs[i]
		g.Processes, g.GraphicsProcesses = anonymizeProcesses(g.Processes), anonymizeProcesses(g.GraphicsProcesses)
		g.MIGInstances = slices.Clone(g.MIGInstances)
		for m := range g.MIGInstances {
			g.MIGInstances[m].Processes = anonymizeProcesses(g.MIGInstances[m].Processes)
		}
	}
	return &facts
}

// mpsPrefix is the prefix of the names of the MPS programs, which share a GPU between processes.
// Their names are kept, because they belong to the system and change the verdict on a GPU.
const mpsPrefix = "nvidia-cuda-mps"

// anonymizeProcesses removes the names and ids of processes. It keeps their number, their memory,
// and whether /proc lists them.
func anonymizeProcesses(processes gpu.Reading[[]gpu.Process]) gpu.Reading[[]gpu.Process] {
	all, ok := processes.Get()
	if !ok {
		return processes
	}
	without := make([]gpu.Process, 0, len(all))
	for _, p := range all {
		name := p.Name
		switch {
		case strings.HasPrefix(path.Base(name), mpsPrefix):
			name = mpsPrefix
		case name != "":
			name = processPlaceholder
		}
		without = append(without, gpu.Process{Used: p.Used, Unknown: p.Unknown, Name: name})
	}
	return gpu.Reading[[]gpu.Process]{Value: &without}
}

// redactReport returns a copy of the report without the node's name, process names,
// and the output of the site's own commands.
func redactReport(report check.Report) check.Report {
	report.Host = hostPlaceholder
	report.Findings = slices.Clone(report.Findings)
	for i := range report.Findings {
		f := &report.Findings[i]
		if strings.HasPrefix(f.ID, "active.") || f.ID == "gpu.busy" {
			f.Observed, f.Lines = omittedText, nil
		}
	}
	return report
}
