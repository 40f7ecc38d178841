package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// errands are the commands that somebody outside has this node run.
type errands struct {
	mu      sync.Mutex
	ended   bool                                 // there are to be no more; guarded by mu
	running map[signal.ExecID]context.CancelFunc // guarded by mu
	early   lately[signal.ExecID]                // canceled while they were not running; guarded by mu
	pending sync.WaitGroup                       // those whose end is not told yet
}

// begin takes in a command that is to run, unless it was before. One that was
// canceled already, by orders that were read sooner, is canceled at once.
func (e *errands) begin(id signal.ExecID, cancel context.CancelFunc) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, twice := e.running[id]; twice || e.ended {
		return false
	}
	if e.running == nil {
		e.running = make(map[signal.ExecID]context.CancelFunc)
	}
	e.running[id] = cancel
	e.pending.Add(1)
	if _, canceled := e.early[id]; canceled {
		cancel()
	}
	return true
}

// over notes that a command's end is told.
func (e *errands) over(id signal.ExecID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.running, id)
	e.pending.Done()
}

// cancel ends a command that is not wanted any more.
func (e *errands) cancel(id signal.ExecID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if cancel, there := e.running[id]; there {
		cancel()
		return
	}
	if e.early == nil {
		e.early = make(lately[signal.ExecID])
	}
	e.early.fresh([]signal.ExecID{id}, time.Now())
}

// settle waits a moment until the end of each command is told: they were ended
// before.
func (e *errands) settle(within time.Duration) {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	told := make(chan struct{})
	go func() {
		defer close(told)
		e.pending.Wait()
	}()
	select {
	case <-told:
	case <-time.After(within):
	}
}

// followOrders does what the head has the workers do.
func (n *node) followOrders(ctx context.Context) {
	taken := make(lately[int])
	_, _ = n.control.Follow(ctx, func(l signal.Listing) bool {
		for _, number := range taken.fresh(l.Orders(), l.At) {
			n.background(func(ctx context.Context) { n.obey(ctx, number) })
		}
		return false
	})
}

// obey reads orders and begins what they tell this node. Orders that are gone
// again were for others.
func (n *node) obey(ctx context.Context, number int) {
	short, cancel := context.WithTimeoutCause(ctx, n.cfg.Times.Peer, errDeadline)
	defer cancel()
	var orders signal.ExecOrders
	if err := n.dir.Read(short, signal.Control, signal.OrdersName(number), &orders); err != nil {
		n.log.Debug("cannot read what to do for somebody outside", zap.Error(err))
		return
	}
	for _, order := range orders.Start {
		if _, ours := slices.BinarySearch(order.Ranks, n.id.Rank); ours {
			n.run(order)
		}
	}
	for _, id := range orders.Cancel {
		n.errands.cancel(id)
	}
}

// run begins a command. It is told of without its arguments: they may hold what
// is not for a log.
func (n *node) run(order signal.ExecOrder) {
	wanted, cancel := context.WithCancel(n.work)
	if !n.errands.begin(order.ID, cancel) {
		cancel()
		return
	}
	n.background(func(ctx context.Context) {
		defer cancel()
		out := newExecOutput()
		exit := n.carryOut(ctx, wanted, order, out)
		out.close()
		n.trail.Event(trail.ExecEnd, trail.Fields{Request: string(order.ID), Exit: exit.Exit})
		n.sayEnd(ctx, order.ID, out, exit)
		n.errands.over(order.ID)
	})
}

// carryOut runs a command to its end, and returns how it ended.
func (n *node) carryOut(ctx, wanted context.Context, order signal.ExecOrder, out *execOutput) signal.ExecExit {
	n.trail.Event(trail.Exec, trail.Fields{Request: string(order.ID)})
	if n.life.Err() != nil {
		return signal.ExecExit{Code: execFailed, Exit: "not started", Failed: "the run is ending"}
	}
	// A start may hang with the file system of the program, for as long as the
	// caller wants to wait for it.
	starting, started := n.lagging(wanted)
	child, err := n.super.Start(starting, process.Spec{
		Name: "the command", Argv: order.Argv, Env: append(n.execEnv(), order.Env...),
		Stdout: out.stream(1), Stderr: out.stream(2), KeepLines: -1,
	})
	started()
	if err != nil {
		return signal.ExecExit{Code: startCode(err), Exit: "not started", Failed: err.Error()}
	}
	n.adopt(child.Name(), child)
	defer n.background(func(context.Context) {
		child.Stop(n.hurry, n.cfg.Times.StopGrace, syscall.SIGTERM) // what it has left behind
		n.disown(child)
	})
	flushed := make(chan struct{})
	telling, told := context.WithCancel(ctx)
	n.background(func(context.Context) {
		defer close(flushed)
		n.sayParts(telling, order.ID, out)
	})
	select {
	case <-child.Done():
	case <-wanted.Done():
		out.close() // nobody listens any more
		child.Stop(n.hurry, n.cfg.Times.StopGrace, syscall.SIGTERM)
	}
	told()
	<-flushed
	exit := child.Exit()
	return signal.ExecExit{Code: exit.Status(), Exit: exit.String()}
}

// execFailed is the code of a command that could not be started, for none of
// its own reasons.
const execFailed = 125

func startCode(err error) int {
	switch {
	case errors.Is(err, process.ErrNotFound):
		return 127
	case errors.Is(err, process.ErrNotExecutable):
		return 126
	default:
		return execFailed
	}
}

// disown forgets a child of which nothing is left.
func (n *node) disown(child *process.Child) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.children = slices.DeleteFunc(n.children, func(c *process.Child) bool { return c == child })
}

// execEnv is the environment of a command from outside: that of the node's
// other children, and where the service is.
func (n *node) execEnv() []string {
	env := n.childEnv(n.cfg.Environ, n.seat.Load())
	if surroundings := n.surroundings.Load(); surroundings != nil {
		env = driverEnv(env, surroundings.hosts, surroundings.endpoint)
	}
	return env
}

// surroundings are what commands from outside are told of the run, once it is
// known.
type surroundings struct {
	endpoint framework.Endpoint
	hosts    []string // of the team; on the head alone
}

// sayParts publishes what a command says while it runs: soon at first, and the
// more rarely the longer it runs.
func (n *node) sayParts(ctx context.Context, id signal.ExecID, out *execOutput) {
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-out.some:
		}
		if !pause.For(ctx, min(max(soonestPart, time.Since(began)/8), latestPart)) {
			return
		}
		for pieces := out.take(); len(pieces) > 0; pieces = out.take() {
			name := id.PartName(n.id.Rank, n.id.Size, out.parts)
			if err := n.dir.Publish(n.work, signal.Exec, name, &signal.ExecOutput{Pieces: pieces}, false); err != nil {
				n.logged(err)
				out.close()
				return
			}
			out.parts++
		}
	}
}

// The pauses before a piece of output is passed on.
const (
	soonestPart = 20 * time.Millisecond
	latestPart  = 250 * time.Millisecond
)

// sayEnd publishes the last output and how the command ended.
func (n *node) sayEnd(ctx context.Context, id signal.ExecID, out *execOutput, exit signal.ExecExit) {
	ctx, cancel := context.WithTimeoutCause(ctx, n.cfg.Times.Peer, errDeadline)
	defer cancel()
	exit.Parts, exit.Dropped = out.parts, out.lost()
	n.logged(n.dir.Publish(ctx, signal.Exec, id.EndName(n.id.Rank, n.id.Size), &signal.ExecOutput{Pieces: out.take(), End: &exit}, false))
}
