package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/restart"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// servePeerLinks accepts peer links, and connections of callers that request commands, if peer links
// are offered.
func (h *head) servePeerLinks() {
	if h.peerLinks == nil {
		return
	}
	cfg := peerlink.Config{Key: h.Dir.DeriveSecret(peerlink.SecretName), Nodes: h.id.CountMembers(),
		HeartbeatInterval: h.cfg.Times.LinkHeartbeatInterval()}
	h.peerLinks.Prepare(cfg, &workerLinkHandler{h})
	h.peerLinks.HandleStreams(peerlink.RendezvousStream, h.rendezvous.ServeNode)
	h.peerLinks.HandleStreams(peerlink.CommandStream, h.requests.ServeConn)
	h.peerLinks.HandleStreams(peerlink.CallerStream, h.requests.ServeCaller)
	h.peerLinks.HandleReports(h.acceptReport)
	h.Notify = h.peerLinks.NotifyWorkers
	h.Background(h.peerLinks.Run)
	// Evaluate the heartbeats of the links, also while no poll of the file system succeeds.
	h.Background(func(ctx context.Context) {
		tick := time.NewTicker(h.cfg.Times.LinkHeartbeatInterval() / 2)
		defer tick.Stop()
		outage := lifecycle.OutageReporter{Monitor: &h.Monitor, NodeNames: h.nodeNames}
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				h.Links.RecordTick(now)
				h.CheckNetworkLink(now)
				h.checkLinkLiveness(now)
				outage.LogChanges(now)
			}
		}
	})
}

// acceptReport takes over a report of a member, as if a listing had shown the name.
func (h *head) acceptReport(member int, name string, content []byte) {
	if err := h.Dir.AcceptReport(member, name, content); err != nil {
		h.Log.Warn("a report is not accepted", zap.Error(err))
	}
}

// workerLinkHandler handles the events of the peer links to workers.
type workerLinkHandler struct{ *head }

// WorkerConnected records that a worker is connected. If the choice of the team waits for that, or
// the worker was connected before, it also polls Nodes: for the choice, and for the records that the
// worker has published while the head could not be notified.
func (p *workerLinkHandler) WorkerConnected(nodeIndex int) {
	known := p.Links.Peer(nodeIndex, time.Now()).Known
	p.Links.SetConnected(nodeIndex, time.Now())
	if known || p.membership.AwaitsLink() {
		p.nodeWatch.NotifyChange()
	}
}

// WorkerHeartbeat records a heartbeat of a worker, and whether the worker's file system is
// unresponsive.
func (p *workerLinkHandler) WorkerHeartbeat(nodeIndex int, shareUnresponsive bool) {
	p.Links.RecordHeartbeat(nodeIndex, shareUnresponsive, time.Now())
}

// WorkerNotified handles a worker's notification of a new record: the head polls Nodes.
func (p *workerLinkHandler) WorkerNotified(int) { p.nodeWatch.NotifyChange() }

// WorkerExit records that a service of a worker has ended.
func (p *workerLinkHandler) WorkerExit(int) { _ = p.remoteExits.Add() }

// WorkerGone handles the end of a peer link. If it was closed without a goodbye message, the
// daemon has died. If it broke, the heartbeat files decide.
func (p *workerLinkHandler) WorkerGone(nodeIndex int, how peerlink.CloseReason) {
	known := p.Links.Peer(nodeIndex, time.Now())
	p.Links.SetDisconnected(nodeIndex, how)
	p.nodeWatch.NotifyChange()
	switch how {
	case peerlink.Closed:
		f := health.NewFailure(health.DaemonDied,
			"the daemon of %s has died: its host has closed the peer link", p.nodeName(nodeIndex))
		p.markDaemonDead(f, nodeIndex, known.ShareUnresponsive, time.Now().Add(-peerlink.ReconnectTimeout))
	case peerlink.Goodbye:
		left := time.Now()
		p.Background(func(ctx context.Context) { p.awaitSilentExit(ctx, nodeIndex, known.ShareUnresponsive, left) })
	}
}

// markDaemonDead records that a worker's daemon has died since a time, unless the worker has
// published its end, or the result is final. If its file system was unresponsive, its host hangs.
func (h *head) markDaemonDead(f *health.Failure, nodeIndex int, shareUnresponsive bool, since time.Time) {
	if h.nodeWatch.LastListing().IsIn(nodeIndex, record.StateDone, record.StateFailed) {
		return
	}
	if shareUnresponsive {
		f = health.NewFailure(health.HostHangs,
			"%s hangs: its mount of the shared file system has not responded, and its daemon has ended",
			h.nodeName(nodeIndex))
	}
	now := time.Now()
	f.RecordDelay = now.Sub(since)
	h.recordLoss(f, []int{nodeIndex}, now)
}

// awaitSilentExit records that a worker's daemon has died if it has said goodbye, but does not
// publish its end in time: it cannot write, or the head cannot read while the job runs without the
// file system.
func (h *head) awaitSilentExit(ctx context.Context, nodeIndex int, shareUnresponsive bool, since time.Time) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.Timing.SilenceTimeout, errDeadline)
	defer cancel()
	// Wait for two polls: the first may have started before the worker's last record appeared.
	looking, stop := h.WithResponsiveShare(ctx, h.Timing.SilenceTimeout/2)
	defer stop()
	before := h.nodeWatch.LastListing().Polls
	_, err := h.nodeWatch.FollowListings(looking, func(l signal.Listing) bool { return l.Polls > before+1 })
	if err == nil || h.ToleratesShareOutage(time.Now()) &&
		errors.Is(context.Cause(looking), lifecycle.ErrUnresponsive) {
		f := health.NewFailure(health.HostHangs,
			"the daemon of %s has ended and could not record this in the run directory: see its "+
				"standard error", h.nodeName(nodeIndex))
		h.markDaemonDead(f, nodeIndex, shareUnresponsive, since)
	}
}

// followNodes evaluates each listing of Nodes until ctx ends: it reads published failures,
// declares silent peers lost, and chooses the team.
func (h *head) followNodes(ctx context.Context) {
	daemons := health.NewDetector(h.Timing, h.Links)
	standbys := health.NewDetector(lifecycle.StandbyTiming(h.Timing), h.Links)
	read, lost := make(map[string]bool), make(map[int]bool)
	note := h.Events.NodesObserver()
	_, _ = h.nodeWatch.FollowListings(ctx, func(l signal.Listing) bool {
		note(l)
		for _, state := range []record.State{record.StateFailed, record.StateSandboxFailed} {
			for _, nodeIndex := range append(l.NodesIn(state), l.OfSteps().NodesIn(state)...) {
				h.readFailure(ctx, nodeIndex, state, l, read)
			}
		}
		h.membership.ReleaseHeld(health.PassedNodes(l), h.cfg.EarlierFailures, h.handleFailure)
		alive := h.membership.MonitoredPeers(h.membership.ExpectedPeers(l), false)
		silent := daemons.RecordPoll(alive, l.PolledAt)
		over := h.RunCtx.Err() != nil
		// At the end, silence alone may be due to this node's own mount.
		if over && !h.settling.Load() {
			h.silentAtEnd.Store(new(silent))
			silent = h.Links.EndSilent(silent, l.PolledAt)
		}
		if silent = health.NewlySilent(silent, lost); len(silent) > 0 {
			h.declarePeersLost(ctx, silent, daemons, l.PolledAt)
		}
		if over {
			return false
		}
		resting := h.membership.MonitoredPeers(h.membership.ExpectedPeers(l), true)
		if silent := standbys.RecordPoll(resting, l.PolledAt); len(silent) > 0 {
			h.declarePeersLost(ctx, silent, standbys, l.PolledAt)
		}
		h.updateTeam(l)
		return false
	})
}

// readFailure reads a failure that a node has published, once, and records it. read has the names
// that have been read; the head's own failures are known.
func (h *head) readFailure(ctx context.Context, nodeIndex int, state record.State, l signal.Listing,
	read map[string]bool) {
	name := signal.NodeName(nodeIndex, h.id.Size, state)
	if read[name] || name == signal.NodeName(0, h.id.Size, record.StateFailed) {
		return
	}
	read[name] = true
	ctx, cancel := context.WithTimeoutCause(ctx, h.Timing.SilenceTimeout, errDeadline)
	defer cancel()
	var rec record.Failure
	if err := h.Dir.ReadRecord(ctx, signal.NodesDir, name, &rec); err != nil {
		if h.WorkCtx.Err() != nil || signal.IsStalled(err) {
			read[name] = false // read it again when this node's mount answers
			return
		}
		kind := health.Internal
		if errors.Is(err, errDeadline) {
			kind = health.ShareUnusable
		}
		rec = h.unreadableRecordFailure(nodeIndex, kind, "%s failed, and its record cannot be read: %v", err)
	}
	// A failed sandbox matters only if too few are left.
	if state == record.StateSandboxFailed && !h.lacksSandboxes(l.NodesIn(record.StateSandboxFailed)) {
		h.Log.Warn("a sandbox is lost that the gate does not require", zap.String("what", rec.Message))
		return
	}
	h.handleFailure(rec, l.SeenAt)
}

// unreadableRecordFailure returns the failure that replaces a record that cannot be read. format
// has the verbs for the name of the node and for err.
func (h *head) unreadableRecordFailure(nodeIndex int, kind health.Kind, format string, err error) record.Failure {
	rec := health.NewFailure(kind, format, h.nodeName(nodeIndex), err).Failure
	rec.NodeIndex, rec.Host = nodeIndex, h.id.HostOf(nodeIndex)
	return rec
}

// declarePeersLost declares silent peers lost. If all are silent, or one is known only by its
// files, the reason may be the file system: a write must first prove that it works.
func (h *head) declarePeersLost(ctx context.Context, silent []int, liveness *health.Detector, at time.Time) {
	byFiles := func(nodeIndex int) bool { return h.Links.LossKind(nodeIndex, time.Now()) == health.PeerLost }
	if h.isEveryPeer(silent) || slices.ContainsFunc(silent, byFiles) {
		if err := h.verifyShareWritable(ctx); err != nil {
			h.CancelRun(health.AsFailure(err))
			return
		}
	}
	h.recordSilence(silent, liveness.SilenceOf(silent[0]), at)
}

// verifyShareWritable verifies that this node can write to the shared file system.
func (h *head) verifyShareWritable(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, h.Timing.SilenceTimeout,
		errors.New("all peers are silent, and so is the shared file system"))
	defer cancel()
	return h.Dir.WriteHeartbeat(ctx, signal.ControlDir)
}

// followRequests handles records in Control that others write: a request to stop, and the abort
// record of a worker that has declared the head lost.
func (h *head) followRequests(ctx context.Context) {
	_, _ = h.ControlWatch.FollowListings(ctx, func(l signal.Listing) bool {
		for _, nodeIndex := range l.NodesWithAbort() {
			if nodeIndex != 0 {
				return h.endByPeerAbort(ctx, nodeIndex, l.PolledAt)
			}
		}
		if l.HasName(signal.NameStop) && h.RunCtx.Err() == nil {
			code := 0
			if h.cfg.HasPrimary() && !h.id.Launcher.Facts().RelaunchesEachDaemon {
				code = health.StoppedOutcome.Code
			}
			h.CancelRun(lifecycle.OutcomeOfStop(code))
		}
		return false
	})
}

// endByPeerAbort ends the run by the abort record of a worker, and reports whether it has: not
// while the file system is unresponsive.
func (h *head) endByPeerAbort(ctx context.Context, nodeIndex int, at time.Time) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, h.Timing.SilenceTimeout, errDeadline)
	defer cancel()
	var rec record.Abort
	err := h.Dir.ReadRecord(ctx, signal.ControlDir, signal.AbortName(nodeIndex, h.id.Size), &rec)
	if h.WorkCtx.Err() != nil || signal.IsStalled(err) {
		return false
	}
	if err != nil {
		rec.Cause = h.unreadableRecordFailure(nodeIndex, health.Aborted,
			"%s has aborted the run, and its record cannot be read: %v", err)
	}
	h.recordFailure(health.ObservedFailure{Failure: rec.Cause, ObservedAt: at})
	return true
}

// handleFailure records a failure, and ends the run if the job cannot continue without the node.
// Failures that were tolerated before count, too, then.
func (h *head) handleFailure(rec record.Failure, at time.Time) {
	if seen := (health.ObservedFailure{Failure: rec, ObservedAt: at}); !h.tolerateFailure(seen) {
		h.failures.Add(nil, h.membership.TakeExcused()...)
		h.recordFailure(seen)
	}
}

// tolerateFailure reports whether the job does not need the node that has failed, and logs that
// the node is dropped.
func (h *head) tolerateFailure(seen health.ObservedFailure) bool {
	goesOn, news := h.membership.TolerateFailure(seen, h.id.HostOf)
	if !goesOn || !news {
		return goesOn
	}
	h.Events.WriteEvent(eventlog.NodeDropped,
		eventlog.Fields{FailureFields: eventlog.FailureFields{Subject: &seen.NodeIndex, Kind: seen.Kind,
			What: seen.Message}})
	what := "a node is dropped"
	if len(seen.LostNodes) > 0 && seen.LostNodes[0] >= h.id.Size {
		what = "a daemon is lost"
	}
	h.Log.Warn(what+", and the job continues: "+seen.Message, zap.String("kind", string(seen.Kind)))
	h.nodeWatch.NotifyChange()
	return true
}

// recordFailure records a failure for the verdict, and ends the run by it, at once: nothing may
// see one without the other.
func (h *head) recordFailure(seen health.ObservedFailure) {
	record := seen.Failure
	h.Events.WriteEvent(eventlog.FailureReceived,
		eventlog.Fields{FailureFields: eventlog.FailureFields{Subject: &record.NodeIndex,
			Kind: record.Kind, What: record.Message}})
	h.failures.Add(func() { h.CancelRun(&lifecycle.ObservedFailure{Record: record}) }, seen)
}

// decideOutcome returns the outcome of the run: err, if it is an orderly end, and otherwise the
// verdict on all failures. opened is how long the gate has been open.
func (h *head) decideOutcome(err error, opened time.Duration) *lifecycle.Outcome {
	var end *lifecycle.Outcome
	if errors.As(err, &end) && end.Orderly {
		h.resultFinal.Store(true)
		end.Progress = h.steps.Summary()
		return end
	}
	// Record the failure of the sequence, unless it is one that was recorded before.
	phase := h.Events.CurrentPhase()
	h.CancelRun(err)
	kind, known := lifecycle.FailureKind(err)
	if !known {
		f := h.publishFailure(err, record.StateFailed)
		h.recordFailure(health.ObservedFailure{Failure: f.Failure, ObservedAt: time.Now()})
	}
	// Wait for failures that may be the cause, and decide.
	h.awaitFreshListing()
	within := health.LossWaitTime(kind, h.Timing.SilenceTimeout, h.cfg.Times.LinkHeartbeatInterval())
	h.awaitLivenessSettled(h.WorkCtx, within, time.Time{})
	h.settleRankFailures()
	end = lifecycle.OutcomeOfVerdict(h.verdict())
	end.Phase, end.GateOpenTime, end.Progress = phase, opened, h.steps.Summary()
	return restart.Decide(&h.cfg, end, h.EndRequested.Load())
}

// verdict returns the verdict on all failures so far.
func (h *head) verdict() health.Verdict {
	passed := health.PassedNodes(h.nodeWatch.LastListing())
	return h.failures.Verdict(passed, h.cfg.EarlierFailures, h.id.HostOf)
}

// settleRankFailures waits while the known failures are not sufficient for a verdict. See
// health.UndecidedUntil.
func (h *head) settleRankFailures() {
	undecided := func() bool {
		h.failures.Add(nil, h.membership.TakeHeld()...)
		passed := health.PassedNodes(h.nodeWatch.LastListing())
		return time.Now().Before(h.failures.UndecidedUntil(passed, h.id.Size))
	}
	for first := true; undecided() && ctxutil.SleepContext(h.WorkCtx, statePollInterval); first = false {
		if first {
			h.nodeWatch.SpeedUp()
		}
	}
}

// awaitFreshListing waits for a new listing of Nodes, because a cause may be published a moment
// after its consequence. It waits for two polls: the first may have started before.
func (h *head) awaitFreshListing() {
	if h.FileSystemSilence() > lifecycle.UnresponsiveTimeout {
		return
	}
	ctx, cancel := context.WithTimeoutCause(h.WorkCtx,
		min(h.Timing.MaxPollInterval/2, lifecycle.UnresponsiveTimeout/2), errDeadline)
	defer cancel()
	before := h.nodeWatch.PollsBegun()
	h.nodeWatch.NotifyChange()
	_, _ = h.nodeWatch.FollowListings(ctx, func(l signal.Listing) bool { return l.Polls > before })
}

// settlePeerStates waits, after a failure of the driver, until every peer has answered or is lost:
// a loss may be the cause. It reports whether the run continues.
func (h *head) settlePeerStates(ctx context.Context) bool {
	if h.peerLinks != nil {
		asked := time.Now()
		h.peerLinks.RequestHeartbeats()
		// By then even a peer that died just after a heartbeat has been declared lost.
		h.awaitLivenessSettled(ctx, h.Timing.SilenceTimeout+2*h.Timing.MaxPollInterval, asked)
	}
	return ctx.Err() == nil
}

// awaitLivenessSettled waits until every peer has sent a recent heartbeat or is lost, at most for
// within: a failure may be the consequence of a loss that is not certain yet. asked is when all
// were asked for a heartbeat, or zero.
func (h *head) awaitLivenessSettled(ctx context.Context, within time.Duration, asked time.Time) {
	if h.peerLinks == nil || h.FileSystemSilence() > lifecycle.UnresponsiveTimeout || within == 0 {
		return
	}
	h.settling.Store(true)
	defer h.settling.Store(false)
	h.nodeWatch.SpeedUp()
	for end := time.Now().Add(within); time.Now().Before(end) && h.hasUncertainPeer(time.Now(), asked); {
		if !ctxutil.SleepContext(ctx, statePollInterval) {
			return
		}
	}
}

// hasUncertainPeer reports whether it is uncertain for any peer that is not lost if it is alive. See
// [health.Links.IsUncertain].
func (h *head) hasUncertainPeer(now, asked time.Time) bool {
	lost := h.failures.LostNodes()
	limit := h.Timing.SilenceTimeout + h.Timing.MaxPollInterval
	for nodeIndex := range h.monitoredPeers() {
		if !lost[nodeIndex] && h.Links.IsUncertain(nodeIndex, limit, now, asked) {
			return true
		}
	}
	return false
}

// lateLossTimeout is how long the result may wait for nodes that were lost together with the one
// in the verdict: on a busy machine a kernel closes connections one after the other.
const lateLossTimeout = 500 * time.Millisecond

// mergeLateLosses adds losses that are detected until torn is closed, or lateLossTimeout has
// passed, to the consequences in end, if its cause is a loss.
func (h *head) mergeLateLosses(end *lifecycle.Outcome, torn <-chan struct{}) {
	defer h.resultFinal.Store(true)
	if end.Orderly || !health.IsPeerLoss(end.Cause.Kind) {
		return
	}
	ctxutil.AwaitDoneFor(torn, lateLossTimeout)
	end.MergeLosses(h.verdict())
}
