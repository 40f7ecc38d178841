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

// conclude publishes the end, ends what runs here, waits for the others, and
// returns the end, whose code is the job's.
func (h *head) conclude(end *run.Ending) *run.Ending {
	h.Trail.Enter("drain")
	h.finish(end)
	if end.Gentle && h.world == nil {
		end = h.stopDriver(end)
	}
	h.announce(end)
	if end.Gentle && h.world != nil { // all nodes end their ranks by now
		h.stopUsers(end)
		end = h.stopped(end, service.Rank(0))
	}
	h.Trail.Sync()
	var ends sync.WaitGroup
	var result *signal.Result
	var taken bool // kept aside until nobody else reads the end
	var left []string
	torn := make(chan struct{}) // closed when nothing runs here any more
	ends.Go(func() {
		h.deaths.takeLateLosses(end, torn)
		if result, taken = h.writeResult(end); !taken {
			h.noteBadNodes(result.Nodes)
		}
	})
	ends.Go(func() {
		if end.Orderly {
			// The workers first: the head's service going would look to
			// theirs like a death.
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
	end.Taken, end.Nodes = taken, result.Nodes
	h.tidyOrders()
	if h.cfg.ShareStats {
		h.canary.Tell(h.nodes.Last().Ranks(signal.Done))
	}
	h.assembly.tellDropped()
	h.lastWords(end, result, left)
	if !end.Orderly {
		h.afterwards(end)
		h.voice.Wait() // Slurm kills the step when the first of the others has exited
		h.Logged(h.Mark(signal.Control, signal.NameOver))
	}
	h.Trail.Event(trail.End, trail.Fields{Code: &end.Code})
	return end
}

// announce publishes the end, so that all nodes begin theirs.
func (h *head) announce(end *run.Ending) {
	if end.Orderly {
		err := h.Publish(signal.Control, signal.NameDrain, &signal.DrainRecord{Code: end.Code, Why: end.Why}, false)
		h.Logged(err)
		h.tellUnwritten(end, err)
		if err != nil && !errors.Is(err, run.ErrGoesOn) && h.gate > 0 {
			// The name says enough, and on a share that is full it can still
			// be had: the others are not to take the head for lost.
			h.Logged(h.Ask("publish", signal.NameDrain, h.cfg.Times.Peer, func(ctx context.Context) error {
				return h.Dir.Remark(ctx, signal.Control, signal.NameGo, signal.NameDrain)
			}))
		}
		return
	}
	h.tellUnwritten(end, h.publishAbort(end))
}

// tellUnwritten tells the workers of an end that could not be written, for now or
// at all.
func (h *head) tellUnwritten(end *run.Ending, err error) {
	if err != nil {
		h.tellOver(end)
	}
}

// tellOver tells the workers, by their lifelines, by which code the run ends.
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

// lifelineReport tells what was seen of the lifelines, and of strangers at their
// port.
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

// publishAbort publishes a node's end with a cause.
func (n *node) publishAbort(end *run.Ending) error {
	err := n.Publish(signal.Control, signal.AbortName(n.id.Rank, n.id.Size), &signal.AbortRecord{
		Code: end.Code, Word: end.Word, Cause: *end.Cause, Nodes: end.Nodes, NextAttempt: end.Again.Attempt,
	}, true)
	n.Logged(err)
	return err
}

// stopDriver lets the driver have its grace; who reads its output is waited for
// when all know of the end. A stop that was asked for ends with the driver's own
// code.
func (h *head) stopDriver(end *run.Ending) *run.Ending {
	if h.driver == nil {
		return end
	}
	grace := h.CutGrace(h.cfg.Times.GraceOfDriver(end.Gentle))
	if end.Gentle && !service.Ended(h.driver) {
		h.Log.Info("the driver is told to end", zap.Duration("grace", grace))
	}
	if !end.Gentle && service.Ended(h.driver) {
		// Whoever passes its output on, as a tee does, is not ended in the middle
		// of that. All know of the end by now.
		_ = pause.Await(h.Parting, h.driver.Done())
	}
	_ = h.driver.End(h.Parting, grace, syscall.SIGTERM) // stopAll tells what is left of it
	return h.stopped(end, service.Driver)
}

// stopped is the end by which a run ends whose driver, or first rank, was stopped: one
// that was asked for has the code of that child.
func (h *head) stopped(end *run.Ending, child string) *run.Ending {
	exit, ran := h.children.ExitOf(child)
	if !end.Orderly || !end.Gentle || !ran {
		return end
	}
	stopped := *end
	stopped.Code = exit.Status()
	return &stopped
}

// untold is the warning of a node that is waited for in vain.
const untold = "not all nodes have told that they are done"

// awaitDone waits until all nodes whose daemons live have said that nothing of ours
// runs there, for no longer than their graces last.
func (h *head) awaitDone(end *run.Ending) {
	lost := make(map[int]bool)
	if end.Cause != nil {
		for _, rank := range end.Cause.Lost {
			lost[rank] = true
		}
	}
	within := h.cfg.Times.StopGrace + h.graceOfRanks(end) + health.WorkerTempo(h.cfg.Times.Peer, h.id.Size).Look + time.Second
	ctx, cancel := context.WithTimeoutCause(h.Hurry, within, errDeadline)
	defer cancel()
	if h.roster.Spares() {
		h.deaths.hear() // who has joined since the last look stands by, and sees the end
	}
	blind := h.nodes.Silence() > run.SickShare // a look at another directory may have failed, and these come through
	if slices.ContainsFunc(h.unended(lost, blind), func(rank int) bool { return !h.lines.Ties(rank) }) {
		h.nodes.Quicken() // the others have us look
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

// unended are the nodes, but for those that are lost, of which nothing tells that
// they have ended what runs there.
func (h *head) unended(lost map[int]bool, blind bool) []int {
	last := h.nodes.Last()
	missing := slices.DeleteFunc(last.Missing(signal.Done, h.id.Size), func(rank int) bool {
		return rank == 0 || lost[rank] || h.lines.Ended(rank, blind)
	})
	return signal.Without(missing, h.roster.Absent(last))
}

// writeResult says for good how it ended, and returns what it has said, and whether another node has said it before.
func (h *head) writeResult(end *run.Ending) (result *signal.Result, taken bool) {
	result = h.result(end)
	h.assembly.listTeam(result)
	h.cards.Settle(run.SickShare)
	h.hearEvents(h.Work)
	result.Hosts, result.ToGate, result.Share, result.Lifelines = h.assembly.hosts(), h.gate, h.canary.Report(), h.lifelineReport()
	hostOf := func(rank int) string { // not all launchers tell
		if result.Hosts[rank] == strconv.Itoa(rank) { // which stands where the node has not, either
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
