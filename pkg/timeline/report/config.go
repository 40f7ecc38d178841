package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// config is what the run directory tells of how it was launched. Of variables
// the names alone: the page goes from hand to hand.
func (l looking) config() (facts []Fact) {
	add := func(name, value string) {
		if value = words(value); value != "" {
			facts = append(facts, Fact{Name: name, Value: value})
		}
	}
	add("run directory", l.run.Path)
	if job := l.run.Job; job != nil {
		add("nodes", fmt.Sprint(job.Size))
		add("started", job.At.UTC().Format("2006-01-02 15:04:05 MST"))
		add("head's addresses", strings.Join(job.Addresses, ", "))
		add("lifeline", cmp.Or(strings.Join(job.Lifeline, ", "), "none: beats are files"))
		add("share", job.FileSystem)
		add("version", job.Program)
		add("configuration", job.Digest+" (digest, the same on all nodes)")
		if job.SandboxStep {
			add("sandboxes", "in a step of their own")
		}
	}
	if others := l.otherPrograms(); others != "" {
		facts = append(facts, Fact{Name: "other versions", Value: words(others), Tone: Mind})
	}
	if s := l.run.Control.Service; s != nil {
		add("head's service", s.Address)
		add("variables for the driver", strings.Join(sortedKeys(s.Env), ", "))
	}
	if team := l.run.Control.Team; team != nil {
		add("team", fmt.Sprintf("%d of %d nodes, generation %d", len(team.Members), l.run.Size(), team.Generation))
	}
	add("clocks", l.clocks())
	return facts
}

// otherPrograms are the versions of daemons that are not the head's.
func (l looking) otherPrograms() string {
	if l.run.Job == nil {
		return ""
	}
	by := make(map[string][]int) // ranks
	for i := range l.run.Nodes {
		if j := l.run.Nodes[i].Joined; j != nil && j.Program != l.run.Job.Program {
			by[j.Program] = append(by[j.Program], i)
		}
	}
	return strings.Join(mapped(sortedKeys(by), func(program string) string {
		return fmt.Sprintf("%s on %s", program, onNodes(l.run.Nodes, by[program]))
	}), "; ")
}

// clocks says how well the times of different nodes can be compared.
func (l looking) clocks() string {
	known, worst, far := 0, 0, 0
	for i := range l.run.Nodes {
		if c := l.run.Nodes[i].Clock; i > 0 && c.Known {
			known++
			if c.Residual > l.run.Nodes[worst].Clock.Residual || worst == 0 {
				worst = i
			}
			if c.Offset.Abs() > l.run.Nodes[far].Clock.Offset.Abs() || far == 0 {
				far = i
			}
		}
	}
	if known == 0 {
		return ""
	}
	at := func(i int) string { return nameOf(i, l.host(i)) }
	return fmt.Sprintf("those of %d of %d workers are corrected, by at most %s (%s); what is left is within ± %s (%s)",
		known, l.run.Size()-1, prose.Brief(l.run.Nodes[far].Clock.Offset.Abs()), at(far), prose.Brief(l.run.Nodes[worst].Clock.Residual), at(worst))
}
