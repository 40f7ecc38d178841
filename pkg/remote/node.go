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

// Conn is a connection, whatever it goes over.
type Conn = io.ReadWriteCloser

// Daemon is what a node's side has of its daemon.
type Daemon struct {
	// Private makes a directory that is this user's alone.
	Private func() (string, error)
	// Start starts a command with the environment of the node's children and what the spec adds. stop ends it, and
	// whatever it has left behind.
	Start func(ctx context.Context, spec process.Spec) (child process.Handle, stop func(), err error)
	// Background runs a task that the daemon waits for, until there is nothing left to do.
	Background func(task func(ctx context.Context))
	// Dial connects to the head, beside the lifeline; nil on the head.
	Dial    func(ctx context.Context) (Conn, error)
	Environ []string // the daemon's
	Log     *zap.Logger
}

// Node is the side of each node: it takes in what agents ask, and runs what others ask for.
type Node struct {
	Daemon
	exchange *Exchange // on the head
	count    atomic.Int32
	listen   sync.Once
	path     string // of the socket; "" where there can't be one
}

// NewNode returns a node that nobody has asked yet.
func NewNode(daemon Daemon) *Node { return &Node{Daemon: daemon} }

// Socket returns where agents ask, which is opened the first time; "" where it can't be.
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

// accept takes agents in until ctx ends.
func (n *Node) accept(ctx context.Context, listener net.Listener) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for ctx.Err() == nil {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			tasks.Go(func() { n.admit(ctx, conn) })
		case !pause.For(ctx, 10*time.Millisecond): // no files left, most likely
		}
	}
}

// admit serves an agent of this user's.
func (n *Node) admit(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	_, err := meeting.Admit(conn)
	var r request
	if err == nil {
		r, err = asked(conn)
	}
	stop() // from here on the command's end is waited for
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

// errNoLine is why an agent gets nowhere on a node without a lifeline.
var errNoLine = errors.New("bringupd rsh goes by lifelines, and this node has none: see --lifeline, and whether nodes reach the head's ports")

// forward has the head serve an agent.
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

// Summoned calls the head in the background, and runs what it wants to be run.
func (n *Node) Summoned() {
	n.Background(func(ctx context.Context) {
		conn, err := n.Dial(ctx)
		if err != nil {
			return // it summons again
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		var r request
		if err = ask(conn, request{Here: true}); err == nil {
			r, err = asked(conn)
		}
		if stop(); err == nil { // or it is not wanted any more
			n.run(ctx, conn, r)
		}
	})
}

// run runs a command to its end, or to that of the connection or of ctx, and tells how it has ended.
func (n *Node) run(ctx context.Context, conn Conn, r request) {
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
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn) // until its end: nothing comes
	}()
	select {
	case <-child.Done():
	case <-gone:
		_ = conn.Close() // what is printed now is for nobody
	case <-ctx.Done():
	}
	stop()
	to.end(exit{Code: child.Exit().Status()})
	_ = conn.Close()
	<-gone
}

// join passes on what comes back to an agent, until either side has gone or ctx ends. It returns how the command has ended,
// by no code where that has not come.
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
