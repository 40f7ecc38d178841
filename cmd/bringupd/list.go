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
	own := which.settings(outputHeading, config.NewSwitch("json", &asJSON, "print JSON"))
	return inv.completeCommand(cli.Command{
		Name: "list", Usage: "list the runs of a log directory",
		UsageText: "bringupd list [flags] [LOG-DIRECTORY | JOB]",
		Description: "The newest run is the last one, as with sacct. AGE is the time since the start. The " +
			"command only reads the log directory. With the number of a job it lists only that job's runs, " +
			"and with that of an array those of all its elements. " +
			"Exits with 0, and 64 if there is no such directory or job.",
	}, append(own, removedSettings("list")...), func(args []string) error {
		if len(args) > 1 {
			return usageErrorf("cannot list %d directories: give one log directory", len(args))
		}
		return inv.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
			ctx, cancel := context.WithTimeoutCause(ctx, reportReadTimeout, errRequestTimeout)
			defer cancel()
			job := ""
			if len(args) == 1 && !runs.IsDirectory(ctx, args[0]) {
				job, args = args[0], nil
			}
			logDir, err := which.listedDir(args)
			if err != nil {
				return err
			}
			list, err := runs.ListRuns(ctx, logDir, job)
			switch {
			case err != nil:
				return runArgError(err)
			case asJSON:
				return writeJSON(inv.streams.Out, list)
			case len(list.Runs) == 0:
				inv.printMessage("there are no runs in %s", logDir)
			}
			_, err = io.WriteString(inv.streams.Out, list.Text(time.Now()))
			return err
		})
	})
}
