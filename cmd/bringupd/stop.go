package main

import (
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

var errNoRunToStop = usageErrorf(
	"cannot select a run to stop: give its directory, or a log directory to stop the newest run")

func (inv *invocation) stopCommand() *cli.Command {
	var which runSelector
	return inv.completeCommand(cli.Command{
		Name: "stop", Usage: "end a running job cleanly",
		UsageText: "bringupd stop RUN\nbringupd stop LOG-DIRECTORY   (newest run)\nbringupd stop         " +
			"        (inside a job: the current run)",
		Description: "RUN is a run directory or the name of a run in the log directory. Inside a job the " +
			"default is the current run; outside, give a run or a log directory.",
	}, which.settings(runHeading), func(args []string) error {
		// A pod of a Job has the name of its run, and a process of the run its directory.
		job := ""
		if len(args) == 0 && which.logDirSetting.Source != config.SourceFlag && os.Getenv("BRINGUPD_RUN_DIR") == "" {
			job = os.Getenv("BRINGUPD_JOB_ID")
			if job == "" {
				return errNoRunToStop
			}
		}
		ctx, cancel := withRequestTimeout(context.Background())
		defer cancel()
		run, err := which.openSelected(ctx, args, false)
		switch {
		case err != nil:
			return err
		case job != "" && !launcher.IsRunOf(run.Name(), job):
			return errNoRunToStop
		case run.IsEnded:
			inv.printMessage("run %s has already ended (%s)", run.Name(), run.Path())
			return nil
		}
		if err := run.RequestStop(ctx); err != nil {
			return err
		}
		inv.printMessage("asked run %s of %d %s to end (%s)", run.Name(), run.Job.Size,
			textutil.PluralForm(run.Job.Size, "node"), run.Path())
		return nil
	})
}
