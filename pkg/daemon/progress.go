package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
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
			membership.AddLastLines(ctx, h.node.Dir, h.node.id.Size, lacks)
			h.node.Log.Info(h.formatWait(lacks, waited))
		}
	}
}

// formatWait describes what the gate waits for.
func (h *head) formatWait(lacks []membership.UnmetStep, waited time.Duration) string {
	format := membership.WaitFormat{Size: h.membership.Count(), Framework: h.node.cfg.Framework.Name(),
		HasSetup: h.node.cfg.SetupRole() != nil, Who: h.node.nodeNames}
	return format.Format(lacks, time.Now(), waited)
}

// unmetConditions returns the conditions of the gate that are not met yet according to listing l.
func (h *head) unmetConditions(l signal.Listing) []membership.UnmetStep {
	required := membership.Requirements{NeedChecks: h.node.cfg.HasNodeChecks(),
		FrameworkPending: h.progress.pollingMembers.Load()}
	if all := h.roleHead(); all != nil {
		required.Roles = all.Progress()
	}
	return required.UnmetSteps(func(state record.State) []int {
		return h.membership.NotKnownGone(h.membership.MissingNodes(l, state))
	})
}

// enforceDeadline ends the job at its deadline. The driver then has its grace period.
func (h *head) enforceDeadline(ctx context.Context) {
	if h.node.cfg.Times.Deadline == 0 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(h.node.RunCtx, cancel)()
	defer cancel()
	began := cmp.Or(h.node.cfg.FirstStart, h.started)
	if ctxutil.SleepContext(ctx, h.node.cfg.Times.Deadline-time.Since(began)) {
		h.node.CancelRun(health.NewFailure(health.JobDeadlinePassed,
			"the --deadline of %s has passed, and %s", textutil.FlagDuration(h.node.cfg.Times.Deadline),
			h.describeUnfinished(ctx)))
	}
}

// describeUnfinished describes, as a clause, what the job was still doing at its deadline.
func (h *head) describeUnfinished(ctx context.Context) string {
	now := h.node.Events.PhaseDurations(time.Now())
	switch last := now[len(now)-1]; {
	case last.Phase != record.PhaseDriver:
		lacks := h.unmetConditions(h.nodeWatch.LastListing())
		membership.AddLastLines(ctx, h.node.Dir, h.node.id.Size, lacks)
		return "the gate was not open: " + h.formatWait(lacks, h.node.Events.SinceStart())
	case len(h.node.cfg.Driver) == 0:
		return "it was not stopped"
	default:
		return fmt.Sprintf("the driver had run for %s of it", textutil.FlagDuration(last.Took.Round(time.Second)))
	}
}

// keepForInspection keeps all services up for a while after the driver has ended (--clean=none),
// until a stop is requested or a service fails. It returns err, the end of the driver.
func (h *head) keepForInspection(ctx context.Context, err error) error {
	end, ended := errors.AsType[*lifecycle.Outcome](err)
	if h.node.cfg.After.Clean != config.CleanNone || !ended || end.Name != health.DriverOutcomeName || end.Requested {
		return err
	}
	h.node.Log.Warn("the driver has ended, and everything else stays up for inspection (--clean=none): "+
		"bringupd stop ends it sooner",
		zap.String("why", end.Reason), zap.Int("code", end.Code), zap.Duration("for", h.node.cfg.After.Look),
		zap.String("run", h.node.Dir.Path()))
	h.node.LogWriteError(h.node.Publish(signal.ControlDir, signal.NameDriverEnded,
		&record.OrderlyEnd{Code: end.Code, Reason: end.Reason, InspectTime: h.node.cfg.After.Look}, false))
	ctxutil.SleepContext(ctx, h.node.cfg.After.Look)
	return err
}
