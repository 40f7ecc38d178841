package request

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// Daemon has the functions and data of the daemon that a Head or a Node uses.
type Daemon struct {
	Rank    int
	Dir     *signal.Dir
	Control *signal.Watch
	Log     *zap.Logger
	Trail   *trail.Trail
	// Told logs an error of writing a file. It does nothing for nil.
	Told func(error)
	// Within is the timeout of calls to the shared file system.
	Within time.Duration
	// Life ends with the run. [Daemon.Work] ends later, after all remaining work. Go runs a task in a
	// goroutine; its context is [Daemon.Work].
	Life, Work context.Context
	Go         func(task func(ctx context.Context))
	// Start starts a command. The stop function that it returns is called at least once.
	Start Start
	// About returns environment variables that describe the node. Commands of the daemon's own program
	// receive them: see [Order]. It may be nil.
	About func() []string
}

// Start is a function that starts a command with the environment of the node's children and the
// additions of spec. stop ends the command, and the processes that it has left behind, by SIGTERM,
// a grace period and SIGKILL.
type Start = func(ctx context.Context, spec process.Spec) (child process.Handle, stop func(), err error)

// within returns a context with the timeout of calls to the shared file system.
func (d Daemon) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d.Within, errDeadline)
}

var errDeadline = errors.New("the deadline passed")

// Node is the side of every node: it runs commands, and publishes their output.
type Node struct {
	Daemon

	mu       sync.Mutex
	ended    bool                             // no further commands may start; guarded by mu
	running  map[requestID]context.CancelFunc // guarded by mu
	canceled lately                           // cancelled before their start; guarded by mu
	pending  sync.WaitGroup                   // commands without a published end
}

// NewNode returns a node without commands.
func NewNode(daemon Daemon) *Node {
	return &Node{Daemon: daemon, running: make(map[requestID]context.CancelFunc), canceled: make(lately)}
}

// lately has recent requests, each with the time of the last listing that has shown it. It exists
// because a listing may be stale, and show a request again.
type lately map[requestID]time.Time

// oldestListing is how long a client of a shared file system may show names that were removed, with
// a large margin.
const oldestListing = 10 * time.Minute

// fresh adds a request that a listing shows, and reports whether it is new. It also removes
// requests that no listing can show any more.
func (l lately) fresh(id requestID, at time.Time) bool {
	_, before := l[id]
	l[id] = at
	maps.DeleteFunc(l, func(_ requestID, shown time.Time) bool { return at.Sub(shown) > oldestListing })
	return !before
}

// FollowOrders watches the control directory for the head's orders, and carries them out, until ctx
// ends.
func (n *Node) FollowOrders(ctx context.Context) {
	read := make(lately)
	_, _ = n.Control.Follow(ctx, func(l signal.Listing) bool {
		for id, s := range requestsShown(l.Names(), kindOrder) {
			if s[whatCancel] {
				n.cancel(id)
			}
			if s[""] && read.fresh(id, l.At) {
				n.Go(func(ctx context.Context) { n.obey(ctx, id) })
			}
		}
		return false
	})
}

// obey reads an order to start a command, and starts the command if the order is for this node. The
// head may have removed an order for other nodes already.
func (n *Node) obey(ctx context.Context, id requestID) {
	ctx, cancel := n.within(ctx)
	defer cancel()
	var command startRecord
	if err := n.Dir.Read(ctx, signal.Control, id.order(""), &command); err != nil {
		n.Log.Debug("cannot read what to do for somebody outside", zap.Error(err))
		return
	}
	if _, ours := slices.BinarySearch(command.Ranks, n.Rank); ours {
		n.begin(command)
	}
}

// begin starts a command in the background. It does nothing if the command was started before, or
// if no further commands may start.
func (n *Node) begin(command startRecord) {
	wanted, cancel := context.WithCancel(n.Work)
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, twice := n.running[command.ID]; twice || n.ended {
		cancel()
		return
	}
	if _, early := n.canceled[command.ID]; early {
		cancel()
	}
	n.running[command.ID] = cancel
	n.pending.Add(1)
	n.Go(func(ctx context.Context) {
		defer n.pending.Done()
		n.run(ctx, wanted, command)
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.running, command.ID)
		cancel()
	})
}

// cancel ends a command, or prevents its start.
func (n *Node) cancel(id requestID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cancel, there := n.running[id]; there {
		cancel()
		return
	}
	n.canceled.fresh(id, time.Now())
}

// Settle prevents further commands from starting, and waits at most within until the end of each
// command is published. The commands must have been ended before.
func (n *Node) Settle(within time.Duration) {
	n.mu.Lock()
	n.ended = true
	n.mu.Unlock()
	told := make(chan struct{})
	go func() {
		defer close(told)
		n.pending.Wait()
	}()
	pause.Until(told, within)
}

// run runs a command, and publishes its exit and the rest of its output. Its arguments are not
// logged, because they may contain secrets. wanted ends when the command is cancelled.
func (n *Node) run(ctx, wanted context.Context, command startRecord) {
	n.Trail.Event(trail.Exec, trail.Fields{Request: string(command.ID)})
	out := newOutput()
	rest, exit := n.carryOut(wanted, command, out)
	exit.Dropped = out.dropped.Load()
	n.Trail.Event(trail.ExecEnd, trail.Fields{Request: string(command.ID), Exit: exit.Exit})
	ctx, cancel := n.within(ctx)
	defer cancel()
	name := command.ID.name(end(n.Dir, n.Rank))
	n.Told(n.Dir.Publish(ctx, signal.Exec, name, &outputRecord{Pieces: rest, End: &exit}, false))
}

// carryOut runs a command until it has ended or is cancelled. It publishes its output, and returns
// the exit and the output that is not published yet.
func (n *Node) carryOut(wanted context.Context, command startRecord, out *output) (rest []piece, exit Exit) {
	if n.Life.Err() != nil {
		return nil, Exit{Code: notStarted, Exit: "not started", Failed: "the run is ending"}
	}
	if command.Own && n.About != nil {
		command.Env = append(command.Env, n.About()...)
	}
	// Start the command.
	child, stop, err := n.Start(wanted, process.Spec{
		Name: ChildName, Argv: command.argv(), Env: command.Env, Stdout: stream{out, 1}, Stderr: stream{out, 2}, KeepLines: -1,
	})
	if err != nil {
		return nil, Exit{Code: startCode(err), Exit: "not started", Failed: err.Error()}
	}
	// Publish its output until it has ended or is cancelled.
	rest = out.passOn(child.Done(), wanted.Done(), func(pieces []piece) error {
		name := command.ID.name(part(n.Dir, n.Rank, exit.Parts))
		err := n.Dir.Publish(wanted, signal.Exec, name, &outputRecord{Pieces: pieces}, false)
		if err == nil {
			exit.Parts++
		} else if wanted.Err() == nil {
			n.Told(err)
		}
		return err
	})
	// End it, or the processes that it has left behind.
	select {
	case <-child.Done():
		n.Go(func(context.Context) { stop() }) // in the background: the command itself has ended
	default:
		stop()
	}
	ended := child.Exit()
	exit.Code, exit.Exit = ended.Status(), ended.String()
	return rest, exit
}

// ChildName is the name of each command as a child process of its daemon.
const ChildName = "the command"

// notStarted is the exit code of a command that could not be started, if the command itself is not
// the reason.
const notStarted = 125

// startCode returns the exit code of a command that could not be started.
func startCode(err error) int {
	switch {
	case errors.Is(err, process.ErrNotFound):
		return 127
	case errors.Is(err, process.ErrNotExecutable):
		return 126
	default:
		return notStarted
	}
}
