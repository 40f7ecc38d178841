package main

import (
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config/setting"
)

func (inv *invocation) stopCommand() *cli.Command {
	var which runSelector
	return inv.completeCommand(cli.Command{
		Name: "stop", Usage: "end a run in good order, from wherever its log directory is seen",
		UsageText:   "bringupd stop RUN\nbringupd stop LOG-DIRECTORY   (its newest run)\nbringupd stop   (within a run: that one)",
		Description: runArgHelp + " It guesses none: outside of a run, name one, or a log directory.",
	}, setting.AssignCategory(otherHeading, which.newLogDirSetting()), func(args []string) error {
		if len(args) == 0 && which.logDirSetting.Source != setting.SourceFlag && os.Getenv("BRINGUPD_RUN_DIR") == "" {
			return usageErrorf("cannot tell which run to stop: give its directory, or a log directory whose newest run is meant")
		}
		ctx, cancel := withRequestTimeout(context.Background())
		defer cancel()
		run, err := which.openSelected(ctx, args, false)
		switch {
		case err != nil:
			return err
		case run.hasEnded:
			inv.printMessage("run %s has ended already (%s)", run.Name(), run.Path())
			return nil
		}
		if err := run.RequestStop(ctx); err != nil {
			return err
		}
		inv.printMessage("asked run %s of %d nodes to end (%s)", run.Name(), run.jobRecord.Size, run.Path())
		return nil
	})
}
