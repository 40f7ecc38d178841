package readiness

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/trail"
)

// Comparison sets the nodes of a job side by side.
type Comparison struct {
	Own     check.Report                          // of the head itself, which need not be read
	Policy  func([]check.Finding) []check.Finding // what findings mean by the policy in force
	HostsOf func(ranks []int) string              // in messages
	// Read returns what a node of some kind has told of its checks. Its error says of which.
	Read  func(ctx context.Context, rank int, kind int64) (check.Report, error)
	Trail *trail.Trail
	Log   *zap.Logger
}

// group is one kind of nodes, with what one of them has said.
type group struct {
	kind   int64 // as its record's name has it
	ranks  []int
	report check.Report
}

// kindsRead bounds how many kinds are read, and readAtOnce how many side by
// side. A job whose nodes are all of different kinds needs no more to be told so.
const (
	kindsRead  = 512
	readAtOnce = 8
)

// Compare sets side by side what nodes are, by their kind, and tells of the odd
// ones. It returns a difference that no driver is started on, or nil, and whether
// any node has GPUs. Its error is the cause that ctx has ended by.
func (c *Comparison) Compare(ctx context.Context, kinds map[int64][]int) (differ *health.Failure, gpus bool, err error) {
	groups, err := c.groups(ctx, kinds)
	if err != nil {
		return nil, false, err
	}
	c.tellWarnings(groups)
	gpus = slices.ContainsFunc(groups, func(g group) bool { return hasGPUs(g.report) })
	if len(groups) < 2 {
		return nil, gpus, nil
	}
	told := make([]check.Group, len(groups))
	for i, g := range groups {
		told[i] = check.Group{Ranks: g.ranks, Traits: g.report.Traits}
	}
	found := c.Policy(check.Compare(told, c.HostsOf))
	for _, f := range check.Of(found, check.Warn, check.Unknown) {
		c.Trail.Event(trail.Differs, trail.Fields{Check: f.ID, What: f.Observed})
		c.Log.Warn("the nodes differ: "+check.Sentence([]check.Finding{f}), zap.String("next", f.Hint))
	}
	return differing(check.Of(found, check.Fail)), gpus, nil
}

// hasGPUs tells whether a node has told of any.
func hasGPUs(report check.Report) bool {
	return slices.ContainsFunc(report.Traits, func(t check.Trait) bool { return t.ID == "x.gpu_count" && t.Value != "0" && t.Value != "" })
}

// differing is the failure that nodes differ which must not, or nil.
func differing(fails []check.Finding) *health.Failure {
	if len(fails) == 0 {
		return nil
	}
	f := health.Failed(health.NodesDiffer, "the nodes of the job differ: %s", check.Sentence(fails))
	for _, finding := range fails {
		f.Lost = append(f.Lost, finding.Ranks...)
	}
	slices.Sort(f.Lost)
	f.Lost = slices.Compact(f.Lost)
	if data, err := json.Marshal(check.Report{
		Version: check.ReportVersion, At: time.Now(), Verdict: check.Fail, Findings: fails,
	}); err == nil {
		f.Report = data
	}
	return f
}

// groups reads one record of each kind of node.
func (c *Comparison) groups(ctx context.Context, kinds map[int64][]int) ([]group, error) {
	var groups []group
	for kind, ranks := range kinds {
		g := group{kind: kind, ranks: ranks}
		if kind == c.Own.Kind() {
			g.report = c.Own
		}
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.ranks[0], b.ranks[0]) })
	if len(groups) > kindsRead {
		c.Log.Warn("the nodes are of too many kinds to compare them all", zap.Int("kinds", len(groups)), zap.Int("compared", kindsRead))
		groups = groups[:kindsRead]
	}
	var reads errgroup.Group
	reads.SetLimit(readAtOnce)
	for i := range groups {
		if groups[i].report.Version == 0 {
			reads.Go(func() (err error) {
				groups[i].report, err = c.Read(ctx, groups[i].ranks[0], groups[i].kind)
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err != nil { // those nodes are fit by their own word, and not compared
					c.Log.Warn("cannot compare nodes with the others", zap.String("nodes", c.HostsOf(groups[i].ranks)), zap.Error(err))
				}
				return nil
			})
		}
	}
	return groups, reads.Wait()
}

// tellWarnings tells what the checks have found that stops nobody: each check
// once, with the nodes that it is about.
func (c *Comparison) tellWarnings(groups []group) {
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
		c.Log.Warn("a check warns: "+check.Sentence([]check.Finding{example[id]}),
			zap.String("on", c.HostsOf(ranks[id])), zap.String("next", example[id].Hint))
	}
}
