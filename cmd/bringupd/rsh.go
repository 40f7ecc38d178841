package main

import (
	"context"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/exec/rsh"
	"github.com/bringupd/bringupd/pkg/process"
)

// rshCommand returns the subcommand that launchers use instead of rsh: a host, and a command for a
// shell there, in any number of arguments.
func (inv *invocation) rshCommand() *cli.Command {
	return inv.completeCommand(cli.Command{
		Name: "rsh", Usage: "run a command on another node, for an mpirun that the driver starts",
		UsageText: "bringupd rsh HOST COMMAND...",
		Description: "It takes the place of rsh and ssh where a launcher brings up its daemons: see docs/mpirun.md. The command is one of the run's, on a node of it, and ends when this program does. " +
			"It has the node's environment and no standard input. In another job, which has inherited it, it becomes srun or ssh. Exits with its code; 255 if there is none: the host is none of the run's, its node is lost, or the run is over.",
		SkipFlagParsing: true,
	}, nil, inv.runRsh)
}

func (inv *invocation) runRsh(args []string) error {
	if inv.hasDashes { // a part of the command
		args = append(append(args, "--"), inv.driver...)
	}
	if len(args) < 2 || strings.HasPrefix(args[0], "-") {
		return usageErrorf("cannot tell what to run where: give HOST COMMAND..., without options before them")
	}
	if site := rsh.OtherJobCommand(os.Environ(), args[0], strings.Join(args[1:], " ")); site != nil {
		inv.printMessage("cannot run a command on %s: %v", args[0], process.ReplaceProcess(site, os.Environ()))
		inv.exitCode = rsh.NoCode
		return nil
	}
	return inv.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
		agent := rsh.Agent{Socket: os.Getenv(rsh.SocketVariable), Out: inv.streams.Out, Err: inv.streams.Err}
		code, err := agent.Run(ctx, args[0], strings.Join(args[1:], " "))
		if inv.exitCode = code; err != nil && ctx.Err() == nil {
			inv.printMessage("%v", err)
		}
		return nil
	})
}
