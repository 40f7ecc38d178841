package daemon

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
)

// teamPlace is the place of a node in the team.
type teamPlace struct {
	slot        atomic.Pointer[service.Slot] // nil if this node has no place
	isExcluded  atomic.Bool                  // the job continues without this node
	sawOpenGate atomic.Bool                  // it has seen the open gate
}

// isStandby reports whether this node has no part in a running job.
func (p *teamPlace) isStandby() bool { return p.sawOpenGate.Load() && p.slot.Load() == nil }

// launchSlot returns the place of this node in the launch, or nil if the head assigns the places.
func (n *node) launchSlot() *service.Slot {
	if n.cfg.AssignsPlaces() {
		return nil
	}
	return &service.Slot{Place: n.ownNode(), Size: n.id.Size}
}

// TakePlace implements [instances.Host]: it applies the place that the head has assigned. A node that was
// dropped does not come back.
func (n *node) TakePlace(rec *roles.PlanRecord, place, before int) {
	if !n.cfg.AssignsPlaces() || rec.Number < 0 || n.isExcluded.Load() {
		return
	}
	n.Events.LogSeen(signal.SeriesPlan.Name(rec.Number))
	switch {
	case place >= 0:
		if before < 0 {
			n.Log.Info("this node is in the team", zap.Int("place", place), zap.Int("of", len(rec.Offers)))
		}
		n.slot.Store(&service.Slot{Place: place, Size: len(rec.Offers)})
	case before >= 0:
		n.Log.Warn("this node is dropped from the team, and stands by until the end: " + rec.DropReason(n.id.NodeIndex))
		n.stopAfterDrop()
	default:
		n.Log.Info("this node stands by", zap.Int("plan", rec.Number))
	}
}

// awaitGate waits until the gate is open, and then knows whether this node has a place. It returns the cause
// of the end of the run if that comes first.
func (w *worker) awaitGate(ctx context.Context) error {
	if _, err := w.node.ControlWatch.FollowListings(ctx,
		func(l signal.Listing) bool { return l.HasName(signal.NameGateOpen) }); err != nil {
		return context.Cause(w.node.RunCtx)
	}
	w.node.sawOpenGate.Store(true)
	return nil
}

// stopAfterDrop ends all children of this node, because the job continues without it. The daemon
// stays.
func (n *node) stopAfterDrop() {
	n.isExcluded.Store(true)
	n.slot.Store(nil)
	n.stopRoles(&lifecycle.Outcome{})
	n.children.StopSelected(config.AbortGracePeriod, allChildren)
}

// isDispensable reports whether the job may continue without this node after its failure f. If so,
// the head decides.
func (w *worker) isDispensable(f *health.Failure) bool {
	// The roles may have their nodes, and do without this one.
	if w.node.cfg.Roles.AreGiven() && w.node.ControlWatch.LastListing().Newest(signal.SeriesPlan) >= 0 {
		return f.Kind == health.CutOff && w.node.FileSystemSilence() <= lifecycle.UnresponsiveTimeout
	}
	if !w.node.cfg.HasSpares() {
		return false
	}
	if w.node.slot.Load() == nil && w.node.ControlWatch.LastListing().Newest(signal.SeriesPlan) >= 0 {
		return true // a spare, whose failure never matters
	}
	if w.node.sawOpenGate.Load() || w.node.ControlWatch.LastListing().HasName(signal.NameGateOpen) {
		return false
	}
	return !slices.Contains(f.LostNodes, 0) && !membership.IsNotNodeFault(f.Kind)
}

// awaitEndAfterDrop ends all children of this node after its failure f, and returns the published
// end of the run. If none comes, or only this node was asked to end, it returns an orderly end:
// other nodes report the result.
func (w *worker) awaitEndAfterDrop(f *health.Failure) *lifecycle.Outcome {
	w.node.stopAfterDrop()
	w.node.copyServiceLogs(&lifecycle.Outcome{Cause: &f.Failure})
	ctx, cancel := context.WithCancelCause(w.node.HeadWaitCtx)
	defer cancel(nil)
	defer context.AfterFunc(w.node.EndKnownCtx, func() { cancel(context.Cause(w.node.EndKnownCtx)) })()
	ctx, stop := w.node.WithResponsiveShare(ctx, w.node.cfg.Times.Join)
	defer stop()
	if health.IsRequestedEnd(f.Kind) || slices.Contains(f.LostNodes, 0) {
		var enough context.CancelFunc
		within := w.node.Timing.SilenceTimeout + w.node.cfg.Times.DriverGrace
		ctx, enough = context.WithTimeoutCause(ctx, within, errDeadline)
		defer enough()
	}
	w.node.Log.Warn("this node stands aside, and the job may go on without it: " + f.Message)
	w.slowPolling()
	<-ctx.Done()
	if end, ok := errors.AsType[*lifecycle.Outcome](context.Cause(w.node.EndKnownCtx)); ok {
		return end
	}
	return &lifecycle.Outcome{Orderly: true, Name: "dropped", Reason: f.Message}
}
