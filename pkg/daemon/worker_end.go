package daemon

import (
	"cmp"
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
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// headLinkHandler handles the events of a worker's peer link to the head.
type headLinkHandler struct{ *worker }

// HeadConnected records that the link is up. The head's first heartbeat follows at once.
func (p *headLinkHandler) HeadConnected() {
	p.node.Links.SetConnected(0, time.Now())
	p.link.isNew.Store(true)
	p.node.Events.WriteEvent(eventlog.LinkChanged, eventlog.Fields{LinkFields: eventlog.LinkFields{Up: new(true)}})
	p.link.connectedOnce.Do(func() { close(p.link.connected) })
	p.node.Reports.SendUnwritten()
}

// HeadHeartbeat records a heartbeat of the head. At a notification, and after the first one of a
// connection, the node polls Control. The polls of many nodes are spread over time at random.
func (p *headLinkHandler) HeadHeartbeat(poll bool) {
	p.node.Links.RecordHeartbeat(0, false, time.Now())
	within := time.Duration(p.node.id.Size) * pollCost
	if p.node.id.Size <= maxSimultaneousPolls {
		within = 0
	}
	switch first := p.link.isNew.Swap(false); {
	case poll:
		p.node.ControlWatch.NotifyChangeWithin(within)
	case first:
		p.node.ControlWatch.PollOnceWithin(within)
	}
}

// HeadGone handles the end of the peer link to the head. The head may have published the end of the
// run, so the node polls for that.
func (p *headLinkHandler) HeadGone(how peerlink.CloseReason) {
	p.node.Links.SetDisconnected(0, how)
	s := lifecycle.HeadSituation{Event: lifecycle.HeadLinkEnded,
		EndKnown: p.node.EndKnownCtx.Err() != nil,
		Link:     health.PeerState{Known: true, CloseReason: how}}
	if lifecycle.NextHeadAction(s) == lifecycle.StopWaiting {
		p.node.CancelHeadWait(errHeadLeft)
		return
	}
	p.node.Events.WriteEvent(eventlog.LinkChanged,
		eventlog.Fields{LinkFields: eventlog.LinkFields{Up: new(false), Reason: how.String()}})
	p.node.ControlWatch.SpeedUp()
	p.node.ControlWatch.NotifyChange()
	f := p.headLoss(0).Failure()
	p.node.Background(func(ctx context.Context) { p.confirmHeadLoss(ctx, s.Link, f) })
}

// errHeadLeft is the cause of the end of waiting for a head that has ended in order.
var errHeadLeft = errors.New("the head has ended normally")

// DuplicateDaemon handles the head's refusal of this daemon because another one of its node is
// connected.
func (p *headLinkHandler) DuplicateDaemon(reason string) {
	p.node.CancelRun(p.newDuplicateError(reason))
}

// followControl evaluates each listing of Control. It ends this node's part in the run when the
// end is published, and when the head's heartbeats stop; after a published end it then stops
// waiting for the head.
func (w *worker) followControl(ctx context.Context) {
	liveness := health.NewDetector(w.node.Timing, w.node.Links)
	ends := false
	_, _ = w.node.ControlWatch.FollowListings(ctx, func(l signal.Listing) bool {
		w.node.Events.LogControl(l, w.node.id.Size)
		silent := len(liveness.RecordPoll(map[int]int64{0: l.Heartbeats()[0]}, l.PolledAt)) > 0
		ends = ends || w.checkPublishedEnd(ctx, l, silent)
		if silent {
			s := lifecycle.HeadSituation{Event: lifecycle.HeadSilent, EndKnown: ends}
			w.endByHeadLoss(ctx, s, w.classifyHeadLoss(ctx, liveness.SilenceOf(0)))
		}
		return silent && ends
	})
}

// checkPublishedEnd reports whether the listing shows the end of the run, and ends this node by it.
// silent states that the head has given no sign of life for the silence timeout.
func (w *worker) checkPublishedEnd(ctx context.Context, l signal.Listing, silent bool) bool {
	s := lifecycle.HeadSituation{Event: lifecycle.ControlListed,
		Link: w.node.Links.Peer(0, time.Now()), HeadLost: silent || w.deciding.Load(),
		Orderly: l.HasName(signal.NameOrderlyEnd), Aborts: l.NodesWithAbort()}
	decided := lifecycle.NextHeadAction(s)
	switch decided {
	case lifecycle.TakeOrderlyEnd:
		return w.handleDrain(ctx)
	case lifecycle.KeepWaiting:
		return false
	}
	var rec record.Abort
	err := w.node.readRecord(ctx, signal.ControlDir, signal.AbortName(s.Aborts[0], w.node.id.Size), &rec)
	if signal.IsStalled(err) {
		return false // the next call reads it, when this node's mount answers
	}
	if err != nil {
		rec = record.Abort{Code: health.OutcomeOfKind(health.Aborted).Code, Outcome: string(health.Aborted)}
		rec.Cause = health.AsFailure(err).Failure
	}
	if decided == lifecycle.TakeHeadLoss && !slices.Contains(rec.Cause.LostNodes, 0) {
		return false
	}
	end := lifecycle.OutcomeOfAbort(rec)
	end.ByHead = decided == lifecycle.TakeHeadAbort
	w.node.finishWith(end)
	return true
}

// handleDrain ends this node by the orderly end of the run, and reports whether it has. Its exit
// code is 0, but the driver's if the launcher relaunches each failed task.
func (w *worker) handleDrain(ctx context.Context) bool {
	end := lifecycle.OrderlyOutcome()
	if w.node.id.Launcher.Facts().RelaunchesEachDaemon {
		var rec record.OrderlyEnd
		switch err := w.node.readRecord(ctx, signal.ControlDir, signal.NameOrderlyEnd, &rec); {
		case signal.IsStalled(err):
			return false
		case err != nil:
			// It may be an empty file, which has no code. With a failure the launcher restarts the daemon,
			// which then learns how the run has ended.
			rec.Code = health.OutcomeOfKind(health.Aborted).Code
		}
		end.Code = rec.Code
	}
	w.node.finishWith(end)
	return true
}

// endByHeadLoss carries out what follows from f, the loss of the head, in a situation.
func (w *worker) endByHeadLoss(ctx context.Context, s lifecycle.HeadSituation, f *health.Failure) {
	s.Kind = f.Kind
	switch lifecycle.NextHeadAction(s) {
	case lifecycle.KeepWaiting:
		return
	case lifecycle.StopWaiting:
		w.node.CancelHeadWait(f)
		return
	case lifecycle.DeclareUnverified:
		f.LostNodes = []int{0}
		w.node.CancelRun(f)
		return
	case lifecycle.DeclareHeadLost:
		if err := w.node.WriteHeartbeat(ctx, signal.NodesDir); err != nil {
			w.node.CancelRun(health.AsFailure(err))
			return
		}
		f.LostNodes = []int{0}
	case lifecycle.DeclareCutOff: // f names this node as the lost one
	}
	if w.node.RunCtx.Err() != nil {
		w.node.CancelHeadWait(f)
	}
	w.node.CancelRun(f)
}

// headLoss returns what this node knows about the head, which has given no sign of life for quiet.
// Launchers that do not name hosts leave that of the head to its record.
func (w *worker) headLoss(quiet time.Duration) health.HeadLoss {
	head := launcher.NodeLabel(0, cmp.Or(w.node.id.HostOf(0), w.headHost))
	return health.HeadLoss{Head: head, Observer: w.node.nodeName(w.node.id.NodeIndex), Quiet: quiet,
		Link: w.node.Links.SilentPeer(0, time.Now())}
}

// classifyHeadLoss returns the failure that the head has been silent for quiet. It classifies the loss
// according to the peer link.
func (w *worker) classifyHeadLoss(ctx context.Context, quiet time.Duration) *health.Failure {
	loss := w.headLoss(quiet)
	if w.link != nil && loss.Link.Known {
		if f := w.node.LinkDownFailure(); f != nil {
			return f
		}
		loss.Acknowledges = w.link.worker.TCPState().Acknowledges
	} else if w.link != nil {
		loss.PortClosed = w.link.worker.IsHeadPortClosed(ctx)
	}
	return loss.Failure()
}

// confirmHeadLoss finds out by further polls whether the head is lost, as failure f, since the peer
// link has ended. A reset is less certain than a close, because a device in the network may reset a
// connection and refuse the next one: then the head's heartbeats must have stopped, too.
func (w *worker) confirmHeadLoss(ctx context.Context, link health.PeerState, f *health.Failure) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.node.Timing.SilenceTimeout, errDeadline)
	defer cancel()
	looking, stop := w.node.WithResponsiveShare(ctx, w.node.Timing.SilenceTimeout/2)
	defer stop()
	s := lifecycle.HeadSituation{Event: lifecycle.HeadLossSuspected, Link: link}
	before, quiet := w.node.ControlWatch.LastListing(), time.Duration(0)
	if link.IsBroken() {
		quiet = w.node.Timing.SilenceTimeout / 2
	}
	beat, since := before.Heartbeats()[0], time.Now()
	_, _ = w.node.ControlWatch.WaitListing(looking, func(l signal.Listing) bool {
		if newest := l.Heartbeats()[0]; newest > beat {
			beat, since = newest, l.PolledAt
		}
		if head := w.node.Links.Peer(0, l.PolledAt); head.Connected && head.LastCounted.After(since) {
			since = head.LastCounted // it is connected again, and sends heartbeats
		}
		s.Polls, s.Quiet = l.Polls-before.Polls, l.PolledAt.Sub(since) >= quiet
		return lifecycle.NextHeadAction(s) != lifecycle.KeepWaiting
	})
	s.ShareSilent = errors.Is(context.Cause(looking), lifecycle.ErrUnresponsive)
	s.OutlastsShare = w.node.Links.IsRunning() && w.node.cfg.Times.ToleratesShareOutage()
	s.EndKnown = w.node.EndKnownCtx.Err() != nil
	w.endByHeadLoss(ctx, s, f)
}

// negotiateOutcome returns the outcome by which this node ends. It publishes a failure of this
// node and waits for the head's outcome, because all nodes exit with one code; if there is none,
// this node publishes its own.
func (w *worker) negotiateOutcome(err error) *lifecycle.Outcome {
	var end *lifecycle.Outcome
	if errors.As(err, &end) {
		return end
	}
	f := w.node.publishFailure(err, record.StateFailed)
	if errors.As(context.Cause(w.node.EndKnownCtx), &end) {
		return end
	}
	w.node.Log.Info(f.Message, zap.String("kind", string(f.Kind)))
	if w.isDispensable(f) {
		return w.awaitEndAfterDrop(f)
	}
	if published := w.awaitHeadOutcome(f); published != nil {
		return published
	}
	// There is none, so the head is lost or out of reach: this node decides.
	end = lifecycle.OutcomeOfVerdict(health.DecideVerdict(w.withHeadLoss(f), w.node.id.HostOf))
	end.RankRestarts = w.node.rankRestartTimes()
	end = restart.Decide(&w.node.cfg, end, w.node.EndRequested.Load())
	end.Phase = f.Phase
	if published := w.publishResultAsHead(end); published != nil {
		return published
	}
	_ = w.node.publishAbort(end) // publishAbort logs the error
	return end
}

// withHeadLoss returns the failures for the verdict: f, and the loss of the head if f is a signal
// within a heartbeat interval of it: a launcher ends the other tasks as soon as one is killed.
func (w *worker) withHeadLoss(f *health.Failure) []health.ObservedFailure {
	all := []health.ObservedFailure{{Failure: f.Failure, ObservedAt: f.WrittenAt}}
	lost, ok := errors.AsType[*health.Failure](context.Cause(w.node.HeadWaitCtx))
	if ok && slices.Contains(lost.LostNodes, 0) && health.IsRequestedEnd(f.Kind) &&
		time.Since(f.WrittenAt) <= w.node.cfg.Times.LinkHeartbeatInterval() {
		record := lost.Failure
		record.Header, record.Phase = w.node.recordHeader(), f.Phase
		all = append(all, health.ObservedFailure{Failure: record, ObservedAt: time.Now()})
	}
	return all
}

// awaitHeadOutcome waits for the outcome that the head publishes for failure f of this node. It
// returns nil if the head is lost, the file system is unresponsive, or the time is over.
func (w *worker) awaitHeadOutcome(f *health.Failure) *lifecycle.Outcome {
	s := lifecycle.HeadSituation{Event: lifecycle.NodeFailed, Kind: f.Kind,
		ShareSilent: w.node.FileSystemSilence() > lifecycle.UnresponsiveTimeout}
	if lifecycle.NextHeadAction(s) != lifecycle.AwaitHead {
		return nil
	}
	within, limit := w.node.Timing.SilenceTimeout+health.ExtraOutcomeWait(f.Kind), w.node.Timing.SilenceTimeout/2
	if health.IsRequestedEnd(f.Kind) {
		// The run was asked to end. While the driver saves its work, it needs the services on this node,
		// so wait for its grace period, and tolerate an unresponsive file system for up to the peer
		// timeout.
		within += w.node.cfg.Times.DriverGrace
		limit = max(limit, min(w.node.cfg.Times.DriverGrace, w.node.Timing.SilenceTimeout))
	}
	ctx, cancel := context.WithTimeoutCause(w.node.HeadWaitCtx, within, errDeadline)
	defer cancel()
	return w.awaitPublishedEnd(ctx, limit)
}

// awaitPublishedEnd returns the published end of the run, or nil if ctx ends, or the file system
// does not answer for longer than limit.
func (w *worker) awaitPublishedEnd(ctx context.Context, limit time.Duration) *lifecycle.Outcome {
	ctx, stop := w.node.WithResponsiveShare(ctx, limit)
	defer stop()
	w.node.ControlWatch.SpeedUp()
	// If nothing is published within this time, it may take as long as the driver's grace period.
	relax := time.AfterFunc(health.FinalTermTimeout,
		func() { w.node.ControlWatch.SlowDown(w.node.Timing.MaxPollInterval) })
	defer relax.Stop()
	_ = ctxutil.AwaitDone(ctx, w.node.EndKnownCtx.Done())
	end, _ := errors.AsType[*lifecycle.Outcome](context.Cause(w.node.EndKnownCtx))
	return end
}

// publishResultAsHead makes end the outcome of the run in place of a lost head, by writing the
// result, which only one node can. It returns nil, or the outcome of the node that was first. A
// node with an unresponsive mount writes nothing: its result would appear too late.
func (w *worker) publishResultAsHead(end *lifecycle.Outcome) *lifecycle.Outcome {
	w.deciding.Store(true)
	s := lifecycle.HeadSituation{Event: lifecycle.NodeFailed, Kind: end.Cause.Kind, HeadLost: true,
		ShareSilent: w.node.FileSystemSilence() > lifecycle.UnresponsiveTimeout}
	if lifecycle.NextHeadAction(s) != lifecycle.ActAsHead {
		return nil
	}
	result := w.node.buildResult(end)
	result.Advice = w.node.outcomeSummary(end, result).NextSteps()
	err := w.node.PublishResult(result)
	if !errors.Is(err, signal.ErrAlreadyPublished) {
		w.node.LogWriteError(err)
		end.Result = result
		end.ClaimedResult = err == nil
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(w.node.GraceCtx, w.node.Timing.SilenceTimeout, errDeadline)
	defer cancel()
	if published := w.awaitPublishedEnd(ctx, w.node.Timing.SilenceTimeout/2); published != nil {
		return published
	}
	published := w.outcomeFromResult()
	if published != nil {
		_ = w.node.publishAbort(published) // publishAbort logs the error
	}
	return published
}

// outcomeFromResult returns the outcome in the result of a node that died before it could publish
// its abort record, or nil.
func (w *worker) outcomeFromResult() *lifecycle.Outcome {
	ctx, cancel := context.WithTimeoutCause(w.node.GraceCtx, lifecycle.UnresponsiveTimeout, errDeadline)
	defer cancel()
	result, err := w.node.Dir.ReadResult(ctx)
	if err != nil || result.Cause == nil {
		return nil
	}
	return lifecycle.OutcomeOfAbort(record.Abort{Code: result.Code, Outcome: result.Outcome,
		Cause: *result.Cause, BadNodes: result.BadNodes, NextAttempt: result.NextAttempt})
}

// leaveRun ends all children of this node, publishes that, waits until the daemon may exit, and
// returns the exit code.
func (w *worker) leaveRun(end *lifecycle.Outcome) int {
	w.node.Events.EnterPhase(record.PhaseEnd)
	w.node.finishWith(end)
	if w.node.Links.AreHealthy(time.Now()) {
		// The head's goodbye message will arrive, so that this node need not poll often.
		w.node.ControlWatch.SlowDown(w.node.Timing.MaxPollInterval)
	}
	left := w.node.stopChildren(end)
	w.node.copyServiceLogs(end)
	w.node.Log.Info("this node has ended its part", zap.String("why", end.Reason), zap.Strings("left", left))
	w.node.printWorkerMessage(end, left)
	code := end.Code
	if end.Orderly && !w.node.id.Launcher.Facts().RelaunchesEachDaemon {
		code = 0
	}
	w.node.Events.WriteEvent(eventlog.DaemonEnded, eventlog.Fields{Code: &code})
	w.node.Events.Sync()
	asked := w.node.Meter.CallStats()
	<-w.node.ReportDone(&record.Done{LeftProcesses: left, Share: &asked})
	if end.Orderly {
		// The launcher may end the other tasks as soon as one exits with an error. That task must be the
		// head, so a worker with an exit code waits for the head.
		if code != 0 {
			ctx, cancel := context.WithTimeoutCause(w.node.HeadWaitCtx, w.node.cfg.Times.Peer, errDeadline)
			defer cancel()
			<-ctx.Done()
		}
		return code
	}
	if end.ClaimedResult {
		w.node.recordEnd(end.Result)
		w.node.runEndCommand(end, end.Result)
		w.node.carryOutRestart(end)
	}
	if !w.awaitRunClosed(end) && end.ByHead {
		// The head may have died before it printed the end.
		end.ByHead = false
		w.node.console.UnmuteWarnings()
		w.node.printWorkerMessage(end, left)
	}
	return code
}

// awaitRunClosed waits, after a failure, until the head has written the result and ended the
// driver, and reports whether it has: Slurm kills the step when a task exits with an error.
func (w *worker) awaitRunClosed(end *lifecycle.Outcome) (closed bool) {
	s := lifecycle.HeadSituation{Event: lifecycle.LeavingRun, Requested: end.Requested,
		ShareSilent: w.node.FileSystemSilence() > lifecycle.UnresponsiveTimeout}
	s.HeadLost = end.Cause != nil && len(end.Cause.LostNodes) > 0 && end.Cause.LostNodes[0] == 0
	if lifecycle.NextHeadAction(s) == lifecycle.StopWaiting {
		return false
	}
	limit := w.node.cfg.Times.DriverGrace + w.node.cfg.Times.StopGrace + w.node.cfg.Roles.LongestGrace()
	aborts := w.node.ControlWatch.LastListing().NodesWithAbort()
	if len(aborts) > 0 && aborts[0] == 0 && end.Requested {
		// such a head publishes the end after its driver has ended
		limit = health.FinalTermTimeout
	}
	ctx, cancel := context.WithTimeoutCause(w.node.HeadWaitCtx, limit+w.node.cfg.After.MaxDelay(), errDeadline)
	defer cancel()
	if !end.Requested {
		var stop context.CancelFunc
		ctx, stop = w.node.WithResponsiveShare(ctx, w.node.Timing.SilenceTimeout)
		defer stop()
	}
	wait := w.node.ControlWatch.WaitListing
	if w.node.Links.AreHealthy(time.Now()) {
		// The head's goodbye message will arrive, so that this node need not poll often.
		wait = w.node.ControlWatch.FollowListings
	}
	_, err := wait(ctx, func(l signal.Listing) bool { return l.HasName(signal.NameHeadFinished) })
	return err == nil || errors.Is(context.Cause(ctx), errHeadLeft)
}

// sendGoodbye sends the head a goodbye message on the peer link, if there is one: this daemon ends
// in order, and has not died.
func (w *worker) sendGoodbye() {
	if w.link != nil {
		w.link.worker.SayGoodbye()
	}
}
