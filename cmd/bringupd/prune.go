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
	selector   runSelector
	keepPolicy prune.KeepPolicy
	dryRun     bool
}

func (inv *invocation) pruneCommand() *cli.Command {
	p := &pruneCmd{invocation: inv}
	own := setting.List{
		p.selector.newLogDirSetting(),
		setting.NewValue("keep", "N|TIME", &p.keepPolicy, prune.ParseKeepPolicy, func(k prune.KeepPolicy) any { return k.String() },
			"how many finished runs to keep: a count (20) or an age (30d, 36h)").ExcludeSources(setting.SourceVariable),
		setting.NewSwitch("dry-run", &p.dryRun, "only print what would be removed").ExcludeSources(setting.SourceVariable),
	}
	return inv.completeCommand(cli.Command{
		Name: "prune", Usage: "remove old runs from a log directory",
		UsageText:   "bringupd prune --keep=30d [flags]\nsrun … bringupd --on-end='bringupd prune --keep=20' -- driver",
		Description: "A run counts as finished 10 minutes after its result was written or, without a result, if its directory has not changed for a day. Only your own runs are removed.",
	}, setting.AssignCategory(commonHeading, own...), func([]string) error { return p.runPrune() })
}

func (p *pruneCmd) runPrune() error {
	if !p.keepPolicy.RemovesRuns() {
		return usageErrorf("cannot select the runs to keep: give --keep=20 or --keep=30d")
	}
	logDir, err := p.selector.listedDir(nil)
	if err != nil {
		return err
	}
	meter := new(signal.CallMeter)
	order := prune.Options{LogDir: logDir, Keep: p.keepPolicy, DryRun: p.dryRun, Meter: meter, Report: func(run, what string) {
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
		p.printMessage("runs %s: %d; kept: %d recent, %d possibly running, %d that are not runs", verb, counts.Removed, counts.Recent, counts.Live, counts.Unrecognized)
		return nil
	})
}
