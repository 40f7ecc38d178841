package main

import (
	"context"
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
)

func (inv *invocation) waitCommand() *cli.Command {
	var which runSelector
	var timeout time.Duration
	goal := string(runs.GoalEnd)
	own := which.settings(outputHeading,
		config.NewChoice("for", runs.Goals(), &goal,
			"up: until the gate is open and the driver starts; end: until the run has ended"),
		config.NewDuration("timeout", &timeout,
			"end with 124 after this time; 0: never"),
	)
	return inv.completeCommand(cli.Command{
		Name: "wait", Usage: "wait until a run is up or has ended",
		UsageText: "bringupd wait [flags] [RUN | JOB | LOG-DIRECTORY]",
		Description: runArgHelp + " A run that does not exist yet is waited for, and so is the next " +
			"attempt of a run with --restarts. " +
			"Exits with the exit code of the run if it has ended, and 0 if it is up with --for=up, 76 if " +
			"its daemons may be gone, and 124 after --timeout.",
	}, own, func(args []string) error {
		return inv.withTimeout(timeout, func(ctx context.Context) error {
			path, err := which.awaitRun(ctx, args, inv.printMessage)
			if err != nil {
				return err
			}
			last, err := runs.AwaitGoal(ctx, path, runs.Goal(goal))
			if err != nil {
				return runArgError(err)
			}
			inv.printMessage("run %s: %s", last.Run, last.Summary())
			if inv.exitCode = runs.Goal(goal).ExitCode(last); last.Silent {
				inv.exitCode = codeOf(health.PeerLost)
				inv.printMessage(
					"cannot wait for run %s: it gives no sign of life, and its daemons may be gone", last.Run)
			}
			return nil
		})
	})
}

var errWaitTimeout = errors.New("timed out (--timeout)")

// withTimeout is like withSignals, but if limit is positive and do has not returned by then, the
// exit code is that of a timeout.
func (inv *invocation) withTimeout(limit time.Duration, do func(ctx context.Context) error) error {
	return inv.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
		if limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, limit, errWaitTimeout)
			defer cancel()
		}
		err := do(ctx)
		if err != nil && context.Cause(ctx) == errWaitTimeout {
			inv.printMessage("cannot wait for the run longer than %s (--timeout)", textutil.FlagDuration(limit))
			inv.exitCode = codeOf(health.DeadlinePassed)
			return nil
		}
		return err
	})
}
