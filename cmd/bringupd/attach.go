package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
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
	attach := roles.Launcher(run.jobRecord.Launcher).CommandHints(run.jobRecord.LaunchID).AttachShell
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
	variables, err := readRunVariables(ctx, run, node)
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

// attachTimeouts are the timeouts of the request for a node's variables.
var attachTimeouts = exec.Timeouts{Accept: 10 * time.Second, AfterRun: time.Second, AfterCancel: time.Second, HeartbeatInterval: time.Second}

// readRunVariables returns the variables that the commands of bringupd exec have on a node because
// of the run: this program's own, and those of the frameworks.
func readRunVariables(ctx context.Context, run openedRun, node string) (variables []string, err error) {
	var out bytes.Buffer
	request := exec.Request{Argv: []string{"env", "-0"}, Nodes: []string{node}}
	answers, err := exec.New(run.Dir, run.jobRecord, request, peerlink.TCP{}, attachTimeouts, &out, io.Discard).Execute(ctx, nil)
	for _, answer := range answers {
		if end := answer.Exit; err == nil && (end.Failed != "" || end.Code != 0) {
			err = errors.New(cmp.Or(end.Failed, end.Exit))
		}
	}
	if err != nil {
		return nil, err
	}
	prefixes := []string{"BRINGUPD_"}
	for _, name := range frameworkNames() {
		prefixes = append(prefixes, strings.ToUpper(name)+"_")
	}
	for entry := range strings.SplitSeq(out.String(), "\x00") {
		isOfRun := slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(entry, prefix) })
		if isOfRun && !strings.HasPrefix(entry, process.MarkVariable+"=") { // the shell is no child of the daemon
			variables = append(variables, entry)
		}
	}
	return variables, nil
}
