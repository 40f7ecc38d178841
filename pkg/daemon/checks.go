package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/preflight/nodecheck"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// nodeChecker runs the checks that decide whether this node is suitable for the job.
type nodeChecker struct {
	*node
	finishedReport chan check.Report // receives the report once; nil before the checks start
	// the report, once this node has passed; used only by the sequence
	report check.Report
}

// startChecksEarly starts the checks while the node still joins, unless a setup command must run
// first.
func (f *nodeChecker) startChecksEarly() {
	if f.cfg.Setup == "" {
		f.startChecks()
	}
}

// startChecks starts the checks, if any, in the background.
func (f *nodeChecker) startChecks() {
	if f.cfg.Checks == nil {
		return
	}
	f.finishedReport = make(chan check.Report, 1)
	f.Background(func(context.Context) {
		tell := nodecheck.NewWaitLogger(f.Events, f.Log)
		f.finishedReport <- f.cfg.Checks.AwaitReady(f.RunCtx, func(report check.Report) {
			f.telemetry.SetCheckReport(report)
			tell(report)
		})
	})
}

// prepareNode runs the node's setup command, waits for its checks, and publishes that the node has
// passed them. It does nothing if neither a setup command nor checks are configured.
func (f *nodeChecker) prepareNode(ctx context.Context) error {
	if !f.cfg.HasNodeChecks() {
		return nil
	}
	return f.RunPhase(record.PhaseCheck, func() error {
		if f.cfg.Setup != "" {
			if err := f.children.RunSetup(ctx, f.cfg.Setup, f.childEnv(f.cfg.Environ, f.launchPlace()), f.cfg.Times.Setup); err != nil {
				return err
			}
			f.startChecks()
		}
		report, err := f.awaitReport(ctx)
		if err != nil {
			return err
		}
		if err := f.gpuMonitor.StartWatch(ctx); err != nil {
			return err
		}
		return f.publishChecked(report)
	})
}

// awaitReport waits for the report of the checks, and adds the findings about the shared file
// system. Its error is the failure of this node if a finding fails.
func (f *nodeChecker) awaitReport(ctx context.Context) (report check.Report, err error) {
	if f.cfg.Checks == nil {
		return check.Report{}, nil
	}
	// Wait for the checks.
	select {
	case report = <-f.finishedReport:
	case <-ctx.Done():
		return report, context.Cause(ctx)
	}
	if cause := context.Cause(ctx); cause != nil {
		return report, cause
	}
	// Complete the report.
	report.NodeIndex, report.Host = f.id.NodeIndex, f.id.Host
	report.Findings = append(report.Findings, f.cfg.Checks.ApplyPolicy(f.shareFindings(ctx))...)
	report.Verdict = check.WorstVerdict(report.Findings)
	f.telemetry.SetCheckReport(report)
	f.gpuMonitor.StartHistory(f.Dir.Name(), report.Findings)
	nodecheck.RecordEvents(f.Events, report)
	if report.Verdict == check.Fail {
		return report, nodecheck.UnfitFailure(report, f.nodeName(f.id.NodeIndex))
	}
	// Warnings are only logged here, because the head reports those of all nodes to the user.
	if warned := check.SummarizeFindings(report.Findings, check.Warn, check.Unknown); warned != "" {
		f.Log.Info("the checks have findings", zap.String("findings", warned))
	}
	return report, nil
}

// shareFindings returns the findings about the shared file system. Its clock was compared with this
// node's when the node joined. Only the head checks, for all nodes, the free space and whether
// other users could replace the run directory.
func (f *nodeChecker) shareFindings(ctx context.Context) []check.Finding {
	share := check.ShareFacts{Path: f.Dir.Path()}
	if offset, known := f.Dir.ClockOffset(); known {
		share.Offset = &offset
	}
	if f.id.NodeIndex == 0 {
		ctx, cancel := context.WithTimeoutCause(ctx, lifecycle.UnresponsiveTimeout, errDeadline)
		defer cancel()
		space, err := f.Dir.QuerySpace(ctx)
		share.Space, share.SpaceErr, share.Exposure = &space, err, f.Dir.CheckExposure(ctx)
	}
	return check.CheckShare(share)
}

// publishChecked publishes that this node has passed, with the report. The name of the record
// contains the kind of the node, a hash of its attributes and warnings, so that a listing shows
// which nodes are alike.
func (f *nodeChecker) publishChecked(report check.Report) error {
	if f.cfg.Checks == nil {
		return f.PublishState(record.StateChecked)
	}
	f.report = report
	data, err := json.Marshal(report)
	if err != nil {
		return health.NewFailure(health.Internal, "cannot encode the check results of %s: %v", f.nodeName(f.id.NodeIndex), err)
	}
	name := signal.CheckedName(f.id.NodeIndex, f.id.Size, report.KindHash())
	err = f.Publish(signal.NodesDir, name, &record.Checked{Report: data}, false)
	if err != nil && !errors.Is(err, lifecycle.ErrNotAwaited) && f.RunCtx.Err() == nil {
		// The name is sufficient, and a full file system may still accept an empty file.
		f.Log.Warn("cannot publish the check results, only that the checks passed", zap.Error(err))
		err = f.MarkName(signal.NodesDir, name)
	}
	return err
}

// compareNodes compares the nodes of the team when all have passed their checks. Its error is a
// difference because of which the driver must not start. If spares can replace the nodes that
// differ, it records the difference as their failure instead.
func (h *head) compareNodes(ctx context.Context, l signal.Listing) error {
	if h.cfg.Checks == nil {
		return nil
	}
	// Consider the members of the team only.
	kinds := l.NodesByKind()
	for kind, nodes := range kinds {
		if kinds[kind] = h.membership.FilterMembers(nodes); len(kinds[kind]) == 0 {
			delete(kinds, kind)
		}
	}
	c := nodecheck.Comparison{
		OwnReport: h.checker.report, ApplyPolicy: h.cfg.Checks.ApplyPolicy, FormatHosts: h.nodeNames, ReadReport: h.readCheckReport, Trail: h.Events, Log: h.Log,
	}
	differ, gpus, err := c.CompareNodes(ctx, kinds)
	h.progress.hasGPUs.Store(gpus)
	switch {
	case err != nil:
		return err
	case differ == nil:
		return nil
	case !h.membership.HasSpares() || len(differ.LostNodes) == 0:
		return differ
	}
	// Spares may take the places of the nodes that differ.
	differ.Header, differ.Phase = h.recordHeader(), record.PhaseCheck
	h.tracker.handleFailure(differ.Failure, time.Now())
	return nil
}

// readCheckReport reads the report of another node's checks. kind is part of the record's name.
func (h *head) readCheckReport(ctx context.Context, nodeIndex int, kind int64) (report check.Report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.timing.SilenceTimeout, errDeadline)
	defer cancel()
	var rec record.Checked
	err = h.Dir.ReadRecord(ctx, signal.NodesDir, signal.CheckedName(nodeIndex, h.id.Size, kind), &rec)
	if err == nil && len(rec.Report) > 0 {
		err = json.Unmarshal(rec.Report, &report)
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
		return report, nil
	case cause != nil && !errors.Is(cause, errDeadline):
		return report, cause
	default:
		return report, health.NewFailure(health.ShareUnusable, "cannot read the check results of %s: %v", h.nodeName(nodeIndex), err)
	}
}
