package daemon

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// endRun publishes the end of the run, ends all children, waits for the other nodes, and writes
// the result. It returns the final outcome, which has the exit code of the job.
func (h *head) endRun(end *lifecycle.Outcome) *lifecycle.Outcome {
	// Publish the end. Primary roles that were asked to stop have their grace period before that, because
	// their exit code becomes that of the job.
	h.node.Events.EnterPhase(record.PhaseEnd)
	h.node.finishWith(end)
	h.logDriverGrace(end)
	all := h.roleHead()
	isOrdered := all != nil && len(roles.EndLevels(h.node.defs)) > 0
	if isOrdered && end.Requested { // the code of the primary roles becomes that of the job
		all.StopInOrder(h.node.DriverGraceCtx, false)
		end = h.outcomeAfterStop(end, h.stoppedCode(end))
	}
	h.publishEnd(end)
	if isOrdered && end.Orderly && !end.Requested {
		h.node.Background(func(context.Context) { all.StopInOrder(h.node.GraceCtx, true) })
	}
	h.node.Events.Sync()
	var ends sync.WaitGroup
	var result *record.Result
	var taken bool // copied into end when no other goroutine uses end
	var left []string
	torn := make(chan struct{}) // closed when no children are left
	ends.Go(func() {
		h.mergeLateLosses(end, torn)
		if result, taken = h.writeResult(end); !taken {
			h.node.recordEnd(result)
		}
	})
	ends.Go(func() {
		// The workers end before the head's service, because theirs would take its end for a failure.
		awaitFirst := end.Orderly && (h.node.cfg.Framework.HasServices() || h.node.cfg.Sandbox.IsRequested())
		if awaitFirst {
			h.awaitNodesDone(end)
		}
		left = h.node.stopChildren(end)
		close(torn)
		h.node.copyServiceLogs(end)
		h.node.LogWriteError(h.node.Publish(signal.NodesDir, signal.NodeName(0, h.node.id.Size, record.StateDone),
			&record.Done{LeftProcesses: left}, false))
		if !awaitFirst {
			h.awaitNodesDone(end)
		}
	})
	ends.Wait()
	h.requests.AwaitCallers(h.node.GraceCtx)
	end.TakenOver, end.BadNodes = taken, result.BadNodes
	h.removeOrders()
	h.logDroppedNodes()
	h.printHeadMessage(end, result, left)
	h.node.runEndCommand(end, result)
	h.node.carryOutRestart(end)
	if !end.Orderly {
		// Slurm kills the step, and this daemon, as soon as the first worker exits
		h.node.console.AwaitWritten()
		h.node.LogWriteError(h.node.MarkName(signal.ControlDir, signal.NameHeadFinished))
	}
	h.node.Events.WriteEvent(eventlog.DaemonEnded, eventlog.Fields{Code: &end.Code})
	return end
}

// publishEnd publishes the end of the run, so that all nodes end their part in it.
func (h *head) publishEnd(end *lifecycle.Outcome) {
	if end.Orderly {
		rec := record.OrderlyEnd{Code: end.Code, Reason: end.Reason, Requested: end.Requested}
		sent := rec // the other one may still be being written
		err := h.node.Publish(signal.ControlDir, signal.NameOrderlyEnd, &rec, false)
		h.node.LogWriteError(err)
		h.sendEnd(signal.NameOrderlyEnd, &sent)
		if err != nil && !errors.Is(err, lifecycle.ErrNotAwaited) && h.progress.timeToGate > 0 {
			// The name of the record is sufficient, and even a full file system may accept a rename. Without
			// the record the workers would declare the head lost.
			h.node.LogWriteError(h.node.CallFileSystem("publish", signal.NameOrderlyEnd, h.node.cfg.Times.Peer,
				func(ctx context.Context) error {
					return h.node.Dir.RenameMark(ctx, signal.ControlDir, signal.NameGateOpen, signal.NameOrderlyEnd)
				}))
		}
		return
	}
	_ = h.node.publishAbort(end) // publishAbort logs the error
	h.sendEnd(signal.AbortName(0, h.node.id.Size), end.AbortRecord())
}

// sendEnd sends the record of the end to all nodes by their peer links: they may not be able to
// read it.
func (h *head) sendEnd(name string, rec record.Record) {
	if content, err := h.node.Dir.EncodeReport(rec); err == nil { // otherwise it was not published, either
		h.sendOrder(name, content)
	}
}

// sendOrder makes a name in the control directory known to all nodes, as if a listing had shown it.
func (h *head) sendOrder(name string, content []byte) {
	if err := h.node.Dir.AcceptHeadReport(name, content); err != nil {
		h.node.Log.Warn("a record is not sent", zap.Error(err))
		return
	}
	if h.peerLinks != nil {
		h.peerLinks.SendReport(name, content)
	}
}

// peerLinkReport returns the numbers of reconnections and rejected connections, or nil without
// peer links.
func (h *head) peerLinkReport() *record.LinkReport {
	if h.peerLinks == nil {
		return nil
	}
	stats := h.peerLinks.Stats()
	if len(stats.Rejected) > 0 {
		h.node.Log.Warn("connections to the port of the peer links were rejected", zap.Any("why", stats.Rejected))
	}
	return &stats
}

// publishAbort publishes this node's abort record, which ends the run with a cause. It logs the
// error that it returns.
func (n *node) publishAbort(end *lifecycle.Outcome) error {
	err := n.Publish(signal.ControlDir, signal.AbortName(n.id.NodeIndex, n.id.Size), end.AbortRecord(), true)
	n.LogWriteError(err)
	return err
}

// logDriverGrace logs how long the driver has to end, if it runs and a stop was requested.
func (h *head) logDriverGrace(end *lifecycle.Outcome) {
	driver := h.node.children.FindChild(service.DriverName)
	if end.Requested && driver != nil && !service.HasEnded(driver) {
		grace := h.node.CutGrace(h.node.cfg.Times.DriverGracePeriod(health.IsIsolation(end.Cause)))
		h.node.Log.Info("the driver is told to end, and has " +
			h.node.id.Launcher.DescribeGrace(grace, h.node.cfg.Times.DriverGrace))
	}
}

// stoppedCode returns the exit code of what was stopped by end: of the ranks that of rank 0, if it ran then.
func (h *head) stoppedCode(end *lifecycle.Outcome) int {
	driver := h.node.children.FindChild(service.DriverName)
	switch {
	case h.running.world.Load() != nil:
		if code, ok := h.node.children.StoppedCode(service.RankName(0)); ok {
			return code
		}
		return end.Code
	case driver != nil && service.HasEnded(driver):
		return driver.Exit().ShellStatus()
	}
	return h.roleHead().StoppedCode(h.node.DriverGraceCtx)
}

// outcomeAfterStop returns end with the exit code of what was stopped, if the stop was requested,
// unless the launcher starts each failed daemon again.
func (h *head) outcomeAfterStop(end *lifecycle.Outcome, code int) *lifecycle.Outcome {
	if !end.Orderly || !end.Requested || h.node.id.Launcher.Facts().RelaunchesEachDaemon {
		return end
	}
	stopped := *end
	stopped.Code = code
	return &stopped
}

// awaitNodesDone waits until all nodes whose daemons are alive have published that their processes
// have ended, at most for the grace periods of those.
func (h *head) awaitNodesDone(end *lifecycle.Outcome) {
	lost := make(map[int]bool)
	if end.Cause != nil {
		for _, nodeIndex := range end.Cause.LostNodes {
			lost[nodeIndex] = true
		}
	}
	// The longest time that a worker may need to notice the end, and to end its processes.
	graces := h.node.cfg.Times.StopGrace + max(h.node.rankGracePeriod(end), roles.EndGrace(h.node.defs))
	within := graces + health.WorkerHeartbeatTiming(h.node.cfg.Times.Peer, h.node.id.Size).MaxPollInterval + time.Second
	ctx, cancel := context.WithTimeoutCause(h.node.GraceCtx, within, errDeadline)
	defer cancel()
	began := time.Now()
	if h.membership.HasSpares() || len(h.membership.UnjoinedNodes(h.nodeWatch.LastListing())) > 0 {
		h.awaitFreshListing() // nodes that have joined since the last poll must be awaited, too
	}
	// blind is set if the records of the nodes cannot be read. Only polls of this directory count:
	// they may succeed although those of another directory fail.
	blind := h.nodeWatch.UnresponsiveFor() > lifecycle.UnresponsiveTimeout
	if slices.ContainsFunc(h.nodesNotDone(time.Now(), lost, blind),
		func(nodeIndex int) bool { return !h.isConnected(nodeIndex) }) {
		h.nodeWatch.SpeedUp() // poll often, because nodes without a peer link cannot notify the head
	}
	for {
		blind = blind || h.nodeWatch.UnresponsiveFor() > h.node.Timing.SilenceTimeout/2
		missing := h.nodesNotDone(began, lost, blind)
		if len(missing) == 0 {
			return
		}
		if !ctxutil.SleepContext(ctx, statePollInterval) {
			h.node.Log.Warn("not all nodes have reported their end", zap.String("missing", h.node.nodeNames(missing)),
				zap.Duration("waited", within))
			return
		}
	}
}

// isConnected reports whether a worker is connected by its peer link.
func (h *head) isConnected(nodeIndex int) bool {
	return h.node.Links.Peer(nodeIndex, time.Now()).Connected
}

// lateJoinTimeout is how long the head waits, at the end, for nodes that do not seem to have joined:
// they may just do so, and the head's mount may be stale.
const lateJoinTimeout = time.Second

// nodesNotDone returns the nodes that have joined, except lost ones, and are not known to have
// ended their processes. Others leave no record, and count only for a moment after since. If blind
// is set, only the peer links count.
func (h *head) nodesNotDone(since time.Time, lost map[int]bool, blind bool) []int {
	last := h.nodeWatch.LastListing()
	steps := last.OfSteps()
	unjoined := slices.DeleteFunc(h.membership.UnjoinedNodes(last), func(nodeIndex int) bool {
		return time.Since(since) < lateJoinTimeout || h.node.Links.Peer(nodeIndex, time.Now()).Known
	})
	expected := append(signal.WithoutNodes(last.NodesNotIn(record.StateDone, h.node.id.Size), unjoined),
		signal.WithoutNodes(steps.NodesIn(record.StateJoined), steps.NodesIn(record.StateDone))...)
	missing := slices.DeleteFunc(expected, func(nodeIndex int) bool {
		return nodeIndex == 0 || lost[nodeIndex] || h.node.Links.Peer(nodeIndex, time.Now()).HasEnded(blind)
	})
	missing = signal.WithoutNodes(missing, h.membership.AbsentNodes(last))
	// Several nodes may die at once, and without peer links only their silence tells that. After a loss a
	// silent node is not awaited, if the end of another one shows that this mount is not the reason.
	if len(lost) > 0 && h.peerLinks == nil &&
		slices.ContainsFunc(last.NodesIn(record.StateDone), func(nodeIndex int) bool { return nodeIndex > 0 }) {
		h.decide(func() { missing = signal.WithoutNodes(missing, h.losses.SilentAtEnd) })
	}
	return missing
}

// writeResult publishes the result of the run. taken reports that another node has published one
// before.
func (h *head) writeResult(end *lifecycle.Outcome) (result *record.Result, taken bool) {
	result = h.node.buildResult(end)
	h.addTeamToResult(result)
	h.drainGPUEvents(h.node.WorkCtx)
	result.Hosts, result.TimeToGate, result.Share, result.Links = h.nodeHosts(), h.progress.timeToGate,
		&record.FileSystemReport{Head: h.node.Meter.CallStats()}, h.peerLinkReport()
	hostOf := func(member int) string { // the host of a node, or "" if it is unknown
		nodeIndex := record.NodeOfMember(member, h.node.id.Size)
		// the placeholder of [head.nodeHosts]
		if result.Hosts[nodeIndex] == strconv.Itoa(nodeIndex) {
			return ""
		}
		return result.Hosts[nodeIndex]
	}
	result.Events, result.BadNodes = h.nodeEventLog.AllEvents(),
		h.nodeEventLog.BadNodes(health.AddBlamedHosts(result.BadNodes, end.Cause, hostOf), hostOf)
	result.Advice = h.node.outcomeSummary(end, result).NextSteps()
	err := h.node.PublishResult(result)
	if taken = errors.Is(err, signal.ErrAlreadyPublished); !taken {
		h.node.LogLostResult(err)
	}
	return result, taken
}
