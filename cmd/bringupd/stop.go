package main

import (
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/setting"
)

func (inv *invocation) stopCommand() *cli.Command {
	var which whichRun
	return inv.command(cli.Command{
		Name: "stop", Usage: "end a run in good order, from wherever its log directory is seen",
		UsageText:   "bringupd stop RUN\nbringupd stop LOG-DIRECTORY   (its newest run)\nbringupd stop   (within a run: that one)",
		Description: aRun + " It guesses none: outside of a run, name one, or a log directory.",
	}, setting.Under(otherFlags, which.setting()), func(args []string) error {
		if len(args) == 0 && which.given.Source != setting.ByFlag && os.Getenv("BRINGUPD_RUN_DIR") == "" {
			return usage("cannot tell which run to stop: give its directory, or a log directory whose newest run is meant")
		}
		ctx, cancel := inTime(context.Background())
		defer cancel()
		run, err := which.open(ctx, args, false)
		switch {
		case err != nil:
			return err
		case run.ended:
			inv.say("run %s has ended already (%s)", run.Name(), run.Path())
			return nil
		}
		if err := run.RequestStop(ctx); err != nil {
			return err
		}
		inv.say("asked run %s of %d nodes to end (%s)", run.Name(), run.job.Size, run.Path())
		return nil
	})
}
