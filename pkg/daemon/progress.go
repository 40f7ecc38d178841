package daemon

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// progressInterval is the interval at which the head decides whether to log the progress.
const progressInterval = time.Second

// logGateProgress logs what the gate still waits for, at growing intervals, until ctx ends.
func (h *head) logGateProgress(ctx context.Context) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	var v membership.ReminderSchedule
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		lacks := h.unmetConditions(h.nodeWatch.LastListing())
		if waited, due := v.CheckDue(lacks, time.Now()); due {
			h.Log.Info(membership.FormatWait(lacks, h.membership.Count(), waited, h.cfg.Framework.Name(), h.nodeNames, h.waitReasons(ctx, lacks)))
		}
	}
}

// unmetConditions returns the conditions of the gate that are not met yet according to listing l.
func (h *head) unmetConditions(l signal.Listing) []membership.UnmetStep {
	asked := membership.Requirements{
		NeedChecks: h.cfg.HasNodeChecks(), NeedSandboxes: h.cfg.Sandbox.IsRequested() && !h.hasEnoughSandboxes(l),
		NeedServices: h.cfg.Framework.HasServices(), HeadServiceUp: h.progress.serviceUp.Load(), FrameworkPending: h.progress.pollingMembers.Load(),
	}
	return asked.UnmetSteps(func(state record.State) []int { return h.membership.NotKnownGone(h.membership.MissingNodes(l, state)) })
}

// hasEnoughSandboxes reports whether enough sandboxes are ready for the gate.
func (h *head) hasEnoughSandboxes(l signal.Listing) bool {
	return h.cfg.Sandbox.Require.IsMet(h.membership.FilterMembers(signal.WithoutNodes(l.NodesIn(record.StateSandboxReady), l.NodesIn(record.StateSandboxFailed))), h.membership.Count())
}

// waitReasons returns, by phase, the reasons for waiting that the nodes have published. It returns
// nil if the file system is unresponsive.
func (h *head) waitReasons(ctx context.Context, lacks []membership.UnmetStep) map[record.Phase]string {
	if h.FileSystemSilence() > lifecycle.UnresponsiveTimeout {
		return nil
	}
	look := membership.ReasonReader{Dir: h.Dir, Size: h.id.Size, SeparateStep: h.cfg.Sandbox.Step, HostNames: h.nodeNames, Timeout: lifecycle.UnresponsiveTimeout}
	return look.ReadReasons(ctx, lacks)
}
