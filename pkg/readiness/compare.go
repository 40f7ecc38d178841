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
	gpus = slices.ContainsFunc(groups, func(g check.Group) bool { return hasGPUs(g.Report) })
	if len(groups) < 2 {
		return nil, gpus, nil
	}
	found := c.Policy(check.Compare(groups, c.HostsOf))
	for _, f := range check.Of(found, check.Warn, check.Unknown) {
		c.Trail.Event(trail.Differs, trail.Fields{Check: f.ID, What: f.Observed})
		c.Log.Warn("the nodes differ: "+check.Sentence([]check.Finding{f}), zap.String("next", f.Hint))
	}
	return differing(check.Of(found, check.Fail)), gpus, nil
}

// hasGPUs tells whether a node has told of any.
func hasGPUs(report check.Report) bool {
	count := report.Trait(check.GPUCount)
	return count != "0" && count != ""
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

// groups reads one record of each kind of node, the kind of the lowest rank first.
func (c *Comparison) groups(ctx context.Context, kinds map[int64][]int) ([]check.Group, error) {
	order := slices.SortedFunc(maps.Keys(kinds), func(a, b int64) int { return cmp.Compare(kinds[a][0], kinds[b][0]) })
	if len(order) > kindsRead {
		c.Log.Warn("the nodes are of too many kinds to compare them all", zap.Int("kinds", len(order)), zap.Int("compared", kindsRead))
		order = order[:kindsRead]
	}
	groups := make([]check.Group, len(order))
	own := c.Own.Kind()
	var reads errgroup.Group
	reads.SetLimit(readAtOnce)
	for i, kind := range order {
		groups[i].Ranks = kinds[kind]
		if kind == own && c.Own.Version != 0 {
			groups[i].Report = c.Own
			continue
		}
		reads.Go(func() (err error) {
			groups[i].Report, err = c.Read(ctx, kinds[kind][0], kind)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil { // those nodes are fit by their own word, and not compared
				c.Log.Warn("cannot compare nodes with the others", zap.String("nodes", c.HostsOf(kinds[kind])), zap.Error(err))
			}
			return nil
		})
	}
	return groups, reads.Wait()
}

// tellWarnings tells what the checks have found that stops nobody: each check once, with the nodes that it is about.
func (c *Comparison) tellWarnings(groups []check.Group) {
	told := make(map[string]check.Finding)
	for _, g := range groups {
		for _, f := range check.Of(g.Report.Findings, check.Warn, check.Unknown) {
			if known, again := told[f.ID]; again {
				f = known
			}
			f.Ranks = append(f.Ranks, g.Ranks...)
			told[f.ID] = f
		}
	}
	for _, id := range slices.Sorted(maps.Keys(told)) {
		f := told[id]
		slices.Sort(f.Ranks)
		c.Log.Warn("a check warns: "+check.Sentence([]check.Finding{f}),
			zap.String("on", c.HostsOf(slices.Compact(f.Ranks))), zap.String("next", f.Hint))
	}
}
