package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
	"github.com/bringupd/bringupd/pkg/trail"
)

// comparison sets the nodes of the job side by side.
type comparison struct {
	*node
	roster *team.Roster
	deaths *deaths
	found  atomic.Bool // a node of the job has GPUs
}

// groups are the kinds of nodes that the head knows, each with what one of them
// has said.
type group struct {
	ranks  []int
	report check.Report
}

// kindsRead bounds how many kinds are read, and readAtOnce how many side by
// side. A job whose nodes are all of different kinds needs no more to be told so.
const (
	kindsRead  = 512
	readAtOnce = 8
)

// compare sets side by side what the nodes of the job are, once all of them
// have said so, and tells of the odd ones. Its error is a difference that no
// driver is started on.
func (c *comparison) compare(ctx context.Context, l signal.Listing) error {
	if c.cfg.Checks == nil {
		return nil
	}
	groups, err := c.groups(ctx, l)
	if err != nil {
		return err
	}
	c.tellWarnings(groups)
	c.found.Store(slices.ContainsFunc(groups, func(g group) bool { return hasGPUs(g.report) }))
	if len(groups) < 2 {
		return nil
	}
	told := make([]check.Group, len(groups))
	for i, g := range groups {
		told[i] = check.Group{Ranks: g.ranks, Traits: g.report.Traits}
	}
	odd := make(map[string][]int)
	var found []check.Finding
	for _, d := range check.Compare(told, c.hostsOf) {
		odd[d.ID] = d.Odd
		found = append(found, d.Finding)
	}
	found = c.cfg.Checks.Judge(found)
	for _, f := range check.Of(found, check.Warn, check.Unknown) {
		c.trail.Event(trail.Differs, trail.Fields{Check: f.ID, What: f.Observed})
		c.log.Warn("the nodes differ: "+check.Sentence([]check.Finding{f}), zap.String("next", f.Hint))
	}
	return c.differ(check.Of(found, check.Fail), odd)
}

// hasGPUs tells whether a node has told of any.
func hasGPUs(report check.Report) bool {
	return slices.ContainsFunc(report.Traits, func(t check.Trait) bool { return t.ID == "x.gpu_count" && t.Value != "0" && t.Value != "" })
}

// differ is the failure that nodes differ which must not; odd are the ranks, by
// the check, that differ from the others.
func (c *comparison) differ(fails []check.Finding, odd map[string][]int) error {
	if len(fails) == 0 {
		return nil
	}
	f := health.Failed(health.NodesDiffer, "the nodes of the job differ: %s", check.Sentence(fails))
	for _, finding := range fails {
		f.Lost = append(f.Lost, odd[finding.ID]...)
	}
	slices.Sort(f.Lost)
	f.Lost = slices.Compact(f.Lost)
	if data, err := json.Marshal(check.Report{
		Version: check.ReportVersion, At: time.Now(), Verdict: check.Fail, Findings: fails,
	}); err == nil {
		f.Report = data
	}
	if c.roster.Spares() && len(f.Lost) > 0 { // others may take their places
		f.Header, f.Phase = c.header(), "check"
		c.deaths.observe(f.FailedRecord, time.Now())
		return nil
	}
	return f
}

// groups reads one record of each kind of node in the team.
func (c *comparison) groups(ctx context.Context, l signal.Listing) ([]group, error) {
	kinds := l.Kinds()
	var groups []group
	for kind, ranks := range kinds {
		if ranks = c.roster.Among(ranks); len(ranks) > 0 {
			g := group{ranks: ranks}
			if kind == c.fitness.report.Kind() {
				g.report = c.fitness.report
			}
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.ranks[0], b.ranks[0]) })
	if len(groups) > kindsRead {
		c.log.Warn("the nodes are of too many kinds to compare them all", zap.Int("kinds", len(groups)), zap.Int("compared", kindsRead))
		groups = groups[:kindsRead]
	}
	var reads errgroup.Group
	reads.SetLimit(readAtOnce)
	for i := range groups {
		if groups[i].report.Version == 0 {
			reads.Go(func() (err error) {
				groups[i].report, err = c.readChecked(ctx, l, groups[i].ranks[0])
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err != nil { // those nodes are fit by their own word, and not compared
					c.log.Warn("cannot compare nodes with the others", zap.String("nodes", c.hostsOf(groups[i].ranks)), zap.Error(err))
				}
				return nil
			})
		}
	}
	return groups, reads.Wait()
}

// readChecked reads what the checks of a rank have said.
func (c *comparison) readChecked(ctx context.Context, l signal.Listing, rank int) (report check.Report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.tempo.Silent, errDeadline)
	defer cancel()
	var record signal.CheckedRecord
	for kind, ranks := range l.Kinds() {
		if slices.Contains(ranks, rank) {
			err = c.dir.Read(ctx, signal.Nodes, signal.CheckedName(rank, c.id.Size, kind), &record)
		}
	}
	if err == nil && len(record.Report) > 0 {
		err = json.Unmarshal(record.Report, &report)
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
		return report, nil
	case cause != nil && !errors.Is(cause, errDeadline):
		return report, cause
	default:
		return report, health.Failed(health.Share, "cannot read what the checks of %s say: %v", c.name(rank), err)
	}
}

// tellWarnings tells what the checks have found that stops nobody: each check
// once, with the nodes that it is about.
func (c *comparison) tellWarnings(groups []group) {
	ranks, example := make(map[string][]int), make(map[string]check.Finding)
	for _, g := range groups {
		for _, id := range g.report.Warned() {
			ranks[id] = append(ranks[id], g.ranks...)
			if _, known := example[id]; !known {
				at := slices.IndexFunc(g.report.Findings, func(f check.Finding) bool {
					return f.ID == id && (f.Verdict == check.Warn || f.Verdict == check.Unknown)
				})
				example[id] = g.report.Findings[at]
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ranks)) {
		slices.Sort(ranks[id])
		c.log.Warn("a check warns: "+check.Sentence([]check.Finding{example[id]}),
			zap.String("on", c.hostsOf(ranks[id])), zap.String("next", example[id].Hint))
	}
}
