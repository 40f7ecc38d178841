package rsh

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"

	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// Node is the side of every node: it accepts requests of agents, and runs commands.
type Node struct {
	exec.Daemon
	// PrivateDir returns a directory that only this user can access. The first call makes it.
	PrivateDir func() (string, error)
	// SocketDir returns a path of that directory which is short enough for sockets.
	SocketDir func() (string, error)
	// Dial opens an additional connection to the head. It is nil on the head.
	Dial    func(ctx context.Context) (Conn, error)
	Environ []string // the daemon's environment

	broker       *Broker // nil except on the head
	commandCount atomic.Int32
	listenOnce   sync.Once
	socketPath   string // the socket's path; empty if it cannot be made
}

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
	var head Conn
	switch {
	case err != nil:
	case n.broker != nil:
		n.broker.serveAgent(ctx, 0, conn, r)
		return
	case n.Dial == nil:
		err = errNoPeerLink
	default:
		if head, err = n.Dial(ctx); err == nil {
			defer head.Close()
			err = writeRequest(head, r)
		}
		if err != nil {
			err = fmt.Errorf("cannot reach the head: %v", err)
		}
	}
	if err != nil {
		refuse(conn, err)
		return
	}
	joinConns(ctx, conn, head)
}

// errNoPeerLink is the reason for a refusal on a node without a peer link.
var errNoPeerLink = errors.New("bringupd rsh needs a peer link to the head, and this node has none: " +
	"check --lifeline, and that the node reaches the head's ports")

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
	// Detect the end of the connection.
	wanted, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn) // returns at the end: the agent sends no data
		_ = conn.Close()                 // discard further output
		cancel()
	}()
	to, number := gob.NewEncoder(conn), n.commandCount.Add(1)
	rest, exit, stop := exec.Command{
		Spec: process.Spec{
			Name: fmt.Sprintf("rsh %d", number), Argv: process.WithKeeper("/bin/sh", "-c", r.Command),
			Env: []string{
				SocketVariable + "=" + n.SocketPath(),
				jobVariable + "=" + launcher.JobIdentity(launcher.EnvironmentOf(n.Environ)),
			},
		},
		Start: n.Start, MaxOutput: math.MaxInt,
		Publish: func(pieces []exec.Piece) error { return to.Encode(exec.Output{Pieces: pieces}) },
	}.Run(wanted)
	stop()
	if exit.Failed != "" {
		exit.Code = NoCode
	}
	_ = to.Encode(exec.Output{Pieces: rest, End: &exit}) // the agent may have gone
	_ = conn.Close()
	<-gone
}
