package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/bringupd/bringupd/pkg/roles"
)

// Agent is what takes the place of rsh on a node.
type Agent struct {
	Socket   string // of the node's daemon
	Out, Err io.Writer
}

// Run has a shell on another node run a command, passes on what it prints, and returns its code. Where ctx ends, so does
// the command. Its error says why there is no code of the command's.
func (a Agent) Run(ctx context.Context, host, command string) (code int, err error) {
	if a.Socket == "" {
		return NoCode, fmt.Errorf("cannot run a command on %s: %s is not set; it is for programs that a run's driver starts", host, SocketVariable)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", a.Socket)
	if err != nil {
		return NoCode, fmt.Errorf("cannot run a command on %s: the daemon of this node does not answer: %v", host, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := ask(conn, request{Host: host, Command: command}); err != nil {
		return NoCode, fmt.Errorf("cannot run a command on %s: %v", host, err)
	}
	ended, err := a.pass(conn)
	switch {
	case ctx.Err() != nil:
		return NoCode, context.Cause(ctx)
	case err != nil:
		return NoCode, fmt.Errorf("cannot tell how the command on %s has ended (%v): its node is lost, or the run is over", host, err)
	case ended.Failed != "":
		return ended.Code, errors.New(ended.Failed)
	}
	return ended.Code, nil
}

// Outside returns the command by which another job than that of the run runs one on a host of its own; nil
// in the run's job. A job that a driver submits inherits the agent of the driver's mpirun.
func Outside(environ []string, host, command string) []string {
	env := roles.EnvironmentOf(environ)
	made, _ := env(jobVariable)
	switch {
	case made == "" || !roles.IsOther(env, made):
		return nil
	case roles.Managed(env):
		return []string{"srun", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--nodelist=" + host, "--overlap", "--cpu-bind=none", "--mpi=none",
			"--kill-on-bad-exit=1", "--input=none", "/bin/sh", "-c", command}
	default:
		return []string{"ssh", "-x", host, command}
	}
}

// pass passes on what comes until it is told the end.
func (a Agent) pass(conn io.Reader) (ended exit, err error) {
	for {
		kind, data, err := next(conn)
		switch {
		case err != nil:
			return ended, err
		case kind == frameExit:
			return ended, json.Unmarshal(data, &ended)
		case kind == frameErr:
			_, _ = a.Err.Write(data) // who does not read it has the code nevertheless
		default:
			_, _ = a.Out.Write(data)
		}
	}
}
