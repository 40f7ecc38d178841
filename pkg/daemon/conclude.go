package daemon

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// conclude publishes the end of the run, ends all children, waits for the other nodes, and writes
// the result. It returns the final outcome, which has the exit code of the job.
func (h *head) conclude(end *run.Ending) *run.Ending {
	// Publish the end. A driver that was asked to stop has its grace period before that, because its
	// exit code becomes that of the job. The ranks of a world run on all nodes, which must know first.
	h.Trail.Enter("drain")
	h.finish(end)
	if end.Gentle && h.world == nil {
		end = h.stopDriver(end)
	}
	h.announce(end)
	if end.Gentle && h.world != nil { // all nodes have been notified, and end their ranks
		h.stopUsers(end)
		end = h.stopped(end, service.Rank(0))
	}
	// Write the result and end the children concurrently.
	h.Trail.Sync()
	var ends sync.WaitGroup
	var result *signal.Result
	var taken bool // copied into end when no other goroutine uses end
	var left []string
	torn := make(chan struct{}) // closed when no children are left
	ends.Go(func() {
		h.deaths.takeLateLosses(end, torn)
		if result, taken = h.writeResult(end); !taken {
			h.noteBadNodes(result.Nodes)
		}
	})
	ends.Go(func() {
		if end.Orderly {
			// The workers end first, because their services would take the end of the head's service for a
			// failure.
			h.awaitDone(end)
		}
		_ = h.stopDriver(end)
		h.slowSandbox.Wait()
		left = h.stopAll(end)
		close(torn)
		h.keepEvidence(end)
		h.Logged(h.Publish(signal.Nodes, signal.NodeName(0, h.id.Size, signal.Done), &signal.DoneRecord{Left: left}, false))
		if !end.Orderly {
			h.awaitDone(end)
		}
	})
	ends.Wait()
	// Report to the user, and let the workers exit.
	end.Taken, end.Nodes = taken, result.Nodes
	h.tidyOrders()
	if h.cfg.ShareStats {
		h.canary.Tell(h.nodes.Last().Ranks(signal.Done))
	}
	h.assembly.tellDropped()
	h.lastWords(end, result, left)
	if !end.Orderly {
		h.afterwards(end)
		h.voice.Wait() // Slurm kills the step, and this daemon, as soon as the first worker exits
		h.Logged(h.Mark(signal.Control, signal.NameOver))
	}
	h.Trail.Event(trail.End, trail.Fields{Code: &end.Code})
	return end
}

// announce publishes the end of the run, so that all nodes end their part in it.
func (h *head) announce(end *run.Ending) {
	if end.Orderly {
		err := h.Publish(signal.Control, signal.NameDrain, &signal.DrainRecord{Code: end.Code, Why: end.Why}, false)
		h.Logged(err)
		h.tellUnwritten(end, err)
		if err != nil && !errors.Is(err, run.ErrGoesOn) && h.gate > 0 {
			// The name of the record is sufficient, and even a full file system may accept a rename. Without
			// the record the workers would declare the head lost.
			h.Logged(h.Ask("publish", signal.NameDrain, h.cfg.Times.Peer, func(ctx context.Context) error {
				return h.Dir.Remark(ctx, signal.Control, signal.NameGo, signal.NameDrain)
			}))
		}
		return
	}
	h.tellUnwritten(end, h.publishAbort(end))
}

// tellUnwritten sends the exit code to the workers if err says that the end of the run could not be
// published, or not yet.
func (h *head) tellUnwritten(end *run.Ending, err error) {
	if err != nil {
		h.tellOver(end)
	}
}

// tellOver sends the workers their exit code on the peer links: 0 after an orderly end, and the
// exit code of the run otherwise.
func (h *head) tellOver(end *run.Ending) {
	if h.lines == nil || h.lines.Head == nil {
		return
	}
	code := end.Code
	if end.Orderly {
		code = 0
	}
	h.lines.Head.Over(code)
}

// lifelineReport returns the numbers of reconnections and of rejected connections of the peer
// links. It returns nil if there are no peer links.
func (h *head) lifelineReport() *signal.LifelineReport {
	if h.lines == nil || h.lines.Head == nil {
		return nil
	}
	stats := h.lines.Head.Stats()
	if len(stats.Strangers) > 0 {
		h.Log.Warn("strangers came to the port of the lifelines and were turned away", zap.Any("why", stats.Strangers))
	}
	return &signal.LifelineReport{Reconnects: stats.Reconnects, Strangers: stats.Strangers}
}

// publishAbort publishes this node's abort record, which ends the run with a cause. It logs the
// error that it returns.
func (n *node) publishAbort(end *run.Ending) error {
	err := n.Publish(signal.Control, signal.AbortName(n.id.Rank, n.id.Size), &signal.AbortRecord{
		Code: end.Code, Word: end.Word, Cause: *end.Cause, Nodes: end.Nodes, NextAttempt: end.Again.Attempt,
	}, true)
	n.Logged(err)
	return err
}

// stopDriver ends the driver, which has its grace period. It returns end; if the stop was
// requested, with the exit code of the driver. If the driver has ended before, it waits until the
// driver's output has been read.
func (h *head) stopDriver(end *run.Ending) *run.Ending {
	if h.driver == nil {
		return end
	}
	grace := h.CutGrace(h.cfg.Times.GraceOfDriver(end.Gentle))
	if end.Gentle && !service.Ended(h.driver) {
		h.Log.Info("the driver is told to end", zap.Duration("grace", grace))
	}
	if !end.Gentle && service.Ended(h.driver) {
		// Processes that forward its output, such as tee, must not be killed before they have read all of
		// it. All nodes have been notified of the end by now, so there is time.
		_ = pause.Await(h.Parting, h.driver.Done())
	}
	_ = h.driver.End(h.Parting, grace, syscall.SIGTERM) // stopAll reports a remaining driver
	return h.stopped(end, service.Driver)
}

// stopped returns end for a run in which the given child, the driver or the first rank, was
// stopped. If the stop was requested, the returned end has the exit code of that child.
func (h *head) stopped(end *run.Ending, child string) *run.Ending {
	exit, ran := h.children.ExitOf(child)
	if !end.Orderly || !end.Gentle || !ran {
		return end
	}
	stopped := *end
	stopped.Code = exit.Status()
	return &stopped
}

// untold is the warning that nodes have not published in time that they are done.
const untold = "not all nodes have told that they are done"

// awaitDone waits until all nodes whose daemons are alive have published that their processes have
// ended, but not longer than the grace periods of those processes.
func (h *head) awaitDone(end *run.Ending) {
	lost := make(map[int]bool)
	if end.Cause != nil {
		for _, rank := range end.Cause.Lost {
			lost[rank] = true
		}
	}
	// The longest time that a worker may need to notice the end, and to end its processes.
	within := h.cfg.Times.StopGrace + h.graceOfRanks(end) + health.WorkerTempo(h.cfg.Times.Peer, h.id.Size).Look + time.Second
	ctx, cancel := context.WithTimeoutCause(h.Hurry, within, errDeadline)
	defer cancel()
	if h.roster.Spares() {
		h.deaths.hear() // spares that have joined since the last poll must be awaited, too
	}
	// blind is set if the records of the nodes cannot be read. Only polls of this directory count:
	// they may succeed although those of another directory fail.
	blind := h.nodes.Silence() > run.SickShare
	if slices.ContainsFunc(h.unended(lost, blind), func(rank int) bool { return !h.lines.Ties(rank) }) {
		h.nodes.Quicken() // poll often, because nodes without a peer link cannot notify the head
	}
	for {
		blind = blind || h.nodes.Silence() > h.tempo.Silent/2
		missing := h.unended(lost, blind)
		if len(missing) == 0 {
			return
		}
		if !pause.For(ctx, lookPause) {
			h.Log.Warn(untold, zap.String("missing", h.hostsOf(missing)), zap.Duration("waited", within))
			return
		}
	}
}

// unended returns the nodes, except lost ones, that are not known to have ended their processes. If
// blind is set, their records cannot be read, and only the peer links count.
func (h *head) unended(lost map[int]bool, blind bool) []int {
	last := h.nodes.Last()
	missing := slices.DeleteFunc(last.Missing(signal.Done, h.id.Size), func(rank int) bool {
		return rank == 0 || lost[rank] || h.lines.Ended(rank, blind)
	})
	return signal.Without(missing, h.roster.Absent(last))
}

// writeResult publishes the result of the run, and returns it. taken reports that another node has
// published one before.
func (h *head) writeResult(end *run.Ending) (result *signal.Result, taken bool) {
	result = h.result(end)
	h.assembly.listTeam(result)
	h.cards.Settle(run.SickShare)
	h.hearEvents(h.Work)
	result.Hosts, result.ToGate, result.Share, result.Lifelines = h.assembly.hosts(), h.gate, h.canary.Report(), h.lifelineReport()
	hostOf := func(rank int) string { // the host of a node, or "" if it is unknown
		if result.Hosts[rank] == strconv.Itoa(rank) { // the placeholder of [assembly.hosts]
			return ""
		}
		return result.Hosts[rank]
	}
	result.Events, result.Nodes = h.chronicle.Told(), h.chronicle.BadNodes(health.WithAccused(result.Nodes, end.Cause, hostOf), hostOf)
	result.Advice = h.account(end, result).Advise()
	err := h.PublishResult(result)
	if taken = errors.Is(err, signal.ErrTaken); !taken {
		h.Logged(err)
	}
	return result, taken
}
