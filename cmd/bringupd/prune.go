package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/prune"
)

type pruneCmd struct {
	*invocation
	selector runSelector
	maxAge   time.Duration
	dryRun   bool
}

func (inv *invocation) pruneCommand() *cli.Command {
	p := &pruneCmd{invocation: inv}
	own := p.selector.settings(commonHeading,
		config.NewValue("keep", "AGE", &p.maxAge, prune.ParseAge, config.ShowGiven,
			"keep runs that ended less than this time ago: 30d or 36h"),
		config.NewSwitch("dry-run", &p.dryRun,
			"only print what would be removed"),
	)
	p.selector.logDirSetting.Usage = "log directory" + defaultLogDir
	return inv.completeCommand(cli.Command{
		Name: "prune", Usage: "remove old runs from a log directory",
		UsageText: "bringupd prune --keep=30d [flags]\n" +
			"srun … bringupd --on-end='bringupd prune --keep=30d' -- driver",
		Description: "A run counts as finished 10 minutes after its result was written or, without a result, " +
			"if its directory has not changed for a day. Only your own runs are removed.",
	}, own, func([]string) error { return p.runPrune() })
}

func (p *pruneCmd) runPrune() error {
	if p.maxAge == 0 {
		return usageErrorf("cannot select the runs to keep: give --keep=30d")
	}
	logDir, err := p.selector.listedDir(nil)
	if err != nil {
		return err
	}
	order := prune.Options{LogDir: logDir, MaxAge: p.maxAge, DryRun: p.dryRun, Report: func(run, what string) {
		run, what = textutil.SingleLine(run, 200), textutil.SingleLine(what, 300)
		_, _ = fmt.Fprintf(p.streams.Out, "%s %s\n", run, what)
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
		p.printMessage("runs %s: %d; kept: %d recent, %d possibly running, %d that are not runs",
			verb, counts.Removed, counts.Recent, counts.Live, counts.Unrecognized)
		return nil
	})
}
