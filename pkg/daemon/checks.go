package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/preflight/nodecheck"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func newChecker(n *node) *lifecycle.Checker {
	checker := &lifecycle.Checker{Publisher: n.Publisher, ID: &n.id, Checks: n.cfg.Checks, Telemetry: n.telemetry, GPUs: n.gpuMonitor}
	if n.cfg.Setup != "" {
		checker.Setup = func(ctx context.Context) error {
			return n.children.RunSetup(ctx, n.cfg.Setup, n.childEnv(n.cfg.Environ, n.launchPlace()), n.cfg.Times.Start)
		}
	}
	return checker
}

// compareNodes compares the nodes of the team when all have passed their checks. Its error is a
// difference because of which the driver must not start, unless spares can replace the nodes that
// differ.
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
		OwnReport: h.checker.Report, ApplyPolicy: h.cfg.Checks.ApplyPolicy, FormatHosts: h.nodeNames, ReadReport: h.readCheckReport, Trail: h.Events, Log: h.Log,
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
	h.handleFailure(differ.Failure, time.Now())
	return nil
}

// readCheckReport reads the report of another node's checks. kind is part of the record's name.
func (h *head) readCheckReport(ctx context.Context, nodeIndex int, kind int64) (report check.Report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.Timing.SilenceTimeout, errDeadline)
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
