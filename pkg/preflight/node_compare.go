package preflight

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
)

// Comparison compares the nodes of a job.
type Comparison struct {
	// report of the head itself, which is not read from a record
	OwnReport   check.Report
	ApplyPolicy func([]check.Finding) []check.Finding // applies the policy in force to findings
	// formats node indices as host names for messages
	FormatHosts func(nodes []int) string
	// ReadReport returns the report of a node of the given kind. Its error names the node.
	ReadReport func(ctx context.Context, node int, kind int64) (check.Report, error)
	Trail      *eventlog.EventLog // receives an event for each difference
	Log        *zap.Logger
}

// maxComparedKinds is the maximum number of kinds that are compared, and maxReportReads the number
// of records that are read concurrently. If all nodes of a job are of different kinds, comparing
// more of them would not help.
const (
	maxComparedKinds = 512
	maxReportReads   = 8
)

// CompareNodes compares the nodes, grouped by their kind, and reports warnings and differences. It
// returns a failure if a difference must prevent the start of the driver, and whether any node has
// GPUs. If ctx ends, it returns its cause.
func (c *Comparison) CompareNodes(ctx context.Context, kinds map[int64][]int) (
	differ *health.Failure, gpus bool, err error,
) {
	groups, err := c.readGroups(ctx, kinds)
	if err != nil {
		return nil, false, err
	}
	c.logWarnings(groups)
	gpus = slices.ContainsFunc(groups, func(g check.NodeGroup) bool {
		count := g.Report.Attribute(check.AttrGPUCount)
		return count != "0" && count != ""
	})
	if len(groups) < 2 {
		return nil, gpus, nil
	}
	found := c.ApplyPolicy(check.CompareNodes(groups, c.FormatHosts))
	for _, f := range check.FilterByVerdict(found, check.Warn, check.Unknown) {
		c.Trail.WriteEvent(eventlog.NodesDiffer,
			eventlog.Fields{
				CheckFields: eventlog.CheckFields{Check: f.ID}, FailureFields: eventlog.FailureFields{What: f.Observed},
			})
		c.Log.Warn("the nodes differ: "+check.FormatSentence([]check.Finding{f}), nextStep(f))
	}
	return differenceFailure(check.FilterByVerdict(found, check.Fail)), gpus, nil
}

// differenceFailure returns the failure for differences between nodes that are not allowed, or nil
// if there are none.
func differenceFailure(fails []check.Finding) *health.Failure {
	if len(fails) == 0 {
		return nil
	}
	f := health.NewFailure(health.NodesDiffer, "the nodes of the job differ: %s", check.FormatSentence(fails))
	f.LostNodes = check.NodesOf(fails)
	f.Report, _ = json.Marshal(check.Report{
		Version: check.ReportVersion, At: time.Now(), Verdict: check.Fail, Findings: fails,
	})
	return f
}

// readGroups reads one report for each kind of node. It orders the groups by their lowest node
// index.
func (c *Comparison) readGroups(ctx context.Context, kinds map[int64][]int) ([]check.NodeGroup, error) {
	order := slices.SortedFunc(maps.Keys(kinds), func(a, b int64) int { return cmp.Compare(kinds[a][0], kinds[b][0]) })
	if len(order) > maxComparedKinds {
		c.Log.Warn("too many different kinds of nodes: not all are compared",
			zap.Int("kinds", len(order)), zap.Int("compared", maxComparedKinds))
		order = order[:maxComparedKinds]
	}
	groups := make([]check.NodeGroup, len(order))
	own := c.OwnReport.KindHash()
	// Read the reports with limited concurrency. The head's own report is known already.
	var reads errgroup.Group
	reads.SetLimit(maxReportReads)
	for i, kind := range order {
		groups[i].NodeIndices = kinds[kind]
		if kind == own && c.OwnReport.Version != 0 {
			groups[i].Report = c.OwnReport
			continue
		}
		reads.Go(func() (err error) {
			groups[i].Report, err = c.ReadReport(ctx, kinds[kind][0], kind)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil { // the nodes have passed their own checks, but cannot be compared
				c.Log.Warn("cannot compare some nodes with the others",
					zap.String("nodes", c.FormatHosts(kinds[kind])), zap.Error(err))
			}
			return nil
		})
	}
	return groups, reads.Wait()
}

// logWarnings logs the warnings of all nodes: one message per check, with the nodes that it
// concerns.
func (c *Comparison) logWarnings(groups []check.NodeGroup) {
	var found []check.Finding
	for _, g := range groups {
		found = append(found, check.FilterByVerdict(g.Report.FindingsOn(g.NodeIndices...),
			check.Warn, check.Unknown)...)
	}
	slices.SortStableFunc(found, func(a, b check.Finding) int { return strings.Compare(a.ID, b.ID) })
	for _, same := range check.GroupFindings(found, func(f check.Finding) string { return f.ID }) {
		c.Log.Warn("check warning: "+check.FormatSentence(same[:1]),
			zap.String("on", c.FormatHosts(check.NodesOf(same))), nextStep(same[0]))
	}
}

// nextStep returns the field of a log line with what to do about a finding, if that is known.
func nextStep(f check.Finding) zap.Field {
	if f.Hint == "" {
		return zap.Skip()
	}
	return zap.String("next", f.Hint)
}
