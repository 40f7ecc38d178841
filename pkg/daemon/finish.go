package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// drive runs the driver to its end, or, where there is none, waits for a stop.
// Its error is the orderly *ending, or why the run ended instead.
func (h *head) drive(ctx context.Context) error {
	if len(h.cfg.Driver) == 0 {
		h.log.Info("no driver: the job stays up until it is stopped", zap.String("run", h.dir.Path()))
		<-ctx.Done()
		return context.Cause(ctx)
	}
	starting, started := h.lagging(ctx)
	driver, err := h.start(starting, process.Spec{
		Name: driverName, Argv: h.cfg.Driver, Stdin: h.cfg.Files.In, Stdout: h.cfg.Files.Out, Stderr: h.cfg.Files.Err,
		Env: driverEnv(h.childEnv(h.cfg.Environ, &seat{size: h.roster.count()}), h.teamHosts(), h.endpoint),
	})
	started()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return h.driverFailure(err)
	}
	h.driver = driver
	select {
	case <-driver.Ended():
	case <-ctx.Done():
	}
	if !ended(driver) {
		return context.Cause(ctx)
	}
	exit := driver.Exit()
	// A driver that is well has ended the job, whatever came at the same time;
	// one that is not may have died of it.
	if exit.Status() != 0 && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Slurm signals the whole step: then the driver's end is the daemon's, too.
	if exit.Status() > 128 && !pause.For(ctx, skewOf(exit)) {
		return context.Cause(ctx)
	}
	if exit.Status() != 0 && (!h.hearLosses(ctx) || !h.hearEvents(ctx)) {
		return context.Cause(ctx)
	}
	return &ending{orderly: true, word: health.Driven, code: exit.Status(), why: "the driver has ended: " + exit.String()}
}

// startLag is how long the start of a driver, or of a command, may go on after its
// end has come: a start that is given up kills what it starts, which may run by
// then and is owed its grace.
const startLag = time.Second

// lagging returns a context for a start, which ends by startLag after ctx does, and
// a function to call when it is over. One that has ended already lags no more.
func (n *node) lagging(ctx context.Context) (context.Context, func()) {
	select {
	case <-ctx.Done():
		return ctx, func() {}
	default:
	}
	late, end := context.WithCancelCause(context.WithoutCancel(ctx))
	n.background(func(context.Context) {
		select {
		case <-ctx.Done():
			pause.For(late, startLag)
			end(context.Cause(ctx))
		case <-late.Done():
		}
	})
	return late, func() { end(nil) }
}

// judge returns how the run ends: as the sequence says where it ended well, by
// the verdict on all that failed otherwise.
func (h *head) judge(err error) *ending {
	var end *ending
	if errors.As(err, &end) && end.orderly {
		h.recorded.Store(true)
		return end
	}
	phase, opened := h.trail.Phase(), h.opened()
	h.end(err)
	if _, told := errors.AsType[*peerFailure](err); !told {
		f := h.report(err, signal.Failed)
		h.condemn(health.Observed{FailedRecord: f.FailedRecord, At: time.Now()})
	}
	h.hear()
	h.clearDoubts(h.work, h.doubtTime(err), time.Time{})
	h.failuresMu.Lock()
	defer h.failuresMu.Unlock()
	end = h.reconsider(endingOf(health.Decide(h.failures, h.id.HostOf)))
	end.phase, end.opened = phase, opened
	return end
}

// opened is how long the gate has been open; 0 before.
func (h *head) opened() time.Duration {
	if h.gate == 0 {
		return 0
	}
	return time.Since(h.began) - h.gate
}

// hear takes one more look before the verdict: where one failure shows, the
// cause of it may have been written a moment later.
func (h *head) hear() {
	if h.silence() > sickShare {
		return
	}
	ctx, cancel := context.WithTimeoutCause(h.work, min(h.tempo.Look/2, sickShare/2), errDeadline)
	defer cancel()
	before := h.nodes.Last().Looks
	_, _ = h.nodes.Wait(ctx, func(l signal.Listing) bool { return l.Looks > before+1 })
}

// doubtTime is for how long the verdict may wait for who may be lost, too: what a
// service or a sandbox has died of may be a loss, and who was lost at the same time
// as another is known a beat later at most.
func (h *head) doubtTime(err error) time.Duration {
	kind := health.Kind(asFailure(err).Kind)
	if told, ok := errors.AsType[*peerFailure](err); ok {
		kind = health.Kind(told.record.Kind)
	}
	switch {
	case kind == health.ServiceDied || kind == health.SandboxDied:
		return h.tempo.Silent
	case health.Loss(kind):
		return h.lineBeat()
	default:
		return 0
	}
}

// hearLosses waits, where the driver has failed, until every peer has answered or
// is lost: it may have failed of the loss, and have seen it before us. It tells
// whether the run goes on.
func (h *head) hearLosses(ctx context.Context) bool {
	if h.lines != nil {
		asked := time.Now()
		h.lines.head.Ask()
		h.clearDoubts(ctx, h.tempo.Silent+2*h.tempo.Look, asked) // who was heard just now is lost then
	}
	return ctx.Err() == nil
}

// conclude publishes the end, ends what runs here, waits for the others, and
// returns the job's code.
func (h *head) conclude(end *ending) int {
	h.trail.Enter("drain")
	h.finish(end)
	if end.gentle {
		end = h.stopDriver(end)
	}
	h.concluded = end
	h.announce(end)
	h.trail.Sync()
	var ends sync.WaitGroup
	var result *signal.Result
	var taken bool // kept aside until nobody else reads the end
	var left []string
	torn := make(chan struct{}) // closed when nothing runs here any more
	ends.Go(func() {
		h.takeLateLosses(end, torn)
		if result, taken = h.writeResult(end); !taken {
			h.noteBadNodes(end)
		}
	})
	ends.Go(func() {
		if end.orderly {
			// The workers first: the head's service going would look to
			// theirs like a death.
			h.awaitDone(end)
		}
		_ = h.stopDriver(end)
		h.slowSandbox.Wait()
		left = h.stopAll(end)
		close(torn)
		h.keepEvidence(end)
		h.tellDone(left)
		if !end.orderly {
			h.awaitDone(end)
		}
	})
	ends.Wait()
	end.taken = taken
	h.tidyOrders()
	h.tellShare()
	h.tellDropped()
	h.lastWords(end, result, left)
	if !end.orderly {
		h.afterwards(end)
		h.voice.wait() // Slurm kills the step when the first of the others has exited
		h.logged(h.mark(signal.Control, signal.NameOver))
	}
	h.trail.Event(trail.End, trail.Fields{Code: &end.code})
	return end.code
}

// lateLosses is how much later than the verdict the result may be, for who was lost
// with the one that the verdict is about: on a busy machine the kernels of several
// that die at once take their time, one after the other.
const lateLosses = 500 * time.Millisecond

// takeLateLosses adds to the end who was lost besides until all is torn down here,
// which nobody waits for: the verdict stays.
func (h *head) takeLateLosses(end *ending, torn <-chan struct{}) {
	defer h.recorded.Store(true)
	if end.orderly || !health.Loss(health.Kind(end.cause.Kind)) {
		return
	}
	late := time.NewTimer(lateLosses)
	defer late.Stop()
	select {
	case <-torn:
	case <-late.C:
	}
	h.failuresMu.Lock()
	defer h.failuresMu.Unlock()
	all := health.Decide(h.failures, h.id.HostOf)
	besides := append([]signal.FailedRecord{all.Cause}, all.Consequences...)
	cause := slices.IndexFunc(besides, func(f signal.FailedRecord) bool {
		return f.Kind == end.cause.Kind && f.Rank == end.cause.Rank && f.What == end.cause.What
	})
	if cause >= 0 {
		end.consequences, end.nodes = slices.Delete(besides, cause, cause+1), all.BadNodes
	}
}

// announce publishes the end, so that all nodes begin theirs.
func (h *head) announce(end *ending) {
	if end.orderly {
		err := h.publish(signal.Control, signal.NameDrain, &signal.DrainRecord{Code: end.code, Why: end.why}, false)
		h.logged(err)
		h.tellUnwritten(end, err)
		if err != nil && !errors.Is(err, errGoesOn) && h.gate > 0 {
			// The name says enough, and on a share that is full it can still
			// be had: the others are not to take the head for lost.
			h.logged(h.asked("publish", signal.NameDrain, h.cfg.Times.Peer, func(ctx context.Context) error {
				return h.dir.Remark(ctx, signal.Control, signal.NameGo, signal.NameDrain)
			}))
		}
		return
	}
	h.tellUnwritten(end, h.publishAbort(end))
}

// tellUnwritten tells the workers of an end that could not be written, for now or
// at all.
func (h *head) tellUnwritten(end *ending, err error) {
	if err != nil && h.lines != nil {
		h.tellOver(end)
	}
}

// publishAbort publishes a node's end with a cause.
func (n *node) publishAbort(end *ending) error {
	err := n.publish(signal.Control, signal.AbortName(n.id.Rank, n.id.Size), &signal.AbortRecord{
		Code: end.code, Word: end.word, Cause: *end.cause, Nodes: end.nodes,
	}, true)
	n.logged(err)
	return err
}

// stopDriver lets the driver have its grace; who reads its output is waited for
// when all know of the end. A stop that was asked for ends with the driver's own
// code.
func (h *head) stopDriver(end *ending) *ending {
	if h.driver == nil {
		return end
	}
	grace := h.cfg.Times.driverGrace(end)
	if end.gentle && !ended(h.driver) {
		h.log.Info("the driver is told to end", zap.Duration("grace", grace))
	}
	if !end.gentle && ended(h.driver) {
		// Whoever passes its output on, as a tee does, is not ended in the middle
		// of that. All know of the end by now.
		select {
		case <-h.driver.Done():
		case <-h.parting.Done():
		}
	}
	_ = h.driver.End(h.parting, grace, syscall.SIGTERM) // stopAll tells what is left of it
	if end.orderly && end.gentle {
		stopped := *end
		stopped.code = h.driver.Exit().Status()
		return &stopped
	}
	return end
}

// untold is the warning of a node that is waited for in vain.
const untold = "not all nodes have told that they are done"

// awaitDone waits until all nodes whose daemons live have said that nothing of ours
// runs there, for no longer than their graces last.
func (h *head) awaitDone(end *ending) {
	lost := make(map[int]bool)
	if end.cause != nil {
		for _, rank := range end.cause.Lost {
			lost[rank] = true
		}
	}
	within := h.cfg.Times.StopGrace + health.WorkerTempo(h.cfg.Times.Peer, h.id.Size).Look + time.Second
	ctx, cancel := context.WithTimeoutCause(h.hurry, within, errDeadline)
	defer cancel()
	if h.roster.spares {
		h.hear() // who has joined since the last look stands by, and sees the end
	}
	blind := h.silence() > sickShare
	if slices.ContainsFunc(h.unended(lost, blind), func(rank int) bool { return !h.lines.ties(rank) }) {
		h.nodes.Quicken() // the others have us look
	}
	for {
		blind = blind || h.silence() > h.tempo.Silent/2
		missing := h.unended(lost, blind)
		if len(missing) == 0 {
			return
		}
		if !pause.For(ctx, eventPause) {
			h.log.Warn(untold, zap.String("missing", h.hostsOf(missing)), zap.Duration("waited", within))
			return
		}
	}
}

// unended are the nodes, but for those that are lost, of which nothing tells that
// they have ended what runs there.
func (h *head) unended(lost map[int]bool, blind bool) []int {
	last := h.nodes.Last()
	missing := slices.DeleteFunc(last.Missing(signal.Done, h.id.Size), func(rank int) bool {
		return rank == 0 || lost[rank] || h.lines.ended(rank, blind)
	})
	return without(missing, h.roster.absent(last))
}

func (h *head) tellDone(left []string) {
	h.logged(h.publish(signal.Nodes, signal.NodeName(0, h.id.Size, signal.Done), &signal.DoneRecord{Left: left}, false))
}

// writeResult says for good how it ended, and returns what it has said, and
// whether another node had written a result before.
func (h *head) writeResult(end *ending) (result *signal.Result, taken bool) {
	result = h.result(end)
	h.listTeam(result)
	result.Events = h.chronicle.told()
	result.Hosts, result.ToGate, result.Share, result.Lifelines = h.hosts(), h.gate, h.shareReport(), h.lineReport()
	result.Advice = h.account(end, result).Advise()
	err := h.publishResult(result)
	if taken = errors.Is(err, signal.ErrTaken); !taken {
		h.logged(err)
	}
	return result, taken
}

// result is how it all ended, as this node knows it.
func (n *node) result(end *ending) *signal.Result {
	return &signal.Result{
		Run: n.dir.Name(), Size: n.id.Size, Code: end.code, Word: end.word, Why: end.why, Cause: end.cause, Nodes: end.nodes,
		AtPhase: end.phase, AfterGate: end.opened, Consequences: bearable(end.consequences),
		Took: n.trail.Age(), Program: n.cfg.Program, Phases: n.trail.Passed(), Requeue: end.requeue,
	}
}

// publishResult writes the result, or returns ErrTaken where there is one.
func (n *node) publishResult(result *signal.Result) error {
	return n.asked("publish", signal.NameResult, n.cfg.Times.Peer, func(ctx context.Context) error {
		return n.dir.PublishOnce(ctx, signal.NameResult, result)
	})
}
