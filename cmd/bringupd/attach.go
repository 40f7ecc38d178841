package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/setting"
)

// attaching is one execution of bringupd attach.
type attaching struct {
	*invocation
	which whichRun
	run   bool
}

func (inv *invocation) attachCommand() *cli.Command {
	a := &attaching{invocation: inv}
	own := setting.List{setting.Yes("run", &a.run, "run the command, and do not only print it").Not(setting.ByVariable), a.which.setting()}
	return inv.command(cli.Command{
		Name: "attach", Usage: "show how to get a shell on a node of a running job, under Slurm",
		UsageText:   "bringupd attach [flags] [NODE] [RUN | LOG-DIRECTORY]",
		Description: "A node is a rank, or a host where no node has that rank; without one, the head is meant. " + aRun + " It prints a command line for a shell.",
	}, setting.Under(otherFlags, own...), a.do)
}

func (a *attaching) do(args []string) error {
	ctx, cancel := inTime(context.Background())
	defer cancel()
	who, run, err := a.which.openNode(ctx, args, true)
	if err != nil {
		return err
	}
	if who == "" || who == "head" {
		who = "0"
	}
	attach := roles.Launcher(run.job.Launcher).Words(run.job.LaunchID).Attach
	if attach == nil {
		return usage("cannot attach to run %s: it was not started by Slurm (but by %q); a command can be run there: bringupd exec --node=%s -- ...", run.Name(), run.job.Launcher, who)
	}
	_, host, err := run.node(ctx, who)
	if err != nil {
		return err
	}
	if host == "" {
		return usage("cannot attach to rank %s: it has not joined yet", who)
	}
	argv := attach(host)
	if !a.run {
		_, err := fmt.Fprintln(a.files.Out, prose.ShellLine(argv...))
		return err
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return usage("cannot run %s: it is not found in PATH; give the line that attach prints on a machine that has it", argv[0])
	}
	return fmt.Errorf("cannot run %s: %v", program, syscall.Exec(program, argv, os.Environ()))
}
