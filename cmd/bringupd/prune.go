package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/prune"
)

// pruneCmd is one execution of bringupd prune.
type pruneCmd struct {
	*invocation
	logDir     string
	keepPolicy prune.KeepPolicy
	dryRun     bool
}

func (inv *invocation) pruneCommand() *cli.Command {
	p := &pruneCmd{invocation: inv}
	own := setting.List{
		setting.NewText("log-dir", "DIR", &p.logDir, "log directory to look through (default: bringupd-logs where the job was submitted)"),
		keepSetting(&p.keepPolicy, "which runs stay that are over: so many of the newest (20), or those of the last days (30d) or hours (36h)"),
		setting.NewSwitch("dry-run", &p.dryRun, "only tell what would be removed").ExcludeSources(setting.SourceVariable),
	}
	return inv.completeCommand(cli.Command{
		Name: "prune", Usage: "remove old runs from a log directory",
		UsageText:   "bringupd prune --keep=30d [flags]",
		Description: "A run is over when its result is 10 minutes old, or when it has none and nothing has changed in it for a day. What isn't a run of yours stays.",
	}, setting.AssignCategory(otherHeading, own...), func([]string) error { return p.runPrune() })
}

func (p *pruneCmd) runPrune() error {
	if !p.keepPolicy.RemovesRuns() {
		return usageErrorf("cannot tell which runs are to stay: give --keep=20 or --keep=30d")
	}
	logDir, err := resolveLogDir(p.logDir)
	if err != nil {
		return err
	}
	meter := new(signal.CallMeter)
	order := prune.Options{LogDir: logDir, Keep: p.keepPolicy, DryRun: p.dryRun, IncludeLost: true, Meter: meter, Report: func(run, what string) {
		_, _ = fmt.Fprintf(p.streams.Out, "%s %s\n", textutil.SingleLine(run, 200), textutil.SingleLine(what, 300))
	}}
	var counts prune.PruneCounts
	return p.withSignals(func(ctx context.Context, _ <-chan struct{}) (err error) {
		if counts, err = order.PruneRuns(ctx); err != nil && ctx.Err() == nil {
			return &signal.DirError{Path: logDir, Problem: err.Error(), Remedy: "give a --log-dir of your own"}
		}
		verb := "removed"
		if p.dryRun {
			verb = "to be removed"
		}
		p.printMessage("runs %s: %d; kept: %d that are new enough, %d that may be live, %d things that are no runs", verb, counts.Removed, counts.Recent, counts.Live, counts.Unrecognized)
		return nil
	})
}
