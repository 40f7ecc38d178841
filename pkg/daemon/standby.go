package daemon

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// followTeam follows the changes of the team, and runs the service of this node's place in it. A
// node without a place stays until the end of the run. The error is the published
// *lifecycle.Outcome, or the failure of this node.
func (w *worker) followTeam(ctx context.Context) error {
	w.node.Events.EnterPhase(record.PhaseStandby)
	w.node.ControlWatch.SpeedUp()
	for seen := -1; ; { // seen is the generation of the newest team that this node has applied
		last, err := w.node.ControlWatch.FollowListings(ctx, func(l signal.Listing) bool {
			return l.Newest(signal.SeriesTeam) > seen || l.HasName(signal.NameGateOpen) &&
				!w.node.placement.SawOpenGate.Load() && seen >= 0
		})
		if err != nil {
			return context.Cause(w.node.RunCtx)
		}
		generation := last.Newest(signal.SeriesTeam)
		if generation <= seen { // the gate is open, and the team does not change any more
			w.node.placement.SawOpenGate.Store(true)
			w.slowPolling()
			if w.node.placement.Slot.Load() != nil {
				w.node.Events.EnterPhase(record.PhaseDriver)
				w.node.reportUp()
				w.node.Background(func(context.Context) {
					if err := w.runLocalRoles(w.node.RunCtx); err != nil {
						w.node.CancelRun(err)
					}
				})
			} else {
				w.node.reportUp()
			}
			continue
		}
		var rec record.Team
		err = w.node.Dir.ReadRecord(ctx, signal.ControlDir, signal.SeriesTeam.Name(generation), &rec)
		if ctx.Err() != nil {
			return context.Cause(w.node.RunCtx)
		}
		if err != nil {
			return health.AsFailure(err)
		}
		w.applyTeam(ctx, &rec)
		seen = generation
	}
}

// applyTeam applies the team in record to this node: it starts, moves or ends the node's service.
func (w *worker) applyTeam(ctx context.Context, rec *record.Team) {
	place := rec.PlaceOf(w.node.id.NodeIndex)
	since, taken := w.node.placement.AssignedSince()
	switch {
	case place < 0 && !taken:
		w.node.Log.Info("this node stands by", zap.Int("generation", rec.Generation))
	case place < 0:
		w.node.Log.Warn("this node is dropped from the team, and stands by until the end: " +
			rec.DropReason(w.node.id.NodeIndex))
		w.stopAfterDrop()
	case w.node.placement.Excluded.Load(): // a node that was dropped does not come back
	case !taken || since != rec.Members[place].SinceGeneration:
		if !taken {
			w.node.Log.Info("this node is in the team", zap.Int("place", place), zap.Int("of", len(rec.Members)))
			w.node.Background(func(context.Context) {
				if err := w.node.serveSandbox(ctx); err != nil && !w.node.placement.Excluded.Load() {
					w.node.CancelRun(err)
				}
			})
		}
		next := &membership.Slot{TeamIndex: place, Size: len(rec.Members),
			Generation: rec.Members[place].SinceGeneration}
		w.node.placement.AssignSlot(ctx, next,
			func(ctx context.Context) error { return w.serveWorkerInPlace(ctx, next) })
	}
}

// serveWorkerInPlace brings up this node's worker service in place, once the head's service is up.
func (w *worker) serveWorkerInPlace(ctx context.Context, place *membership.Slot) error {
	if !w.node.cfg.Framework.HasServices() {
		return nil
	}
	// Start the worker's process in advance, unless the place may change. An error is reported when the
	// head is up.
	if !w.node.cfg.HasSpares() {
		ahead, _ := w.node.workerService(framework.Endpoint{}, place)
		w.node.children.Prestart(ctx, ahead)
	}
	endpoint, err := w.awaitHeadService(ctx)
	if err != nil {
		return err
	}
	return w.node.RunPhase(record.PhaseWorkers, func() error { return w.node.serveWorker(ctx, endpoint, place) })
}

// stopAfterDrop ends all children of this node, because the job continues without it. The daemon
// stays.
func (w *worker) stopAfterDrop() {
	w.node.placement.Excluded.Store(true)
	w.node.placement.ReleaseSlot()
	w.node.stopRoles(&lifecycle.Outcome{})
	w.node.children.StopSelected(config.AbortGracePeriod, allChildren)
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
	if w.node.placement.Slot.Load() == nil && w.node.ControlWatch.LastListing().Newest(signal.SeriesTeam) >= 0 {
		return true // a spare, whose failure never matters
	}
	if w.node.placement.SawOpenGate.Load() || w.node.ControlWatch.LastListing().HasName(signal.NameGateOpen) {
		return false
	}
	return !slices.Contains(f.LostNodes, 0) && !membership.IsNotNodeFault(f.Kind)
}

// awaitEndAfterDrop ends all children of this node after its failure f, and returns the published
// end of the run. If none comes, or only this node was asked to end, it returns an orderly end:
// other nodes report the result.
func (w *worker) awaitEndAfterDrop(f *health.Failure) *lifecycle.Outcome {
	w.stopAfterDrop()
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

// awaitHeadService waits until the head's service is up, and returns its endpoint.
func (w *worker) awaitHeadService(ctx context.Context) (framework.Endpoint, error) {
	var endpoint framework.Endpoint
	err := w.node.RunPhase(record.PhaseHead, func() error {
		within := w.node.cfg.CheckTimeout() + w.node.cfg.Times.Start + w.node.Timing.SilenceTimeout
		ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
		defer cancel()
		w.node.ControlWatch.NotifyChange() // poll at once, because it may be up already
		_, err := w.node.ControlWatch.WaitListing(ctx,
			func(l signal.Listing) bool { return l.HasName(signal.NameHead) })
		if errors.Is(err, errDeadline) {
			return health.NewFailure(health.DeadlinePassed,
				"%s waited %s for the service of the head, %s, which neither came up nor failed",
				w.node.nodeName(w.node.id.NodeIndex), within, w.node.nodeName(0))
		}
		if err != nil {
			return err
		}
		var rec record.Head
		err = w.node.Dir.ReadRecord(ctx, signal.ControlDir, signal.NameHead, &rec)
		if errors.Is(err, errDeadline) {
			return health.NewFailure(health.ShareUnusable, "%v", err)
		}
		if err != nil {
			return err
		}
		endpoint = framework.Endpoint{Address: rec.Address, Env: rec.Env}
		w.node.serviceInfo.Store(&serviceInfo{endpoint: endpoint})
		return nil
	})
	return endpoint, err
}

// launchPlace returns the place of this node in the team, or nil if the head assigns the places.
func (n *node) launchPlace() *membership.Slot {
	if n.cfg.AssignsPlaces() {
		return nil
	}
	return &membership.Slot{TeamIndex: n.ownNode(), Size: n.id.Size}
}

// workerService returns the framework's worker service for this node in a place, or nil if it has
// none.
func (n *node) workerService(endpoint framework.Endpoint, place *membership.Slot) (*framework.Service, error) {
	self, err := n.describeForFramework(n.cfg.Framework, place)
	if err != nil {
		return nil, err
	}
	service, err := framework.Cluster{Framework: n.cfg.Framework, Endpoint: endpoint}.WorkerService(self)
	if service != nil {
		service.Env = n.childEnv(service.Env, place)
	}
	return service, err
}

// serveWorker starts the node's worker service, if there is one, and publishes that this node is
// up in the place.
func (n *node) serveWorker(ctx context.Context, endpoint framework.Endpoint, place *membership.Slot) error {
	service, err := n.workerService(endpoint, place)
	if err != nil {
		return err
	}
	if service != nil {
		n.placement.SetService(service.Name)
		err = n.children.StartService(ctx, service, health.ServiceDied, n.cfg.Times.Start, func(f *health.Failure) {
			if n.placement.Slot.Load() == place { // otherwise the daemon has ended it for another place
				n.CancelRun(f)
			}
		})
	}
	if err != nil {
		return err
	}
	return n.PublishState(signal.ServiceUpState(place.Generation))
}

func (n *node) describeForFramework(f framework.Framework, place *membership.Slot) (framework.Node, error) {
	address, err := n.cfg.Address()
	if err != nil {
		return framework.Node{}, health.NewFailure(health.Launch, "%v; give --interface", err)
	}
	if place == nil {
		place = new(membership.Slot) // the head, before a team has been chosen
	}
	temp, err := n.privateDir.EnsureShortDir(framework.TraitsOf(f).MaxTempDir)
	if n.RunCtx.Err() != nil {
		return framework.Node{}, context.Cause(n.RunCtx)
	}
	if err != nil {
		return framework.Node{}, health.NewFailure(health.CheckEnvironment,
			"cannot create a private directory on %s: %v", n.nodeName(n.id.NodeIndex), err)
	}
	self := framework.Node{
		RunName: n.Dir.Name(), TeamIndex: place.TeamIndex, Size: place.Size,
		LaunchIndex: n.id.NodeIndex, Host: n.id.Host, Address: address.Address,
		TempDir: temp, CPUs: n.id.CPUs, GPUs: n.id.GPUs,
		MaxMemory:    framework.GrantedMemory(n.cfg.Environ),
		NVLinkDomain: n.gpuMonitor.NVLinkDomain(), Environ: n.cfg.Environ,
	}
	env, err := n.privateDir.WriteCredentials(f, self, n.Dir.DeriveSecret(f.Name()))
	if err != nil {
		return self, health.NewFailure(health.ServiceDied,
			"cannot protect the services of %s from other users: %v", n.nodeName(n.id.NodeIndex), err)
	}
	self.Environ = envlist.With(self.Environ, env)
	return self, nil
}
