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

// Daemon is what a node's side has of its daemon.
type Daemon struct {
	Rank    int
	Dir     *signal.Dir
	Control *signal.Watch
	Log     *zap.Logger
	Trail   *trail.Trail
	// Told says that something could not be written, where it has an error.
	Told func(error)
	// Within is how long the share may take for a request.
	Within time.Duration
	// Life ends with the run, Work after all that is still to be done then. Go runs a
	// task until the end of Work, which is its context.
	Life, Work context.Context
	Go         func(task func(ctx context.Context))
	// Start starts a command. Its stop is called at least once.
	Start Start
	// About returns variables that tell the daemon's own program of the node, where an order is for that; nil: none.
	About func() []string
}

// Start starts a command with the environment of the node's children and what the spec adds. stop ends it, and whatever
// it has left behind, by TERM, grace and KILL.
type Start = func(ctx context.Context, spec process.Spec) (child process.Handle, stop func(), err error)

// within bounds a request to the share.
func (d Daemon) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d.Within, errDeadline)
}

var errDeadline = errors.New("the deadline passed")

// Node is the side of each node: it runs commands, and tells what they say.
type Node struct {
	Daemon

	mu       sync.Mutex
	ended    bool                             // no command is to begin any more; guarded by mu
	running  map[requestID]context.CancelFunc // guarded by mu
	canceled lately                           // by orders that were read before the command's; guarded by mu
	pending  sync.WaitGroup                   // commands whose end is not published yet
}

// NewNode returns a node that runs nothing yet.
func NewNode(daemon Daemon) *Node {
	return &Node{Daemon: daemon, running: make(map[requestID]context.CancelFunc), canceled: make(lately)}
}

// lately are requests that were seen, and when a listing has shown them last: the
// next may be an old one, which shows them again.
type lately map[requestID]time.Time

// oldestListing is for how long, by far, a client of a share may go on showing
// names that are gone.
const oldestListing = 10 * time.Minute

// fresh tells whether a request that a listing shows is new, which it is not the next
// time, and forgets what no listing can show any more.
func (l lately) fresh(id requestID, at time.Time) bool {
	_, before := l[id]
	l[id] = at
	maps.DeleteFunc(l, func(_ requestID, shown time.Time) bool { return at.Sub(shown) > oldestListing })
	return !before
}

// FollowOrders does what the head orders, until ctx ends.
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

// obey reads an order to begin, and does so where it is for this node. One that is
// gone again was for others.
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

// begin begins a command, unless it was begun before or none is to begin any more.
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

// cancel ends a command that is not wanted any more.
func (n *Node) cancel(id requestID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cancel, there := n.running[id]; there {
		cancel()
		return
	}
	n.canceled.fresh(id, time.Now())
}

// Settle has no command begin any more, and waits until the end of each is told,
// for so long at most: they were ended before.
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

// run runs a command to its end, and tells how it ended. Its arguments are in no log:
// they may hold what is not to stay.
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

// carryOut runs a command until it has ended or is not wanted any more, and returns
// the output that is not published yet.
func (n *Node) carryOut(wanted context.Context, command startRecord, out *output) (rest []piece, exit Exit) {
	if n.Life.Err() != nil {
		return nil, Exit{Code: notStarted, Exit: "not started", Failed: "the run is ending"}
	}
	if command.Own && n.About != nil {
		command.Env = append(command.Env, n.About()...)
	}
	child, stop, err := n.Start(wanted, process.Spec{
		Name: ChildName, Argv: command.argv(), Env: command.Env, Stdout: stream{out, 1}, Stderr: stream{out, 2}, KeepLines: -1,
	})
	if err != nil {
		return nil, Exit{Code: startCode(err), Exit: "not started", Failed: err.Error()}
	}
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
	select {
	case <-child.Done():
		n.Go(func(context.Context) { stop() }) // what it has left behind
	default:
		stop()
	}
	ended := child.Exit()
	exit.Code, exit.Exit = ended.Status(), ended.String()
	return rest, exit
}

// ChildName is what every command is called, as a child of its daemon.
const ChildName = "the command"

// notStarted is the code of a command that could not be started, for none of its own
// reasons.
const notStarted = 125

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
