package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/setting"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/prune"
)

// pruning is one execution of bringupd prune.
type pruning struct {
	*invocation
	logDir string
	keep   prune.Keep
	dryRun bool
}

func (inv *invocation) pruneCommand() *cli.Command {
	p := &pruning{invocation: inv}
	own := setting.List{
		setting.Text("log-dir", "DIR", &p.logDir, "log directory to look through (default: bringupd-logs where the job was submitted)"),
		keeping(&p.keep, "which runs stay that are over: so many of the newest (20), or those of the last days (30d) or hours (36h)"),
		setting.Yes("dry-run", &p.dryRun, "only tell what would be removed").Not(setting.ByVariable),
	}
	return inv.command(cli.Command{
		Name: "prune", Usage: "remove old runs from a log directory",
		UsageText:   "bringupd prune --keep=30d [flags]",
		Description: "A run is over when its result is 10 minutes old, or when it has none and nothing has changed in it for a day. What isn't a run of yours stays.",
	}, setting.Under(otherFlags, own...), func([]string) error { return p.do() })
}

func (p *pruning) do() error {
	if !p.keep.Wanted() {
		return usage("cannot tell which runs are to stay: give --keep=20 or --keep=30d")
	}
	logDir, err := logsIn(p.logDir)
	if err != nil {
		return err
	}
	meter := new(signal.Meter)
	order := prune.Order{LogDir: logDir, Keep: p.keep, DryRun: p.dryRun, Lost: true, Meter: meter, Say: func(run, what string) {
		_, _ = fmt.Fprintf(p.files.Out, "%s %s\n", prose.Line(run, 200), prose.Line(what, 300))
	}}
	var counts prune.Counts
	return p.heeding(func(ctx context.Context, _ <-chan struct{}) (err error) {
		if counts, err = order.Run(ctx); err != nil && ctx.Err() == nil {
			return &signal.DirError{Path: logDir, Seen: err.Error(), Mend: "give a --log-dir of your own"}
		}
		verb := "removed"
		if p.dryRun {
			verb = "to be removed"
		}
		p.say("runs %s: %d; kept: %d that are new enough, %d that may be live, %d things that are no runs", verb, counts.Removed, counts.New, counts.Live, counts.Strange)
		return nil
	})
}
