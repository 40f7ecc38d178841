package main

import (
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/attempt"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/setting"
)

func (inv *invocation) runCommand() *cli.Command {
	opts := newOptions()
	all := opts.settings()
	return &cli.Command{
		Name: "run", Usage: "take part in a job as one of its daemons (meant where no subcommand is named)",
		UsageText: "srun --kill-on-bad-exit=1 --wait=0 bringupd [flags] -- driver [args]",
		Flags:     all.Flags(),
		Action: func(c *cli.Context) error {
			if err := noPositional(c); err != nil {
				return err
			}
			driver, err := all.Gather(os.LookupEnv, inv.read)
			if err != nil {
				return err
			}
			return inv.planOr(all, opts, driver, func(cfg config.Config, role roles.Role) error {
				inv.code = attempt.Run(context.Background(), cfg, role)
				return nil
			})
		},
	}
}

// planOr judges the configuration, and tells the plan where that is asked for;
// otherwise it runs what the configuration is for.
func (inv *invocation) planOr(all setting.List, o *options, driver []string, run func(config.Config, roles.Role) error) error {
	inv.jsonLog = o.logFormat == jsonFormat
	cfg, role, err := inv.configure(all, o, driver)
	switch {
	case o.dryRun && !setting.IsUsage(err):
		return inv.plan(all, cfg, role, err)
	case err != nil:
		return err
	}
	return run(cfg, role)
}
