package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/launcher"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/inspect/report"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
)

type statusCmd struct {
	*invocation
	selector     runSelector
	keepWatching bool
	asJSON       bool
	isVerbose    bool
	serveAddress string // empty: do not serve the page
	otherCode    int    // with which a script ends if the run has no code; -1: show the run
}

func (inv *invocation) statusCommand() *cli.Command {
	s := &statusCmd{invocation: inv, otherCode: -1}
	own := s.selector.settings(outputHeading,
		config.NewSwitch("watch", &s.keepWatching,
			"wait for the run, and update until it ends: the whole view on a terminal, otherwise a line "+
				"for each change").WithShortName("w"),
		config.NewOptional("serve", "ADDRESS:PORT", &s.serveAddress, checkLoopback,
			"serve the page of bringupd report on this loopback address until Ctrl-C, and follow the run, "+
				"for ssh -L; with port 0 the kernel picks one"),
		config.NewSwitch("json", &s.asJSON,
			"print JSON; with --watch, one line for each change"),
		config.NewSwitch("verbose", &s.isVerbose, "show all nodes").WithShortName("v"),
		config.NewNumber("code", &s.otherCode, 0, 255,
			"print nothing, and exit with the exit code of the run, or with this code if it has none: for job "+
				"scripts, whose srun can end with the code of a daemon that was lost and replaced"),
	)
	return inv.completeCommand(cli.Command{
		Name: "status", Usage: "show the state of a run, and what it waits for",
		UsageText: "bringupd status [flags]                     (the newest run)\nbringupd status [flags] " +
			"RUN | LOG-DIRECTORY",
		Description: runArgHelp + " The command only reads the run directory. Exits with 0 if " +
			"the job is running or has ended with 0, 1 if it has failed, 2 if it is starting or " +
			"gives no sign of life, and 64 if there is no such run; with --code it is the code of the run.",
	}, append(own, removedSettings("status")...), s.runStatus)
}

func (s *statusCmd) runStatus(args []string) error {
	if s.serveAddress != "" && s.asJSON {
		return usageErrorf("cannot use --serve with --json: the page is for a browser")
	}
	return s.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
		path, err := s.findStatusRun(ctx, args)
		if s.otherCode >= 0 {
			s.exitCode = s.readCode(ctx, path, err)
			return nil
		}
		if err != nil {
			return err
		}
		if s.serveAddress != "" {
			return s.servePage(ctx, path)
		}
		observer := runs.Observer{Path: path, Verbose: s.isVerbose}
		first, err := observer.ReadStatus(ctx)
		if err != nil {
			return runArgError(err)
		}
		if s.keepWatching && len(args) == 0 && first.Over() {
			s.warnOfEndedRun("status -w", first.Run)
		}
		style := timeline.TextStyle{Colour: console.ShowsColour(s.streams.Out)}
		writer := runs.StatusWriter{Out: s.streams.Out, Style: style, Updates: s.keepWatching}
		show := writer.WriteText
		if s.asJSON {
			show = writer.WriteJSON
		}
		err = observer.Watch(ctx, first, func(status timeline.Status) error {
			s.exitCode = status.Code
			return show(status)
		}, func(status timeline.Status) bool { return !s.keepWatching || status.Over() })
		if err == nil && !s.keepWatching && !s.asJSON && !first.Over() {
			s.showShellCommand(ctx, args)
		}
		return err
	})
}

// readCode returns the exit code of a run, or the other one if it cannot be found or has none.
func (s *statusCmd) readCode(ctx context.Context, path string, notFound error) int {
	observer := runs.Observer{Path: path}
	if notFound == nil {
		if status, err := observer.ReadStatus(ctx); err == nil && status.Over() && status.End != nil {
			return status.End.Code
		}
	}
	return s.otherCode
}

// showShellCommand prints the launcher's own command for a shell on the head's node, if there is one
// and the node has joined.
func (s *statusCmd) showShellCommand(ctx context.Context, args []string) {
	run, err := s.selector.openSelected(ctx, args, true)
	if err != nil {
		return // the status has been shown
	}
	by, job := launcher.Launcher(run.Job.Launcher), textutil.FormatCommand(run.Job.LaunchID)
	attach := by.CommandHints(job).AttachShell
	if _, host, err := run.FindNode(ctx, "0"); err == nil && host != "" && attach != "" {
		_, _ = fmt.Fprintf(s.streams.Out, "  shell: %s\n", launcher.ForHost(attach, textutil.FormatCommand(host), ""))
	}
}

// checkLoopback refuses an address that other machines can reach.
func checkLoopback(address string) (string, error) {
	if at, err := netip.ParseAddrPort(address); err != nil || !at.Addr().IsLoopback() {
		return "", errors.New("give a loopback address and a port, as in 127.0.0.1:0 or [::1]:9464")
	}
	return address, nil
}

func (s *statusCmd) servePage(ctx context.Context, path string) error {
	server, err := report.ListenLive(ctx, s.serveAddress, path)
	if err != nil {
		return usageErrorf("%v", err)
	}
	host, _ := os.Hostname() // it is only part of a hint
	s.printMessage(
		"on your own machine: ssh -N -L %d:%s %s; Ctrl-C here ends the page",
		server.Port(), server.Address(), host)
	if _, err := fmt.Fprintln(s.streams.Out, server.URL()); err != nil {
		return err
	}
	return server.Serve(ctx)
}

// findStatusRun returns the selected run directory. With --watch it waits for it.
func (s *statusCmd) findStatusRun(ctx context.Context, args []string) (string, error) {
	if s.keepWatching {
		return s.selector.awaitRun(ctx, args, s.newWaiter(true))
	}
	ctx, cancel := withRequestTimeout(ctx)
	defer cancel()
	path, err := s.selector.findRun(ctx, args)
	return path, runArgError(err)
}
