package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
)

func (inv *invocation) listCommand() *cli.Command {
	var which runSelector
	asJSON, keepWatching := false, false
	own := which.settings(outputHeading,
		config.NewSwitch("watch", &keepWatching, "print the list again when it changes, until Ctrl-C: in place "+
			"on a terminal").WithShortName("w"),
		config.NewSwitch("json", &asJSON, "print JSON; with --watch, one line for each change"))
	which.logDirSetting.Usage = "log directory" + defaultLogDir
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
			reading, cancel := context.WithTimeoutCause(ctx, reportReadTimeout, errRequestTimeout)
			defer cancel()
			job := ""
			if len(args) == 1 && !runs.IsDirectory(reading, args[0]) {
				job, args = args[0], nil
			}
			logDir, err := which.listedDir(args)
			if err != nil {
				return err
			}
			list, err := runs.ListRuns(reading, logDir, job)
			if err != nil {
				return runArgError(err)
			}
			writer := runs.StatusWriter{Out: inv.streams.Out, Updates: keepWatching}
			show := writer.WriteList
			if asJSON {
				show = writer.WriteListJSON
			} else if len(list.Runs) == 0 {
				inv.printMessage("there are no runs in %s", logDir)
			}
			if !keepWatching {
				return show(list)
			}
			return runs.WatchRuns(ctx, list, job, show, func(err error) { inv.printMessage("%v", err) })
		})
	})
}
