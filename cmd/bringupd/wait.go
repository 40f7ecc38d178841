package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
)

func (inv *invocation) waitCommand() *cli.Command {
	var which runSelector
	var timeout time.Duration
	asJSON := false
	goal := string(runs.GoalEnd)
	limit := config.NewDuration("timeout", &timeout,
		"end with 124 after this time; 0: never, which is the default except for a run of whose job no launcher "+
			"knows anything: its appearance is waited for for "+textutil.FlagDuration(runs.UnknownLimit))
	own := which.settings(outputHeading,
		config.NewChoice("for", runs.Goals(), &goal,
			"up: until the gate is open and the driver starts; end: until the run has ended"),
		limit,
		config.NewSwitch("json", &asJSON, "print the status then as JSON, as status does"),
	)
	return inv.completeCommand(cli.Command{
		Name: "wait", Usage: "wait until a run is up or has ended",
		UsageText: "bringupd wait [flags] [RUN | JOB | LOG-DIRECTORY]",
		Description: runArgHelp + " A run that does not exist yet is waited for, and so is the next " +
			"attempt of a run with --restarts, unless the launcher says that the job has ended (64 without a run). " +
			"Exits with the exit code of the run if it has ended, and 0 if it is up with --for=up, 76 if " +
			"its daemons may be gone, and 124 after --timeout.",
	}, own, func(args []string) error {
		return inv.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, timeout, errWaitTimeout)
				defer cancel()
			}
			waiter := inv.newWaiter(limit.Source == config.SourceFlag)
			err := inv.awaitGoal(ctx, &which, args, waiter, runs.Goal(goal), asJSON)
			isUnknown := errors.Is(err, runs.ErrUnknownLimit)
			if isUnknown {
				timeout = runs.UnknownLimit
			}
			if isUnknown || err != nil && context.Cause(ctx) == errWaitTimeout {
				inv.printMessage("cannot wait for the run longer than %s (--timeout)", textutil.FlagDuration(timeout))
				inv.exitCode = codeOf(health.DeadlinePassed)
				return nil
			}
			return err
		})
	})
}

// warnOfEndedRun reports that the newest run, which a subcommand has selected, may not be the one
// that the user means.
func (inv *invocation) warnOfEndedRun(command, run string) {
	inv.printMessage("run %s has already ended; to wait for a job that has not started yet, give its "+
		"number: bringupd %s JOB", run, command)
}

var errWaitTimeout = errors.New("timed out (--timeout)")

// awaitGoal waits until the selected run has reached the goal, prints its state and sets the exit code.
func (inv *invocation) awaitGoal(
	ctx context.Context, w *runSelector, args []string, waiter runs.Waiter, goal runs.Goal, asJSON bool,
) error {
	path, err := w.awaitRun(ctx, args, waiter)
	if err != nil {
		return err
	}
	last, err := waiter.AwaitGoal(ctx, path, goal, func(first timeline.Status) {
		if len(args) == 0 && first.Over() && first.NextAttempt == 0 {
			inv.warnOfEndedRun("wait", first.Run)
		}
	})
	if err != nil {
		return runArgError(err)
	}
	inv.printMessage("run %s: %s", last.Run, last.Summary())
	next, err := runs.RequeuedRun(ctx, filepath.Join(filepath.Dir(path), last.Run))
	if err == nil && next != "" {
		inv.printMessage("run %s asked for a requeue of its job; wait for that with: bringupd wait %s",
			last.Run, next)
	}
	if inv.exitCode = goal.ExitCode(last); last.Silent {
		inv.exitCode = codeOf(health.PeerLost)
		inv.printMessage("cannot wait for run %s: it gives no sign of life, and its daemons may be gone", last.Run)
	}
	if asJSON {
		return writeJSON(inv.streams.Out, last)
	}
	return nil
}
