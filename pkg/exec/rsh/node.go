package rsh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
)

// Conn is a connection of any kind.
type Conn = io.ReadWriteCloser

// Daemon has the functions and data of the daemon that a Node uses.
type Daemon struct {
	// PrivateDir returns a directory that only this user can access. The first call makes it.
	PrivateDir func() (string, error)
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
	broker       *Broker // nil except on the head
	commandCount atomic.Int32
	listenOnce   sync.Once
	socketPath   string // the socket's path; empty if it cannot be made
}

// NewNode returns a node without a socket.
func NewNode(daemon Daemon) *Node { return &Node{Daemon: daemon} }

// SocketPath returns the path of the socket for agents, which the first call makes. If that has
// failed, it returns an empty string.
func (n *Node) SocketPath() string {
	n.listenOnce.Do(func() {
		dir, err := n.PrivateDir()
		var listener net.Listener
		if err == nil {
			listener, err = peerlink.ListenLocal(dir, "rsh")
		}
		if err != nil {
			n.Log.Warn(fmt.Sprintf("programs of this node can't use bringupd rsh: %v", err))
			return
		}
		n.socketPath = listener.Addr().String()
		n.Background(func(ctx context.Context) { peerlink.ServeLocal(ctx, listener, n.handleAgent) })
	})
	return n.socketPath
}

// handleAgent reads the request of an agent, and serves it. It refuses agents of other users.
func (n *Node) handleAgent(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	_, err := peerlink.AuthenticatePeer(conn)
	var r request
	if err == nil {
		r, err = readRequest(conn)
	}
	stop() // from here on, the end of ctx ends the command, and this connection after it
	if err != nil {
		writeRefusal(conn, err)
		return
	}
	if n.broker != nil {
		n.broker.serveAgent(ctx, 0, conn, r)
		return
	}
	n.forwardToHead(ctx, conn, r)
}

// errNoPeerLink is the reason for a refusal on a node without a peer link.
var errNoPeerLink = errors.New("bringupd rsh needs a peer link to the head, and this node has none: check --lifeline, and that the node reaches the head's ports")

// forwardToHead sends an agent's request to the head, and forwards what comes back.
func (n *Node) forwardToHead(ctx context.Context, agent Conn, r request) {
	if n.Dial == nil {
		writeRefusal(agent, fmt.Errorf("cannot run a command on %s: %w", r.Host, errNoPeerLink))
		return
	}
	head, err := n.Dial(ctx)
	if err == nil {
		err = writeRequest(head, r)
	}
	if err != nil {
		writeRefusal(agent, fmt.Errorf("cannot run a command on %s: cannot reach the head: %v", r.Host, err))
		return
	}
	forwardFrames(ctx, agent, head)
}

// HandleConnRequest is called when the head requests a connection. In the background, it connects
// to the head, and runs the command that the head sends.
func (n *Node) HandleConnRequest() {
	n.Background(func(ctx context.Context) {
		conn, err := n.Dial(ctx)
		if err != nil {
			return // the head asks again
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		var r request
		if err = writeRequest(conn, request{AwaitsCommand: true}); err == nil {
			r, err = readRequest(conn)
		}
		if stop(); err == nil { // otherwise the connection is not needed any more
			n.runCommand(ctx, conn, r)
		}
	})
}

// runCommand runs a command until it ends, the connection ends or ctx ends. It sends the command's
// output and its exit.
func (n *Node) runCommand(ctx context.Context, conn Conn, r request) {
	// Start the command. Its output goes to the agent.
	to := &frameWriter{conn: conn}
	number := n.commandCount.Add(1)
	child, stop, err := n.Start(ctx, process.Spec{
		Name: fmt.Sprintf("rsh %d", number), Argv: process.WithKeeper("/bin/sh", "-c", r.Command), Env: []string{SocketVariable + "=" + n.SocketPath(), jobVariable + "=" + roles.JobIdentity(roles.EnvironmentOf(n.Environ))},
		Stdout: outputStream{to, frameStdout}, Stderr: outputStream{to, frameStderr},
	})
	if err != nil {
		to.writeExit(commandExit{Code: NoCode, Failed: fmt.Sprintf("cannot run a command on %s: %v", r.Host, err)})
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
	to.writeExit(commandExit{Code: child.Exit().ShellStatus()})
	_ = conn.Close()
	<-gone
}

// forwardFrames forwards frames from a node to an agent, until either side has gone or ctx ends. It
// returns the exit of the command, with NoCode if it has not arrived.
func forwardFrames(ctx context.Context, agent, from Conn) (ended commandExit) {
	var both sync.WaitGroup
	defer both.Wait()
	defer agent.Close()
	defer context.AfterFunc(ctx, func() { _ = from.Close() })()
	both.Go(func() {
		_, _ = io.Copy(io.Discard, agent)
		_ = from.Close()
	})
	to := &frameWriter{conn: agent}
	for {
		kind, data, err := readFrame(from)
		if err != nil || to.writeFrame(kind, data) != nil {
			return commandExit{Code: NoCode}
		}
		if kind == frameExit && json.Unmarshal(data, &ended) == nil {
			return ended
		}
	}
}
