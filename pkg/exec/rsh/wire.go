// Package rsh runs commands on other nodes of a run, for programs that start their own daemons
// there: an mpirun that uses bringupd rsh instead of rsh. The agent (bringupd rsh) sends a request
// to its node's daemon by a Unix socket. That daemon forwards it to the head by an additional
// connection. The head asks the other node's daemon for a connection, and joins the two. So each
// command has its own connections, which end if either side ends, and no node connects to any node
// other than the head.
package rsh

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/bringupd/bringupd/pkg/exec"
)

// Conn is a connection of any kind.
type Conn = io.ReadWriteCloser

// SocketVariable is the environment variable with the path of the daemon's socket, for programs of
// a node.
const SocketVariable = "BRINGUPD_RSH_SOCKET"

// NoCode is the exit code of an agent if the command has none. rsh and ssh use the same.
const NoCode = 255

// request is the first message on a connection, in JSON. The answer is the command's output: a
// stream of gobs, each an [exec.Output]. The last one has the exit.
type request struct {
	Host          string `json:"host,omitempty"`           // the name that the agent gives
	Command       string `json:"command,omitempty"`        // a command line for the shell
	AwaitsCommand bool   `json:"awaits_command,omitempty"` // a node opens the connection to receive a command
}

// maxRequestSize is the maximum size of a request. The kernel accepts at most 128 KiB for one
// argument.
const maxRequestSize = 1 << 20

// writeRequest sends a request.
func writeRequest(conn io.Writer, r request) error { return json.NewEncoder(conn).Encode(r) }

// refuse sends the reason why no command runs.
func refuse(conn io.Writer, err error) {
	_ = gob.NewEncoder(conn).Encode(exec.Output{End: &exec.Exit{Code: NoCode, Failed: err.Error()}})
}

// readRequest reads a request. It may read further than the request, because the sender sends
// nothing after it.
func readRequest(conn io.Reader) (r request, err error) {
	if err = json.NewDecoder(io.LimitReader(conn, maxRequestSize)).Decode(&r); err != nil {
		err = fmt.Errorf("cannot read the request: %v", err)
	}
	return r, err
}

// forwardOutput writes a command's output to out and errs, until its exit arrives.
func forwardOutput(conn io.Reader, out, errs io.Writer) (exec.Exit, error) {
	for from := gob.NewDecoder(conn); ; {
		var got exec.Output
		if err := from.Decode(&got); err != nil {
			return exec.Exit{Code: NoCode}, err
		}
		_ = got.Forward(out, errs) // the exit matters even if the output cannot be written
		if got.End != nil {
			return *got.End, nil
		}
	}
}

// joinConns forwards what a node sends to an agent, until either side has gone or ctx ends. It
// returns the exit of the command, with NoCode if it has not arrived.
func joinConns(ctx context.Context, agent, node Conn) exec.Exit {
	var both sync.WaitGroup
	defer both.Wait()
	defer agent.Close()
	defer context.AfterFunc(ctx, func() { _ = node.Close() })()
	both.Go(func() {
		_, _ = io.Copy(io.Discard, agent) // returns at the end: the agent sends no data
		_ = node.Close()
	})
	ended, _ := forwardOutput(io.TeeReader(node, agent), io.Discard, io.Discard)
	return ended
}
