package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/meeting"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
)

// Conn is a connection of any kind.
type Conn = io.ReadWriteCloser

// Daemon has the functions and data of the daemon that a Node uses.
type Daemon struct {
	// Private returns a directory that only this user can access. The first call makes it.
	Private func() (string, error)
	// Start starts a command with the environment of the node's children and the additions of spec.
	// stop ends the command, and the processes that it has left behind.
	Start func(ctx context.Context, spec process.Spec) (child process.Handle, stop func(), err error)
	// Background runs a task in a goroutine. The daemon waits for it before it ends. Its context ends
	// when the daemon has nothing left to do.
	Background func(task func(ctx context.Context))
	// Dial opens an additional connection to the head. It is nil on the head.
	Dial    func(ctx context.Context) (Conn, error)
	Environ []string // the daemon's environment
	Log     *zap.Logger
}

// Node is the side of every node: it accepts requests of agents, and runs commands.
type Node struct {
	Daemon
	exchange *Exchange // nil except on the head
	count    atomic.Int32
	listen   sync.Once
	path     string // the socket's path; empty if it cannot be made
}

// NewNode returns a node without a socket.
func NewNode(daemon Daemon) *Node { return &Node{Daemon: daemon} }

// Socket returns the path of the socket for agents, which the first call makes. If that has failed,
// it returns an empty string.
func (n *Node) Socket() string {
	n.listen.Do(func() {
		dir, err := n.Private()
		var listener net.Listener
		if err == nil {
			listener, err = meeting.Listen(dir, "rsh")
		}
		if err != nil {
			n.Log.Warn(fmt.Sprintf("programs of this node can't use bringupd rsh: %v", err))
			return
		}
		n.path = listener.Addr().String()
		n.Background(func(ctx context.Context) { n.accept(ctx, listener) })
	})
	return n.path
}

// accept accepts agents until ctx ends.
func (n *Node) accept(ctx context.Context, listener net.Listener) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for ctx.Err() == nil {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			tasks.Go(func() { n.admit(ctx, conn) })
		case !pause.For(ctx, 10*time.Millisecond): // most likely no file descriptors are left: retry soon
		}
	}
}

// admit reads the request of an agent, and serves it. It refuses agents of other users.
func (n *Node) admit(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	_, err := meeting.Admit(conn)
	var r request
	if err == nil {
		r, err = asked(conn)
	}
	stop() // from here on, the end of ctx ends the command, and this connection after it
	if err != nil {
		refuse(conn, err)
		return
	}
	if n.exchange != nil {
		n.exchange.serve(ctx, 0, conn, r)
		return
	}
	n.forward(ctx, conn, r)
}

// errNoLine is the reason for a refusal on a node without a peer link.
var errNoLine = errors.New("bringupd rsh goes by lifelines, and this node has none: see --lifeline, and whether nodes reach the head's ports")

// forward sends an agent's request to the head, and forwards what comes back.
func (n *Node) forward(ctx context.Context, agent Conn, r request) {
	if n.Dial == nil {
		refuse(agent, fmt.Errorf("cannot run a command on %s: %w", r.Host, errNoLine))
		return
	}
	head, err := n.Dial(ctx)
	if err == nil {
		err = ask(head, r)
	}
	if err != nil {
		refuse(agent, fmt.Errorf("cannot run a command on %s: cannot reach the head: %v", r.Host, err))
		return
	}
	join(ctx, agent, head)
}

// Summoned is called when the head requests a connection. In the background, it connects to the
// head, and runs the command that the head sends.
func (n *Node) Summoned() {
	n.Background(func(ctx context.Context) {
		conn, err := n.Dial(ctx)
		if err != nil {
			return // the head asks again
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		var r request
		if err = ask(conn, request{Here: true}); err == nil {
			r, err = asked(conn)
		}
		if stop(); err == nil { // otherwise the connection is not needed any more
			n.run(ctx, conn, r)
		}
	})
}

// run runs a command until it ends, the connection ends or ctx ends. It sends the command's output
// and its exit.
func (n *Node) run(ctx context.Context, conn Conn, r request) {
	// Start the command. Its output goes to the agent.
	to := &back{conn: conn}
	number := n.count.Add(1)
	child, stop, err := n.Start(ctx, process.Spec{
		Name: fmt.Sprintf("rsh %d", number), Argv: process.Kept("/bin/sh", "-c", r.Command), Env: []string{SocketVariable + "=" + n.Socket(), jobVariable + "=" + roles.JobOf(roles.EnvironmentOf(n.Environ))},
		Stdout: stream{to, frameOut}, Stderr: stream{to, frameErr},
	})
	if err != nil {
		to.end(exit{Code: NoCode, Failed: fmt.Sprintf("cannot run a command on %s: %v", r.Host, err)})
		return
	}
	// Detect the end of the connection.
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn) // returns at the end: the agent sends no data
	}()
	select {
	case <-child.Done():
	case <-gone:
		_ = conn.Close() // discard further output
	case <-ctx.Done():
	}
	// End the command if it still runs, and send its exit.
	stop()
	to.end(exit{Code: child.Exit().Status()})
	_ = conn.Close()
	<-gone
}

// join forwards frames from a node to an agent, until either side has gone or ctx ends. It returns
// the exit of the command, with NoCode if it has not arrived.
func join(ctx context.Context, agent, from Conn) (ended exit) {
	var both sync.WaitGroup
	defer both.Wait()
	defer agent.Close()
	defer context.AfterFunc(ctx, func() { _ = from.Close() })()
	both.Go(func() {
		_, _ = io.Copy(io.Discard, agent)
		_ = from.Close()
	})
	to := &back{conn: agent}
	for {
		kind, data, err := next(from)
		if err != nil || to.send(kind, data) != nil {
			return exit{Code: NoCode}
		}
		if kind == frameExit && json.Unmarshal(data, &ended) == nil {
			return ended
		}
	}
}
