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

// failureState is what the head knows of the failures and losses of all nodes, from their first
// signs to the verdict.
type failureState struct {
	decisions   chan func()           // for decideLosses
	losses      *health.Losses        // only decideLosses uses it
	resultFinal bool                  // later losses are no failures; only decideLosses uses it
	remoteExits lifecycle.RecentExits // those that other nodes have reported
}

// startDecisions starts to decide about failures. Peer links and listings report to it.
func (h *head) startDecisions() {
	h.decisions = make(chan func())
	h.losses = health.NewLosses(health.LossesConfig{
		Timing: h.node.Timing, StandbyTiming: lifecycle.StandbyTiming(h.node.Timing),
		PeerTimeout: h.node.cfg.Times.Peer,
		Size:        h.node.id.Size, Links: h.node.Links, Monitored: h.membership.MonitoredPeers,
		Name: h.node.nodeName, Names: h.node.nodeNames, LinkDown: h.node.LinkDownFailure, CutOff: h.node.CutOffFailure,
	})
	h.node.Background(h.decideLosses)
}

// servePeerLinks accepts peer links, and connections of callers that request commands, if peer links
// are offered.
func (h *head) servePeerLinks() {
	if h.peerLinks == nil {
		return
	}
	cfg := peerlink.Config{Key: h.node.Dir.DeriveSecret(peerlink.SecretName), Nodes: h.node.id.CountMembers(),
		HeartbeatInterval: h.node.cfg.Times.LinkHeartbeatInterval()}
	h.peerLinks.Prepare(cfg, &workerLinkHandler{h})
	h.peerLinks.HandleStreams(peerlink.RendezvousStream, h.rendezvous.ServeNode)
	h.peerLinks.HandleStreams(peerlink.CommandStream, h.requests.ServeConn)
	h.peerLinks.HandleStreams(peerlink.CallerStream, h.requests.ServeCaller)
	h.peerLinks.HandleReports(h.acceptReport)
	h.node.Notify = h.peerLinks.NotifyWorkers
	h.node.Background(h.peerLinks.Run)
}

// decideLosses makes all decisions about failures, until ctx ends. It also evaluates the heartbeats
// of the links, even while no poll of the file system succeeds.
func (h *head) decideLosses(ctx context.Context) {
	tick := time.NewTicker(h.node.cfg.Times.LinkHeartbeatInterval() / 2)
	defer tick.Stop()
	outage := lifecycle.OutageReporter{Monitor: &h.node.Monitor, NodeNames: h.node.nodeNames}
	for {
		select {
		case <-ctx.Done():
			return
		case decide := <-h.decisions:
			decide()
		case now := <-tick.C:
			if h.peerLinks != nil {
				h.node.Links.RecordTick(now)
				h.node.CheckNetworkLink(now)
				outage.LogChanges(now)
			}
			h.handleEvent(health.LossInput{})
		}
	}
}

// decide makes decideLosses call a function, and waits for that.
func (h *head) decide(step func()) {
	done := make(chan struct{})
	select {
	case h.decisions <- func() { defer close(done); step() }:
		<-done
	case <-h.node.WorkCtx.Done():
	}
}

// handleEvent passes an event on, records losses that follow, and returns all that follows. Only
// decideLosses calls it.
func (h *head) handleEvent(in health.LossInput) health.LossActions {
	in.Now, in.ShareSilence, in.RunOver = time.Now(), h.node.FileSystemSilence(), h.node.RunCtx.Err() != nil
	in.OutlastsShare = in.ShareSilence > 0 && h.node.ToleratesShareOutage(in.Now)
	if !in.Listed {
		in.Listing = h.nodeWatch.LastListing()
	}
	out := h.losses.Next(in)
	for _, loss := range out.Record {
		h.recordLoss(loss)
	}
	return out
}

// acceptReport takes over a report of a member, as if a listing had shown the name.
func (h *head) acceptReport(member int, name string, content []byte) {
	if err := h.node.Dir.AcceptReport(member, name, content); err != nil {
		h.node.Log.Warn("a report is not accepted", zap.Error(err))
	}
}

// workerLinkHandler handles the events of the peer links to workers.
type workerLinkHandler struct{ *head }

// WorkerConnected records that a worker is connected. If the choice of the team waits for that, or
// the worker was connected before, it also polls Nodes: for the choice, and for the records that the
// worker has published while the head could not be notified.
func (p *workerLinkHandler) WorkerConnected(nodeIndex int) {
	known := p.node.Links.Peer(nodeIndex, time.Now()).Known
	p.node.Links.SetConnected(nodeIndex, time.Now())
	if known || p.membership.AwaitsLink() {
		p.nodeWatch.NotifyChange()
	}
}

// WorkerHeartbeat records a heartbeat of a worker, and whether the worker's file system is
// unresponsive.
func (p *workerLinkHandler) WorkerHeartbeat(nodeIndex int, shareUnresponsive bool) {
	p.node.Links.RecordHeartbeat(nodeIndex, shareUnresponsive, time.Now())
}

// WorkerNotified handles a worker's notification of a new record: the head polls Nodes.
func (p *workerLinkHandler) WorkerNotified(int) { p.nodeWatch.NotifyChange() }

// WorkerExit records that a service of a worker has ended.
func (p *workerLinkHandler) WorkerExit(int) { _ = p.remoteExits.Add() }

// WorkerGone handles the end of a peer link.
func (p *workerLinkHandler) WorkerGone(nodeIndex int, how peerlink.CloseReason) {
	p.node.Links.SetDisconnected(nodeIndex, how)
	p.nodeWatch.NotifyChange()
	p.decide(func() { p.handleEvent(health.LossInput{Ended: true, Node: nodeIndex, Reason: how}) })
}

// followNodes evaluates each listing of Nodes until ctx ends: it reads published failures, has silent
// peers declared lost, and chooses the team.
func (h *head) followNodes(ctx context.Context) {
	read := make(map[int]bool)
	note := h.node.Events.NodesObserver()
	_, _ = h.nodeWatch.FollowListings(ctx, func(l signal.Listing) bool {
		note(l)
		for _, member := range append(l.NodesIn(record.StateFailed), l.OfSteps().NodesIn(record.StateFailed)...) {
			h.readFailure(ctx, member, l, read)
		}
		var out health.LossActions
		h.decide(func() { out = h.handleEvent(health.LossInput{Listed: true, Listing: l}) })
		passed := health.PassedNodes(l)
		for _, seen := range health.ClassifyEnvironmentFailures(out.Classify, passed, h.node.cfg.EarlierFailures) {
			h.reportFailure(seen.Failure, seen.ObservedAt)
		}
		h.verifyLosses(ctx, out.Verify)
		h.updateTeam(l)
		return false
	})
}

// verifyLosses records losses if a write proves that the file system works, and otherwise ends the
// run.
func (h *head) verifyLosses(ctx context.Context, losses []health.ObservedFailure) {
	if len(losses) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.node.Timing.SilenceTimeout,
		errors.New("all peers are silent, and so is the shared file system"))
	defer cancel()
	if err := h.node.Dir.WriteHeartbeat(ctx, signal.ControlDir); err != nil {
		h.node.CancelRun(health.AsFailure(err))
		return
	}
	h.decide(func() {
		for _, loss := range losses {
			h.recordLoss(loss)
		}
	})
}

// readFailure reads the failure that a member has published, once, and records it. read has the members
// whose failures have been read; the head's own is known.
func (h *head) readFailure(ctx context.Context, nodeIndex int, l signal.Listing, read map[int]bool) {
	if read[nodeIndex] || nodeIndex == 0 {
		return
	}
	read[nodeIndex] = true
	name := signal.NodeName(nodeIndex, h.node.id.Size, record.StateFailed)
	var rec record.Failure
	if err := h.node.readRecord(ctx, signal.NodesDir, name, &rec); err != nil {
		if h.node.WorkCtx.Err() != nil || signal.IsStalled(err) {
			read[nodeIndex] = false // read it again when this node's mount answers
			return
		}
		kind := health.Internal
		if errors.Is(err, errDeadline) {
			kind = health.ShareUnusable
		}
		rec = h.unreadableRecordFailure(nodeIndex, kind, "%s failed, and its record cannot be read: %v", err)
	}
	h.reportFailure(rec, l.SeenAt)
}

// unreadableRecordFailure returns the failure that replaces a record that cannot be read. format
// has the verbs for the name of the node and for err.
func (h *head) unreadableRecordFailure(nodeIndex int, kind health.Kind, format string, err error) record.Failure {
	rec := health.NewFailure(kind, format, h.node.nodeName(nodeIndex), err).Failure
	rec.NodeIndex, rec.Host = nodeIndex, h.node.id.HostOf(nodeIndex)
	return rec
}

// followRequests handles records in Control that others write: a request to stop, and the abort
// record of a worker that has declared the head lost.
func (h *head) followRequests(ctx context.Context) {
	_, _ = h.node.ControlWatch.FollowListings(ctx, func(l signal.Listing) bool {
		for _, nodeIndex := range l.NodesWithAbort() {
			if nodeIndex != 0 {
				return h.endByPeerAbort(ctx, nodeIndex, l.PolledAt)
			}
		}
		if l.HasName(signal.NameStop) && h.node.RunCtx.Err() == nil {
			code := 0
			if h.node.cfg.HasPrimary() && !h.node.id.Launcher.Facts().RelaunchesEachDaemon {
				code = health.StoppedOutcome.Code
			}
			h.node.CancelRun(lifecycle.OutcomeOfStop(code))
		}
		return false
	})
}

// endByPeerAbort ends the run by the abort record of a worker, and reports whether it has: not
// while the file system is unresponsive.
func (h *head) endByPeerAbort(ctx context.Context, nodeIndex int, at time.Time) bool {
	var rec record.Abort
	err := h.node.readRecord(ctx, signal.ControlDir, signal.AbortName(nodeIndex, h.node.id.Size), &rec)
	if h.node.WorkCtx.Err() != nil || signal.IsStalled(err) {
		return false
	}
	if err != nil {
		rec.Cause = h.unreadableRecordFailure(nodeIndex, health.Aborted,
			"%s has aborted the run, and its record cannot be read: %v", err)
	}
	h.recordFailure(health.ObservedFailure{Failure: rec.Cause, ObservedAt: at})
	return true
}

// recordLoss records the loss of nodes, and ends what waits for them; once the result is final, only
// roles do.
func (h *head) recordLoss(loss health.ObservedFailure) {
	nodes := loss.LostNodes
	if h.resultFinal {
		h.membership.LoseAtEnd(nodes)
		return
	}
	loss.Header, loss.Phase, loss.LostNodes = h.node.recordHeader(), h.node.Events.CurrentPhase(), nodes
	for _, nodeIndex := range nodes {
		h.requests.CloseNodeConns(nodeIndex)
		h.rendezvous.MarkNodeLost(nodeIndex, loss.Message)
	}
	h.handleFailure(loss.Failure, loss.ObservedAt)
}

// reportFailure makes decideLosses handle the failure of a node.
func (h *head) reportFailure(rec record.Failure, at time.Time) {
	h.decide(func() { h.handleFailure(rec, at) })
}

// handleFailure handles the failure of a node: it ends the run if the job cannot continue without it.
func (h *head) handleFailure(rec record.Failure, at time.Time) {
	seen := health.ObservedFailure{Failure: rec, ObservedAt: at}
	if !h.losses.Hold(seen) && !h.tolerateFailure(seen) {
		h.endByFailure(append(h.membership.TakeExcused(), seen)...) // tolerated ones count, too
	}
}

// tolerateFailure reports whether the job does not need the node that has failed, and logs that
// the node is dropped.
func (h *head) tolerateFailure(seen health.ObservedFailure) bool {
	goesOn, news := h.membership.TolerateFailure(seen, h.node.id.HostOf)
	if !goesOn || !news {
		return goesOn
	}
	h.node.Events.WriteEvent(eventlog.NodeDropped,
		eventlog.Fields{FailureFields: eventlog.FailureFields{Subject: &seen.NodeIndex, Kind: seen.Kind,
			What: seen.Message}})
	what := "a node is dropped"
	if len(seen.LostNodes) > 0 && seen.LostNodes[0] >= h.node.id.Size {
		what = "a daemon is lost"
	}
	h.node.Log.Warn(what+", and the job continues: "+seen.Message, zap.String("kind", string(seen.Kind)))
	h.nodeWatch.NotifyChange()
	return true
}

// recordFailure records a failure for the verdict, and ends the run by it.
func (h *head) recordFailure(seen health.ObservedFailure) {
	h.decide(func() { h.endByFailure(seen) })
}

// endByFailure records failures for the verdict, and ends the run by the last one.
func (h *head) endByFailure(failures ...health.ObservedFailure) {
	record := failures[len(failures)-1].Failure
	h.node.Events.WriteEvent(eventlog.FailureReceived,
		eventlog.Fields{FailureFields: eventlog.FailureFields{Subject: &record.NodeIndex,
			Kind: record.Kind, What: record.Message}})
	h.handleEvent(health.LossInput{Failed: failures})
	h.node.CancelRun(&lifecycle.ObservedFailure{Record: record})
}

// decideOutcome returns the outcome of the run: err, if it is an orderly end, and otherwise the
// verdict on all failures. opened is how long the gate has been open.
func (h *head) decideOutcome(err error, opened time.Duration) *lifecycle.Outcome {
	var end *lifecycle.Outcome
	if errors.As(err, &end) && end.Orderly {
		h.decide(func() { h.resultFinal = true })
		end.Progress, end.RankRestarts = h.node.steps.Summary(), h.node.rankRestartTimes()
		return end
	}
	// Record the failure of the sequence, unless it is one that was recorded before.
	phase := h.node.Events.CurrentPhase()
	h.node.CancelRun(err)
	kind, known := lifecycle.FailureKind(err)
	err = h.suspects().Explain(err)
	if !known {
		f := h.node.publishFailure(err, record.StateFailed)
		h.recordFailure(health.ObservedFailure{Failure: f.Failure, ObservedAt: time.Now()})
	}
	// Wait for failures that may be the cause, and decide.
	h.awaitFreshListing()
	h.awaitPeers(h.node.WorkCtx, time.Time{},
		health.LossWaitTime(kind, h.node.Timing.SilenceTimeout, h.node.cfg.Times.LinkHeartbeatInterval()))
	end = lifecycle.OutcomeOfVerdict(h.verdict(h.awaitEvidence(h.node.WorkCtx, health.EvidenceWait{Causes: true})))
	end.Phase, end.GateOpenTime, end.Progress = phase, opened, h.node.steps.Summary()
	end.RankRestarts = h.node.rankRestartTimes()
	return restart.Decide(&h.node.cfg, end, h.node.EndRequested.Load())
}

// verdict decides which of the failures is the first cause, and by which code the run ends.
func (h *head) verdict(failures []health.ObservedFailure) health.Verdict {
	passed := health.PassedNodes(h.nodeWatch.LastListing())
	return health.DecideVerdict(
		health.ClassifyEnvironmentFailures(failures, passed, h.node.cfg.EarlierFailures), h.node.id.HostOf)
}

// awaitEvidence waits for evidence, unless ctx ends before, and returns all failures that are known
// then.
func (h *head) awaitEvidence(ctx context.Context, wait health.EvidenceWait) (known []health.ObservedFailure) {
	complete := false
	look := func() {
		complete = h.handleEvent(health.LossInput{Wait: &wait}).Complete
		known = slices.Clone(h.losses.Failures)
	}
	if h.decide(look); !complete && wait.Polls == 0 {
		h.nodeWatch.SpeedUp()
	}
	for !complete && ctxutil.SleepContext(ctx, statePollInterval) {
		h.decide(look)
	}
	return known
}

// awaitFreshListing waits until a new listing of Nodes has been evaluated, because a cause may be
// published a moment after its consequence. It waits for two polls: the first may have started
// before.
func (h *head) awaitFreshListing() {
	if h.node.FileSystemSilence() <= lifecycle.UnresponsiveTimeout {
		before := h.nodeWatch.PollsBegun()
		h.nodeWatch.NotifyChange()
		h.awaitEvidence(h.node.WorkCtx, health.EvidenceWait{Polls: before,
			Until: time.Now().Add(min(h.node.Timing.MaxPollInterval/2, lifecycle.UnresponsiveTimeout/2))})
	}
}

// awaitPeers waits until every peer has sent a recent heartbeat or is lost, at most for within. asked
// is when all were asked for a heartbeat, or zero.
func (h *head) awaitPeers(ctx context.Context, asked time.Time, within time.Duration) {
	if h.peerLinks != nil && h.node.FileSystemSilence() <= lifecycle.UnresponsiveTimeout {
		h.awaitEvidence(ctx, health.EvidenceWait{Peers: true, Asked: asked, Until: time.Now().Add(within)})
	}
}

// settlePeerStates waits, after a failure of the driver, until every peer has answered or is lost:
// a loss may be the cause. It reports whether the run continues.
func (h *head) settlePeerStates(ctx context.Context) bool {
	if h.peerLinks != nil {
		asked := time.Now()
		h.peerLinks.RequestHeartbeats()
		// By then even a peer that died just after a heartbeat has been declared lost.
		h.awaitPeers(ctx, asked, h.node.Timing.SilenceTimeout+2*h.node.Timing.MaxPollInterval)
	}
	return ctx.Err() == nil
}

// lateLossTimeout is how long the result may wait for nodes that were lost together with the one
// in the verdict: on a busy machine a kernel closes connections one after the other.
const lateLossTimeout = 500 * time.Millisecond

// mergeLateLosses adds losses that are detected until torn is closed, or lateLossTimeout has
// passed, to the consequences in end, if its cause is a loss.
func (h *head) mergeLateLosses(end *lifecycle.Outcome, torn <-chan struct{}) {
	isLoss := !end.Orderly && health.IsPeerLoss(end.Cause.Kind)
	if isLoss {
		ctxutil.AwaitDoneFor(torn, lateLossTimeout)
	}
	var failures []health.ObservedFailure
	h.decide(func() { failures, h.resultFinal = slices.Clone(h.losses.Failures), true })
	if isLoss {
		end.MergeLosses(h.verdict(failures))
	}
}
