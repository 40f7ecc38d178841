package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/preflight"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Checker decides whether this node is suitable for the job.
type Checker struct {
	*Publisher
	ID       *launcher.Identity
	Setup    func(ctx context.Context) error // runs the setup command; nil if there is none
	Checks   NodeChecks                      // nil if there are none
	WatchGPU func(ctx context.Context) error // starts to watch the GPUs of a node that has passed

	finishedReport chan check.Report // receives the report once; nil before the checks start
	// Report is the report of the checks, once this node has passed. Only the sequence uses it.
	Report check.Report
}

// NodeChecks runs the checks of this node.
type NodeChecks interface {
	// AwaitReady repeats the checks until no check has to wait any more, or ctx ends. It reports what
	// it waits for to progress.
	AwaitReady(ctx context.Context, progress func(check.Report)) check.Report
	// ApplyPolicy applies the policy in force to findings of other nodes.
	ApplyPolicy(findings []check.Finding) []check.Finding
	// MaxDuration returns the maximum duration of AwaitReady.
	MaxDuration() time.Duration
}

func (c *Checker) nodeName() string { return launcher.NodeLabel(c.ID.NodeIndex, c.ID.Host) }

// StartEarly starts the checks while the node still joins, unless a setup command must run first.
func (c *Checker) StartEarly() {
	if c.Setup == nil {
		c.startChecks()
	}
}

func (c *Checker) startChecks() {
	if c.Checks == nil {
		return
	}
	c.finishedReport = make(chan check.Report, 1)
	c.Background(func(context.Context) {
		c.finishedReport <- c.Checks.AwaitReady(c.RunCtx, preflight.NewWaitLogger(c.Events, c.Log))
	})
}

// PrepareNode runs the node's setup command, waits for its checks, and publishes that the node has
// passed them. It does nothing if neither a setup command nor checks are configured.
func (c *Checker) PrepareNode(ctx context.Context) error {
	if c.Setup == nil && c.Checks == nil {
		return nil
	}
	return c.RunPhase(record.PhaseCheck, func() error {
		if c.Setup != nil {
			if err := c.Setup(ctx); err != nil {
				return err
			}
			c.startChecks()
		}
		report, err := c.awaitReport(ctx)
		if err != nil {
			return err
		}
		if err := c.WatchGPU(ctx); err != nil {
			return err
		}
		return c.publishChecked(report)
	})
}

// awaitReport waits for the report of the checks, and adds the findings about the shared file
// system. Its error is the failure of this node if a finding fails.
func (c *Checker) awaitReport(ctx context.Context) (report check.Report, err error) {
	if c.Checks == nil {
		return check.Report{}, nil
	}
	select {
	case report = <-c.finishedReport:
	case <-ctx.Done():
		return report, context.Cause(ctx)
	}
	share := c.shareFindings(ctx)
	if cause := context.Cause(ctx); cause != nil { // its end has cut off the queries
		return report, cause
	}
	report.NodeIndex, report.Host = c.ID.NodeIndex, c.ID.Host
	report.Findings = append(report.Findings, c.Checks.ApplyPolicy(share)...)
	report.Verdict = check.WorstVerdict(report.Findings)
	preflight.RecordEvents(c.Events, report)
	if report.Verdict == check.Fail {
		return report, preflight.UnfitFailure(report, c.nodeName())
	}
	// Warnings are only for this daemon's log, because the head reports those of all nodes to the
	// user.
	if warned := check.SummarizeFindings(report.Findings, check.Warn, check.Unknown); warned != "" {
		c.Log.Debug("the checks have findings", zap.String("findings", warned))
	}
	return report, nil
}

// shareFindings returns the findings about the shared file system. Only the head checks, for all
// nodes, the free space and whether other users could replace the run directory.
func (c *Checker) shareFindings(ctx context.Context) []check.Finding {
	share := check.ShareFacts{Path: c.Dir.Path()}
	if offset, known := c.Dir.ClockOffset(); known {
		share.Offset = &offset
	}
	if c.ID.NodeIndex == 0 {
		ctx, cancel := context.WithTimeoutCause(ctx, UnresponsiveTimeout, health.ErrDeadline)
		defer cancel()
		space, err := c.Dir.QuerySpace(ctx)
		share.Space, share.SpaceErr, share.Exposure = &space, err, c.Dir.CheckExposure(ctx)
	}
	return check.CheckShare(share)
}

// publishChecked publishes that this node has passed, with the report. The record's name contains
// the kind of the node, so that a listing shows which nodes are alike.
func (c *Checker) publishChecked(report check.Report) error {
	if c.Checks == nil {
		return c.PublishState(record.StateChecked)
	}
	c.Report = report
	data, err := json.Marshal(report)
	if err != nil {
		return health.NewFailure(health.Internal, "cannot encode the check results of %s: %v", c.nodeName(), err)
	}
	name := signal.CheckedName(c.ID.NodeIndex, c.ID.Size, report.KindHash())
	err = c.Publish(signal.NodesDir, name, &record.Checked{Report: data}, false)
	if err != nil && !errors.Is(err, ErrNotAwaited) && c.RunCtx.Err() == nil {
		// The name is sufficient, and a full file system may still accept an empty file.
		c.Log.Warn("cannot publish the check results, only that the checks passed", zap.Error(err))
		err = c.MarkName(signal.NodesDir, name)
	}
	return err
}
