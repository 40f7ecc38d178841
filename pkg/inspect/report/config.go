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
		if value != "" {
			facts = append(facts, Fact{Name: name, Value: value})
		}
	}
	add("run directory", l.run.Path)
	if job := l.run.Job; job != nil {
		add("nodes", fmt.Sprint(job.Size))
		if plan := job.Plan; plan != nil {
			add(factJobName, plan.JobName)
			add(factDriver, plan.Command)
			add(factRoles, strings.Join(plan.Roles, ", "))
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
	if s := l.run.Control.HeadRecord; s != nil {
		add("head's service", s.Address)
		add("variables for the driver", strings.Join(slices.Sorted(maps.Keys(s.Env)), ", "))
	}
	if team := l.run.Control.Team; team != nil {
		add("team", fmt.Sprintf("%d of %d nodes, plan %d", len(team.Offers), l.run.Size(), team.Number))
	}
	add("calls to the file system", l.shareCalls())
	return facts
}

// shareCalls describes the calls to the shared file system. It returns an empty string if the head has not
// reported any.
func (l viewBuilder) shareCalls() string {
	if l.run.Result == nil || l.run.Result.Share == nil {
		return ""
	}
	head := l.run.Result.Share.Head
	all, most, slowest := head.Calls, int64(0), head.Slowest
	for i := range l.run.Nodes {
		done := l.run.Nodes[i].Done
		if i == 0 || done == nil || done.Share == nil {
			continue
		}
		all, most = all+done.Share.Calls, max(most, done.Share.Calls)
		if done.Share.Slowest.Took > slowest.Took {
			slowest = done.Share.Slowest
		}
	}
	return fmt.Sprintf("the head %d, a worker at most %d, all nodes %d; the slowest: %s of %s, %s",
		head.Calls, most, all, slowest.Op, slowest.Path, textutil.BriefDuration(slowest.Took))
}
