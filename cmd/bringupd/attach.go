package main

import (
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// attachCmd is one execution of bringupd attach.
type attachCmd struct {
	*invocation
	selector runSelector
	execute  bool
}

func (inv *invocation) attachCommand() *cli.Command {
	a := &attachCmd{invocation: inv}
	own := setting.List{setting.NewSwitch("run", &a.execute, "run the command instead of printing it, with the variables of the run (BRINGUPD_RUN, RAY_ADDRESS, ...)").ExcludeSources(setting.SourceVariable), a.selector.newLogDirSetting()}
	return inv.completeCommand(cli.Command{
		Name: "attach", Usage: "print the command for a shell on a node (Slurm)",
		UsageText:   "bringupd attach [flags] [NODE] [RUN | LOG-DIRECTORY]",
		Description: "NODE is a node's index or host name; the default is the head. " + runArgHelp,
	}, setting.AssignCategory(runHeading, own...), a.runAttach)
}

func (a *attachCmd) runAttach(args []string) error {
	ctx, cancel := withRequestTimeout(context.Background())
	defer cancel()
	node, run, err := a.selector.openNode(ctx, args, true)
	if err != nil {
		return err
	}
	if node == "" || node == "head" {
		node = "0"
	}
	attach := launcher.Launcher(run.jobRecord.Launcher).CommandHints(run.jobRecord.LaunchID).AttachShell
	if attach == nil {
		return usageErrorf("cannot attach to run %s: it was not started by Slurm, but by %q; to run a command there: bringupd exec --node=%s -- ...", run.Name(), run.jobRecord.Launcher, node)
	}
	_, host, err := run.findNode(ctx, node)
	if err != nil {
		return err
	}
	if host == "" {
		return usageErrorf("cannot attach to node %s: it has not joined yet", node)
	}
	argv := attach(host)
	if !a.execute {
		_, err := fmt.Fprintln(a.streams.Out, textutil.FormatCommand(argv...))
		return err
	}
	program, err := osexec.LookPath(argv[0])
	if err != nil {
		return usageErrorf("cannot run %s: it is not in PATH; run the command that attach prints on a machine that has it", argv[0])
	}
	prefixes := []string{"BRINGUPD_"}
	for _, name := range frameworkNames() {
		prefixes = append(prefixes, strings.ToUpper(name)+"_")
	}
	variables, err := exec.ReadVariables(ctx, run.Dir, run.jobRecord, node, prefixes)
	if err != nil {
		a.printMessage("cannot read the variables of run %s on node %s: %v; the shell has none of them", run.Name(), node, err)
	}
	for _, entry := range variables {
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return fmt.Errorf("cannot run %s: %v", program, syscall.Exec(program, argv, os.Environ()))
}
