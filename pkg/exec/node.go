package exec

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Daemon has the functions and data of the daemon that a Head or a Node uses.
type Daemon struct {
	NodeIndex int
	Dir       *signal.Dir
	Control   *signal.Watch
	Log       *zap.Logger
	Trail     *eventlog.EventLog
	// LogWriteError logs an error of writing a file. It does nothing for nil.
	LogWriteError func(error)
	// FileTimeout is the timeout of calls to the shared file system.
	FileTimeout time.Duration
	// RunCtx ends with the run. [Daemon.WorkCtx] ends later, after all remaining work. Go runs a task
	// in a goroutine; its context is [Daemon.WorkCtx].
	RunCtx, WorkCtx context.Context
	Go              func(task func(ctx context.Context))
	// Start starts a command. The stop function that it returns is called at least once.
	Start StartFunc
	// OwnProgramEnv returns environment variables that describe the node. Commands of the daemon's own
	// program receive them: see [Request]. It may be nil.
	OwnProgramEnv func() []string
}

// withFileTimeout returns a context with the timeout of calls to the shared file system.
func (d Daemon) withFileTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d.FileTimeout, errDeadline)
}

var errDeadline = errors.New("the timeout expired")

// Node is the side of every node: it runs commands, and publishes their output.
type Node struct {
	Daemon

	mu            sync.Mutex
	stopped       bool                             // no further commands may start; guarded by mu
	running       map[requestID]context.CancelFunc // guarded by mu
	canceledEarly recentRequests                   // cancelled before their start; guarded by mu
	pending       sync.WaitGroup                   // commands without a published end
}

// NewNode returns a node without commands.
func NewNode(daemon Daemon) *Node {
	return &Node{Daemon: daemon, running: make(map[requestID]context.CancelFunc), canceledEarly: make(recentRequests)}
}

// recentRequests has recent requests, each with the time of the last listing that has shown it. It
// exists because a listing may be stale, and show a request again.
type recentRequests map[requestID]time.Time

// maxListingAge is how long a client of a shared file system may show names that were removed, with
// a large margin.
const maxListingAge = 10 * time.Minute

// addIfNew adds a request that a listing shows, and reports whether it is new. It also removes
// requests that no listing can show any more.
func (l recentRequests) addIfNew(id requestID, at time.Time) bool {
	_, before := l[id]
	l[id] = at
	maps.DeleteFunc(l, func(_ requestID, shown time.Time) bool { return at.Sub(shown) > maxListingAge })
	return !before
}

// HandleOrders watches the control directory for the head's orders, and carries them out, until ctx
// ends.
func (n *Node) HandleOrders(ctx context.Context) {
	read := make(recentRequests)
	_, _ = n.Control.FollowListings(ctx, func(l signal.Listing) bool {
		for id, s := range groupByRequest(l.AllNames(), orderPrefix) {
			if s[cancelSuffix] {
				n.cancelCommand(id)
			}
			if s[""] && read.addIfNew(id, l.PolledAt) {
				n.Go(func(ctx context.Context) { n.handleStartOrder(ctx, id) })
			}
		}
		return false
	})
}

// handleStartOrder reads an order to start a command, and starts the command if the order is for
// this node. If the file system does not respond in time, it reads the order again at each listing
// that shows it. The head may have removed an order for other nodes already.
func (n *Node) handleStartOrder(ctx context.Context, id requestID) {
	for {
		var command startRecord
		err := n.readOrder(ctx, id, &command)
		if err == nil {
			if _, ours := slices.BinarySearch(command.Nodes, n.NodeIndex); ours {
				n.startCommand(command)
			}
			return
		}
		n.Log.Debug("cannot read a request of another bringupd command", zap.Error(err))
		if !errors.Is(err, errDeadline) {
			return
		}
		before := n.Control.LastListing().Polls
		next, err := n.Control.FollowListings(ctx, func(l signal.Listing) bool { return l.Polls > before })
		if err != nil || !next.HasName(id.orderName("")) {
			return
		}
	}
}

// readOrder reads an order to start a command.
func (n *Node) readOrder(ctx context.Context, id requestID, command *startRecord) error {
	ctx, cancel := n.withFileTimeout(ctx)
	defer cancel()
	return n.Dir.ReadRecord(ctx, signal.ControlDir, id.orderName(""), command)
}

// startCommand starts a command in the background. It does nothing if the command was started
// before, or if no further commands may start.
func (n *Node) startCommand(command startRecord) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, twice := n.running[command.ID]; twice || n.stopped {
		return
	}
	wanted, cancel := context.WithCancel(n.WorkCtx)
	if _, early := n.canceledEarly[command.ID]; early {
		cancel()
	}
	n.running[command.ID] = cancel
	n.pending.Add(1)
	n.Go(func(ctx context.Context) {
		defer n.pending.Done()
		n.runCommand(ctx, wanted, command)
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.running, command.ID)
		cancel()
	})
}

// cancelCommand ends a command, or prevents its start.
func (n *Node) cancelCommand(id requestID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cancel, there := n.running[id]; there {
		cancel()
		return
	}
	n.canceledEarly.addIfNew(id, time.Now())
}

// AwaitPublished prevents further commands from starting, and waits at most within until the end of
// each command is published. The commands must have been ended before.
func (n *Node) AwaitPublished(within time.Duration) {
	n.mu.Lock()
	n.stopped = true
	n.mu.Unlock()
	told := make(chan struct{})
	go func() {
		defer close(told)
		n.pending.Wait()
	}()
	ctxutil.AwaitDoneFor(told, within)
}

// runCommand runs a command, and publishes its output and its exit. Its arguments are not logged,
// because they may contain secrets. wanted ends when the command is cancelled.
func (n *Node) runCommand(ctx, wanted context.Context, command startRecord) {
	n.Trail.WriteEvent(eventlog.ExecStarted, eventlog.Fields{ObjectFields: eventlog.ObjectFields{Request: string(command.ID)}})
	if command.OwnProgram && n.OwnProgramEnv != nil {
		command.Env = append(command.Env, n.OwnProgramEnv()...)
	}
	parts := 0
	rest, exit, stop := Command{
		Spec: process.Spec{
			Name: ChildName, Argv: command.commandLine(), Env: command.Env, KeepLines: -1,
		},
		Start: n.Start, MaxDelay: maxPublishDelay, MaxOutput: maxOutput,
		Publish: func(pieces []Piece) error {
			name := command.ID.fileName(partSuffix(n.Dir, n.NodeIndex, parts))
			record := &outputRecord{Output: Output{Pieces: pieces}}
			err := n.Dir.PublishRecord(wanted, signal.ExecDir, name, record, false)
			if err == nil {
				parts++
			} else if wanted.Err() == nil {
				n.LogWriteError(err)
			}
			return err
		},
	}.Run(wanted)
	n.Go(func(context.Context) { stop() }) // in the background: the command itself has ended
	exit.Parts = parts
	n.Trail.WriteEvent(eventlog.ExecEnded, eventlog.Fields{ObjectFields: eventlog.ObjectFields{Request: string(command.ID)}, Exit: exit.Exit})
	ctx, cancel := n.withFileTimeout(ctx)
	defer cancel()
	name := command.ID.fileName(endSuffix(n.Dir, n.NodeIndex))
	last := &outputRecord{Output: Output{Pieces: rest, End: &exit}}
	n.LogWriteError(n.Dir.PublishRecord(ctx, signal.ExecDir, name, last, false))
}

// ChildName is the name of each command as a child process of its daemon.
const ChildName = "the command"
