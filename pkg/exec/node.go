package exec

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
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
	// RunCtx ends with the run. Go runs a task in a goroutine; its context ends after all remaining
	// work.
	RunCtx context.Context
	Go     func(task func(ctx context.Context))
	// Start starts the command of a caller, and StartRemote that of an agent. The stop function that
	// they return is called at least once.
	Start, StartRemote StartFunc
	// OwnProgramEnv returns environment variables that describe the node. Commands of the daemon's own
	// program receive them: see [Request].
	OwnProgramEnv func() []string
	Local
}

// Local is how agents on this node reach their daemon, and the daemon the head.
type Local struct {
	// PrivateDir returns a directory that only this user can access, and SocketDir a path of it which
	// is short enough for sockets. The first call makes it.
	PrivateDir, SocketDir func() (string, error)
	// Dial opens an additional connection to the head. It is nil on the head, and without a peer link.
	Dial    func(ctx context.Context) (Conn, error)
	Environ []string // the daemon's environment
}

// withFileTimeout returns a context with the timeout of calls to the shared file system.
func (d Daemon) withFileTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d.FileTimeout, errDeadline)
}

var errDeadline = errors.New("the timeout expired")

// Node is the side of every node: it accepts requests of agents, and runs commands.
type Node struct {
	Daemon
	head         *Head // nil except on the head
	commandCount atomic.Int32
	listenOnce   sync.Once
	socketPath   string // the socket's path; empty if it cannot be made

	mu       sync.Mutex
	stopped  bool                 // no further commands of callers may start; guarded by mu
	orders   map[requestID]*order // guarded by mu
	polledAt time.Time            // time of the latest listing of control/; guarded by mu
	pending  sync.WaitGroup       // commands of callers without a published end
}

// NewNode returns a node without commands.
func NewNode(daemon Daemon) *Node {
	return &Node{Daemon: daemon, orders: make(map[requestID]*order)}
}

// SocketVariable is the environment variable with the path of the daemon's socket, for programs of
// a node.
const SocketVariable = "BRINGUPD_RSH_SOCKET"

// SocketPath returns the path of the socket for agents, which the first call makes. If that has
// failed, it returns an empty string.
func (n *Node) SocketPath() string {
	n.listenOnce.Do(func() {
		dir, err := n.SocketDir()
		var listener net.Listener
		if err == nil {
			listener, err = peerlink.ListenLocal(dir, "rsh")
		}
		if err != nil {
			n.Log.Warn(fmt.Sprintf("programs of this node can't use bringupd rsh: %v", err))
			return
		}
		n.socketPath = listener.Addr().String()
		n.Go(func(ctx context.Context) { peerlink.ServeLocal(ctx, listener, n.handleAgent) })
	})
	return n.socketPath
}

var errNoPeerLink = errors.New("bringupd rsh needs a peer link to the head, and this node has none: " +
	"check --lifeline, and that the node reaches the head's ports")

// handleAgent reads the request of an agent, and serves it. It refuses agents of other users.
func (n *Node) handleAgent(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	_, err := peerlink.AuthenticatePeer(conn)
	var m message
	var further *json.Decoder
	if err == nil {
		m, further, err = readMessage(conn)
	}
	stop() // from here on, the end of ctx ends the command, and this connection after it
	var head Conn
	switch {
	case err != nil:
	case n.head != nil:
		n.head.serveAgent(ctx, 0, conn, m, further)
		return
	case n.Dial == nil:
		err = errNoPeerLink
	default:
		if head, err = n.Dial(ctx); err == nil {
			defer head.Close()
			err = writeMessage(head, message{Host: m.Host, Command: m.Command})
		}
		if err != nil {
			err = fmt.Errorf("cannot reach the head: %v", err)
		}
	}
	if err != nil {
		refused := notStarted(err)
		refused.End.Code = NoCode
		_ = gob.NewEncoder(conn).Encode(refused)
		return
	}
	joinConns(ctx, conn, head)
}

// HandleConnRequest is called when the head requests a connection. In the background, it connects
// to the head, and runs the command that the head sends.
func (n *Node) HandleConnRequest() {
	n.Go(func(ctx context.Context) {
		conn, err := n.Dial(ctx)
		if err != nil {
			return // the head asks again
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		var m message
		var further *json.Decoder
		if err = writeMessage(conn, message{AwaitsCommand: true}); err == nil {
			m, further, err = readMessage(conn)
		}
		if stop(); err != nil {
			return // the connection is not needed any more
		}
		wanted, done := watchPeer(ctx, conn, further)
		defer done()
		to := gob.NewEncoder(conn)
		n.runMessage(wanted, m, func(o Output) error { return to.Encode(o) })
	})
}

// watchPeer returns a context that ends when the other side of a connection cancels its commands, or
// has gone; its further output is discarded then. done closes the connection.
func watchPeer(ctx context.Context, conn Conn, further *json.Decoder) (wanted context.Context, done func()) {
	wanted, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if further.Decode(&message{}) != nil {
			_ = conn.Close()
		}
		cancel()
	}()
	return wanted, func() {
		_ = conn.Close()
		<-gone
	}
}

// runMessage runs the command of a caller or an agent, and passes on its output and its exit.
func (n *Node) runMessage(wanted context.Context, m message, publish func(Output) error) {
	if m.Request == nil {
		n.runRemote(wanted, m.Command, publish)
		return
	}
	c := n.requestCommand(*m.Request)
	c.publish, c.maxOutput = publish, math.MaxInt
	n.runCommand(wanted, m.ID, c, publish)
}

// runRemote runs the command of an agent, and passes on its output and its exit.
func (n *Node) runRemote(wanted context.Context, line string, publish func(Output) error) {
	last, stop := command{
		Spec: process.Spec{
			Name: fmt.Sprintf("rsh %d", n.commandCount.Add(1)), Argv: []string{"/bin/sh", "-c", line},
			Env: []string{
				SocketVariable + "=" + n.SocketPath(),
				jobVariable + "=" + launcher.JobIdentity(launcher.EnvironmentOf(n.Environ)),
			},
		},
		start: n.StartRemote, maxOutput: math.MaxInt, publish: publish,
	}.run(wanted)
	stop()
	_ = publish(last) // the agent may have gone
}

// ChildName is the name of each command of a caller as a child process of its daemon.
const ChildName = "the command"

// requestCommand returns the command of a request. Its arguments are not logged, because they may
// contain secrets.
func (n *Node) requestCommand(request Request) command {
	argv, env := request.Argv, request.Env
	if request.OwnProgram {
		argv, env = append([]string{process.OwnBinary}, argv...), append(env, n.OwnProgramEnv()...)
	}
	spec := process.Spec{Name: ChildName, Argv: argv, Env: env, KeepLines: -1}
	return command{Spec: spec, start: n.Start}
}

// runCommand runs the command of a caller, and passes on what is left of its output, with its exit,
// unless no further commands may start.
func (n *Node) runCommand(wanted context.Context, id string, c command, publish func(Output) error) {
	n.mu.Lock()
	if n.stopped {
		n.mu.Unlock()
		_ = publish(notStarted(errEnding))
		return
	}
	n.pending.Add(1)
	n.mu.Unlock()
	defer n.pending.Done()
	object := eventlog.ObjectFields{Request: id}
	n.Trail.WriteEvent(eventlog.ExecStarted, eventlog.Fields{ObjectFields: object})
	last, stop := c.run(wanted)
	n.Go(func(context.Context) { stop() }) // in the background: the command itself has ended
	n.Trail.WriteEvent(eventlog.ExecEnded, eventlog.Fields{ObjectFields: object, Exit: last.End.Exit})
	_ = publish(last) // the caller may have gone
}

var errEnding = errors.New("the run is ending")

// AwaitPublished prevents further commands from starting, and waits at most within until the end of
// each command is published. The commands must have been ended before.
func (n *Node) AwaitPublished(within time.Duration) {
	n.mu.Lock()
	n.stopped = true
	n.mu.Unlock()
	published := make(chan struct{})
	go func() {
		defer close(published)
		n.pending.Wait()
	}()
	ctxutil.AwaitDoneFor(published, within)
}
