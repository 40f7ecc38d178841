package main

import (
	"context"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
)

func (inv *invocation) listCommand() *cli.Command {
	var which runSelector
	asJSON := false
	var since time.Time
	parseSince := func(text string) (time.Time, error) { return runs.ParseSince(text, time.Now()) }
	own := config.List{
		which.newLogDirSetting(),
		config.NewValue("since", "TIME", &since, parseSince, func(time.Time) any { return "" },
			"only runs that had not ended by then, with a summary: a duration until now (36h, 7d) or a "+
				"date (2026-11-20, 2026-11-20T08:00)").ExcludeSources(config.SourceVariable),
		config.NewSwitch("json", &asJSON, "print JSON").ExcludeSources(config.SourceVariable),
	}
	return inv.completeCommand(cli.Command{
		Name: "list", Usage: "list the runs of a log directory",
		UsageText: "bringupd list [flags] [LOG-DIRECTORY]",
		Description: "The newest run is the last one, as with sacct. AGE is the time since the start. The " +
			"command only reads the log directory. " +
			"Exits with 0, and 64 if there is no such directory.",
	}, config.AssignCategory(outputHeading, own...), func(args []string) error {
		if len(args) > 1 {
			return usageErrorf("cannot list %d directories: give one log directory", len(args))
		}
		return inv.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
			logDir, err := which.listedDir(args)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(ctx, reportReadTimeout, errRequestTimeout)
			defer cancel()
			list, err := runs.ListRuns(ctx, logDir)
			if !since.IsZero() {
				list.KeepSince(since)
			}
			switch {
			case err != nil:
				return runArgError(err)
			case asJSON:
				return writeJSON(inv.streams.Out, list)
			case len(list.Runs) == 0 && since.IsZero():
				inv.printMessage("there are no runs in %s", logDir)
			}
			_, err = io.WriteString(inv.streams.Out, list.Text(time.Now()))
			return err
		})
	})
}
