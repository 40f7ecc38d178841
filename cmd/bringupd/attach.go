package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/roles"
)

// attaching is one call of bringupd attach.
type attaching struct {
	*invocation
	own   settings
	which whichRun
	run   bool
}

func (inv *invocation) attachCommand() *cli.Command {
	a := &attaching{invocation: inv}
	a.own = under(otherFlags, settings{notByVariable(yes("run", &a.run, "run the command, and do not only print it")), a.which.setting()})
	return &cli.Command{
		Name: "attach", Usage: "show how to get a shell on a node of a running job, under Slurm",
		UsageText:   "bringupd attach [flags] [NODE] [RUN | LOG-DIRECTORY]",
		Description: "A node is a rank, or a host where no node has that rank; without one, the head is meant. " + aRun + " It prints a command line for a shell.",
		Flags:       a.own.flags(func(*setting) bool { return true }),
		Action:      a.action,
	}
}

func (a *attaching) action(c *cli.Context) error {
	if a.dashed {
		return usage("cannot take a command: bringupd exec runs one, and attach opens a shell")
	}
	if _, err := a.own.gather(os.LookupEnv); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), stopTimeout, errStopTimeout)
	defer cancel()
	who, path, err := a.which.whoAndWhich(ctx, c.Args().Slice())
	if err != nil {
		return wrongRun(err)
	}
	if who == "" || who == "head" {
		who = "0"
	}
	dir, job, err := openLive(ctx, path)
	if err != nil {
		return err
	}
	attach := roles.Launcher(job.Launcher).Words(job.LaunchID).Attach
	if attach == nil {
		return usage("cannot attach to run %s: it was not started by Slurm (but by %q); a command can be run there: bringupd exec --node=%s -- ...", dir.Name(), job.Launcher, who)
	}
	_, host, err := nodeOf(ctx, dir, job.Size, who)
	if err != nil {
		return err
	}
	if host == "" {
		return usage("cannot attach to rank %s: it has not joined yet", who)
	}
	argv := attach(host)
	if !a.run {
		_, err := fmt.Fprintln(a.files.Out, strings.Join(argv, " "))
		return err
	}
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return usage("cannot run %s: it is not found in PATH; give the line that attach prints on a machine that has it", argv[0])
	}
	return fmt.Errorf("cannot run %s: %v", program, syscall.Exec(program, argv, os.Environ()))
}
