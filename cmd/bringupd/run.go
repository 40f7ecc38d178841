package main

import (
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/daemon"
)

func (inv *invocation) runCommand() *cli.Command {
	opts := newOptions()
	all := opts.settings()
	return &cli.Command{
		Name: "run", Usage: "take part in a job as one of its daemons (meant where no subcommand is named)",
		UsageText: "srun --kill-on-bad-exit=1 --wait=0 bringupd [flags] -- driver [args]",
		Flags:     all.flags(func(*setting) bool { return true }),
		Action: func(c *cli.Context) error {
			if err := noPositional(c); err != nil {
				return err
			}
			return inv.runDaemon(all, opts)
		},
	}
}

// runDaemon is one daemon of a job.
func (inv *invocation) runDaemon(all settings, o *options) error {
	driver, err := all.gather(os.LookupEnv)
	if err != nil {
		return err
	}
	inv.jsonLog = o.logFormat == jsonFormat
	cfg, role, err := inv.configure(all, o, driver)
	if o.dryRun && !isUsage(err) {
		return inv.plan(all, cfg, role, err)
	}
	if err != nil {
		return err
	}
	inv.code = daemon.Run(context.Background(), cfg, role)
	return nil
}
