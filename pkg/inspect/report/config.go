package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// configFacts returns what the run directory contains about the configuration of the run. It shows
// only the names of environment variables, not their values, because the page may be passed on to
// other people.
func (l viewBuilder) configFacts() (facts []Fact) {
	add := func(name, value string) {
		if value = sanitizeSentence(value); value != "" {
			facts = append(facts, Fact{Name: name, Value: value})
		}
	}
	add("run directory", l.run.Path)
	if job := l.run.Job; job != nil {
		add("nodes", fmt.Sprint(job.Size))
		if plan := job.Plan; plan != nil {
			add(factJobName, plan.JobName)
			add(factDriver, plan.Command)
			add(factFlags, textutil.FormatCommand(plan.Flags...))
		}
		add("started", job.WrittenAt.UTC().Format("2006-01-02 15:04:05 MST"))
		add("head's addresses", strings.Join(job.Addresses, ", "))
		add("peer link", cmp.Or(strings.Join(job.LinkAddresses, ", "), "none: heartbeats are files"))
		add("shared file system", job.FileSystem)
		add("version", job.ProgramVersion)
		add("configuration", job.ConfigDigest+" (digest, the same on all nodes)")
		add("further job steps", strings.Join(job.Steps, ", "))
	}
	// Different versions on the nodes may be a mistake, so they are highlighted.
	if others := l.otherVersions(); others != "" {
		facts = append(facts, Fact{Name: "other versions", Value: sanitizeSentence(others), Tone: SeverityAttention})
	}
	if s := l.run.Control.HeadRecord; s != nil {
		add("head's service", s.Address)
		add("variables for the driver", strings.Join(slices.Sorted(maps.Keys(s.Env)), ", "))
	}
	if team := l.run.Control.Membership; team != nil {
		add("team", fmt.Sprintf("%d of %d nodes, generation %d", len(team.Members), l.run.Size(), team.Generation))
	}
	return facts
}

func (l viewBuilder) otherVersions() string {
	if l.run.Job == nil {
		return ""
	}
	by := make(map[string][]int) // node indices by version
	for i := range l.run.Nodes {
		if j := l.run.Nodes[i].Joined; j != nil && j.ProgramVersion != l.run.Job.ProgramVersion {
			by[j.ProgramVersion] = append(by[j.ProgramVersion], i)
		}
	}
	return strings.Join(mapSlice(slices.Sorted(maps.Keys(by)), func(program string) string {
		return fmt.Sprintf("%s on %s", program, l.formatNodes(by[program]))
	}), "; ")
}
