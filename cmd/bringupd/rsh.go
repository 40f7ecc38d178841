package main

import (
	"context"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/process"
)

// rshCommand returns the subcommand that launchers use instead of rsh: a host, and a command for a
// shell there, in any number of arguments.
func (inv *invocation) rshCommand() *cli.Command {
	return inv.completeCommand(cli.Command{
		Name: "rsh", Usage: "run a command on a node, for an mpirun that the driver starts",
		UsageText: "bringupd rsh HOST COMMAND...",
		Description: "The command replaces rsh and ssh for launchers that start their own daemons: see " +
			"docs/mpirun.md. COMMAND runs on a node of the current run, and is ended when this program ends. " +
			"It has the node's environment and no standard input. In another job that has inherited this " +
			"setting, srun or ssh is run instead. Exits with the command's exit code; 255 if the host is " +
			"not a node of the run, its node is lost, or the run has ended.",
		SkipFlagParsing: true,
	}, nil, inv.runRsh)
}

func (inv *invocation) runRsh(args []string) error {
	if inv.hasDashes { // a part of the command
		args = append(append(args, "--"), inv.driver...)
	}
	if len(args) < 2 || strings.HasPrefix(args[0], "-") {
		return usageErrorf("cannot use these arguments: give HOST COMMAND..., without options before them")
	}
	if site := exec.OtherJobCommand(os.Environ(), args[0], strings.Join(args[1:], " ")); site != nil {
		inv.printMessage("cannot run a command on %s: %v", args[0], process.ReplaceSelf(site, os.Environ()))
		inv.exitCode = exec.NoCode
		return nil
	}
	return inv.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
		agent := exec.Agent{Socket: os.Getenv(exec.SocketVariable), Out: inv.streams.Out, Err: inv.streams.Err}
		code, err := agent.Run(ctx, args[0], strings.Join(args[1:], " "))
		if inv.exitCode = code; err != nil && ctx.Err() == nil {
			inv.printMessage("%v", err)
		}
		return nil
	})
}
