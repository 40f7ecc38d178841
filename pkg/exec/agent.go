package exec

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// Agent is bringupd rsh, which replaces rsh on a node.
type Agent struct {
	Socket   string // path of the socket of this node's daemon
	Out, Err io.Writer
}

// Run runs a command in a shell on another node, forwards its output, and returns its exit code. If
// ctx ends, the command is ended. If there is no exit code, Run returns NoCode and an error with
// the reason.
func (a Agent) Run(ctx context.Context, host, command string) (code int, err error) {
	var conn net.Conn
	var dialer net.Dialer
	if a.Socket == "" {
		err = fmt.Errorf("%s is not set; bringupd rsh works only in programs that a run's driver starts",
			SocketVariable)
	} else if conn, err = dialer.DialContext(ctx, "unix", a.Socket); err != nil {
		err = fmt.Errorf("the daemon of this node does not respond: %v", err)
	} else {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		err = writeMessage(conn, message{Host: host, Command: command})
	}
	if err != nil {
		return NoCode, fmt.Errorf("cannot run a command on %s: %v", host, err)
	}
	// The exit matters even if the output cannot be written.
	ended, err := receiveOutput(conn, func(o Output) { _ = o.Forward(a.Out, a.Err) })
	switch {
	case ctx.Err() != nil:
		return NoCode, context.Cause(ctx)
	case err != nil:
		return NoCode, fmt.Errorf("cannot determine how the command on %s ended (%v): "+
			"its node is lost, or the run is over", host, err)
	case ended.Failed != "":
		return ended.Code, fmt.Errorf("cannot run a command on %s: %s", host, ended.Failed)
	}
	return ended.Code, nil
}

// OtherJobCommand returns the command that runs a command on a host of this job without bringupd,
// if the agent runs in another job than the run that has set its environment. This happens if a
// driver submits a job, which inherits the agent of the driver's mpirun. In the run's own job it
// returns nil.
func OtherJobCommand(environ []string, host, command string) []string {
	env := launcher.EnvironmentOf(environ)
	made, _ := env(jobVariable)
	switch {
	case made == "" || !launcher.IsOtherJob(env, made):
		return nil
	case launcher.IsSlurmJob(env):
		return []string{
			"srun", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--nodelist=" + host, "--overlap",
			"--mem=0", "--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=1", "--input=none",
			"/bin/sh", "-c", command,
		}
	default:
		return []string{"ssh", "-x", host, command}
	}
}
