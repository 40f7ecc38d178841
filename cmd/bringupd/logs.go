package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/signal"
)

type logsCmd struct {
	*invocation
	selector   runSelector
	followLogs bool
	rawOutput  bool
	part       runs.LogRange
}

func (inv *invocation) logsCommand() *cli.Command {
	r := &logsCmd{invocation: inv, part: runs.LogRange{Tail: -1, Say: inv.printMessage}}
	parseSince := func(text string) (time.Time, error) { return runs.ParseSince(text, time.Now()) }
	own := r.selector.settings(outputHeading,
		config.NewSwitch("follow", &r.followLogs,
			"follow the log until the run ends").WithShortName("f"),
		config.NewNumber("tail", &r.part.Tail, 0, math.MaxInt32,
			"print only the last N lines of each log (-n for short); with --follow, also what follows").
			WithShortName("n"),
		config.NewOptional("since", "TIME", &r.part.Since, parseSince,
			"leave out logs that have not changed for this time, such as 10m or 2d, or since this time, such as "+
				"12:00 or 2026-11-21T12:00:00, and older records of daemons; other lines have no dates"),
		config.NewSwitch("raw", &r.rawOutput,
			"do not escape control characters on a terminal"),
	)
	return inv.completeCommand(cli.Command{
		Name: "logs", Usage: "print logs of the driver, ranks, services, roles or nodes",
		UsageText: "bringupd logs [flags] [driver|head|ranks|rank-N|ROLE|NODE] [RUN | LOG-DIR]",
		Description: "NODE is a node's index or host name, and ROLE a role, its instance such as judge.1, " +
			"or a process of it. " + runArgHelp +
			" Without a selection the command prints the log of the driver or, if there is none, those of " +
			"all ranks, of the primary roles, or of the head's service. " +
			"On a terminal, control characters are escaped.",
	}, own, r.runLogs)
}

func (r *logsCmd) runLogs(args []string) error {
	err := r.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
		if len(args) > 0 && slices.Contains(frameworkNames()[1:], args[0]) {
			return usageErrorf("cannot print logs of %s: this release no longer selects them: read the files below "+
				"logs/%[1]s-*.d in the run directory", args[0])
		}
		run, word, wanted, err := r.openLogs(ctx, args)
		if err != nil {
			return err
		}
		var out io.Writer = r.streams.Out
		if console.IsTerminal(r.streams.Out) && !r.rawOutput {
			out = &textutil.EscapingWriter{Writer: out}
		}
		printer := runs.LogPrinter{RunDir: run.Dir, Out: out, Wanted: wanted, Follow: r.followLogs, LogRange: r.part}
		shown, err := printer.PrintLogs(ctx)
		if silent := runs.DescribePrinters(word, run.Job.Plan); err == nil && shown == 0 && silent != "" {
			r.printMessage("%s of run %s printed nothing", silent, run.Name())
			return nil
		}
		if err == nil && shown == 0 {
			r.printMessage(
				"cannot print the log of %s: it is empty, or %s has none of that name; "+
					"bringupd help logs lists the words",
				cmp.Or(word, "the head"), filepath.Join(run.Path(), signal.LogsDir))
			r.exitCode = 1
		}
		return err
	})
	var wrong *runs.SelectionError
	switch {
	case errors.Is(err, unix.EPIPE):
		return nil // the reader has closed the pipe
	case errors.As(err, &wrong):
		return usageErrorf("%v", err)
	}
	return err
}

// openLogs opens the run, and returns the word that selects logs, and their names.
func (r *logsCmd) openLogs(
	ctx context.Context, args []string,
) (run runs.Opened, word string, wanted runs.LogFilter, err error) {
	ctx, cancel := withRequestTimeout(ctx)
	defer cancel()
	if word, run, err = runs.Finder(r.selector.findRun).OpenNode(ctx, args); err != nil {
		return run, word, nil, runArgError(err)
	}
	findNode := func(ctx context.Context, name string) (int, error) {
		node, _, err := run.FindNode(ctx, name)
		if _, isWrong := errors.AsType[*runs.SelectionError](err); isWrong {
			err = usageErrorf("%v, for all its logs; or driver, head, ranks or rank-N", err)
		}
		return node, err
	}
	wanted, err = runs.SelectLogs(ctx, run.Dir, run.Job.Plan, word, findNode)
	return run, word, wanted, err
}
