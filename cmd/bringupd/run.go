package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/restart"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

func (inv *invocation) runCommand() *cli.Command {
	opts := newOptions()
	all := opts.daemonSettings()
	return jobCommand(cli.Command{
		Name: "run", Usage: "run this node's daemon, under srun (default subcommand)",
		UsageText: "srun --kill-on-bad-exit=1 --wait=0 bringupd [flags] -- driver [args]",
	}, all, func() error {
		driver, err := inv.resolveJob(all, opts)
		if err != nil {
			return err
		}
		return inv.planOrRun(all, opts, driver, func(cfg deps.Config, role roles.DaemonRole) error {
			if id := cfg.Identity; id.NodeIndex == 0 { // a head has a connection to each worker
				need := process.ResourceNeeds{Files: minDaemonFiles + uint64(id.Size)}
				if err := checkLimits(need, id.Host); err != nil {
					return err
				}
			}
			inv.exitCode = restart.Run(context.Background(), cfg, role, daemon.Run)
			return nil
		})
	})
}

// jobCommand completes a subcommand that runs a job. Its driver is after "--".
func jobCommand(c cli.Command, all config.List, start func() error) *cli.Command {
	c.Flags = all.CLIFlags()
	c.Action = func(ctx *cli.Context) error {
		switch first := ctx.Args().First(); {
		case first == "":
			return start()
		case foreignCommandHint(ctx.Args().Slice()) != "":
			return usageErrorf("cannot use %q: %s", first, foreignCommandHint(ctx.Args().Slice()))
		case ctx.App.Command(first) != nil:
			return usageErrorf("cannot use %q here: the subcommand comes first, for example: bringupd %s [flags]",
				first, first)
		default:
			return usageErrorf("cannot use %q: give the driver and its arguments after --, for example: "+
				"bringupd %s [flags] -- %s%s", first, c.Name, strings.Join(ctx.Args().Slice(), " "),
				config.SuggestNearest("subcommand ", first, commandNames(ctx.App)))
		}
	}
	return &c
}

// foreignCommands are words that users give as subcommands, with what to type instead.
var foreignCommands = []struct{ names, hint string }{
	{"ps ls jobs runs", "for the runs of a log directory: bringupd list"},
	{"kill cancel scancel end down", "to end a run: bringupd stop RUN"},
	{"log tail cat", "for the output of a run: bringupd logs RUN"},
	{"top watch", "to follow a run: bringupd status --watch"},
	{"ssh shell", "for a command on a node of a run: bringupd exec --node=NODE RUN -- COMMAND"},
	{"init new template sbatch submit", "for a job script: bringupd script, and then sbatch"},
	{"validate lint", "to check a command line: bringupd --dry-run with its flags"},
	{"up start launch create", "to start a job: bringupd [flags] -- driver [args], or --config=FILE with roles"},
	{"apply deploy", "for a file of roles: bringupd --config=FILE; bringupd roles --dry-run=FILE checks it"},
	{"get describe", "for a run: bringupd status RUN, and bringupd list for those of a log directory"},
	{"ray dask", "for a cluster: bringupd --framework=%[1]s -- driver [args]"},
	{"srun", "srun starts bringupd: srun --ntasks-per-node=1 bringupd [flags] -- driver [args]"},
}

// foreignCommandHint returns what to type instead of arguments without "--", of which the first one
// is no subcommand, or an empty string if nothing special is known.
func foreignCommandHint(args []string) string {
	for _, foreign := range foreignCommands {
		if slices.Contains(strings.Fields(foreign.names), args[0]) {
			return strings.ReplaceAll(foreign.hint, "%[1]s", args[0])
		}
	}
	return ranks.LauncherAdvice(args)
}

// resolveJob resolves the settings of a job, and returns the driver in the configuration file.
func (inv *invocation) resolveJob(all config.List, opts *options) (driver []string, err error) {
	return all.ResolveAll(os.LookupEnv, inv.readUserFile, opts.cfg.Roles.Blocks()...)
}

// minDaemonFiles is the number of files that a daemon needs, without the connections of a head.
const minDaemonFiles = 128

// minDaemonLimits are the minimum limits of a daemon. With a driver it was measured to have 27
// processes and threads, with four ranks 48, and 1.9 GiB of address space.
var minDaemonLimits = process.ResourceNeeds{Tasks: 64, Files: minDaemonFiles, Memory: 2560 << 20}

// startsDaemon reports whether a command line starts daemons on this machine.
func startsDaemon(args []string) bool {
	own, _, _ := splitDriver(args)
	others := []string{"--dry-run", "--version", completionFlag}
	if slices.ContainsFunc(own, func(arg string) bool { return isHelpFlag(arg) || slices.Contains(others, arg) }) {
		return false
	}
	return len(own) < 2 || strings.HasPrefix(own[1], "-") ||
		slices.Contains([]string{"run", "local", sshDaemonCommand}, own[1])
}

func checkLimits(need process.ResourceNeeds, host string) error {
	problem, fix := need.FindShortage("/")
	if problem == "" {
		return nil
	}
	return &launcher.LaunchError{Problem: fmt.Sprintf("cannot start on %s: %s", host, problem), Fix: fix}
}

// planOrRun validates the configuration. It prints the plan if that is requested, and otherwise
// calls run.
func (inv *invocation) planOrRun(
	all config.List, o *options, driver []string, run func(deps.Config, roles.DaemonRole) error,
) error {
	inv.logsJSON = o.logFormat == jsonFormat
	cfg, role, err := inv.newConfig(all, o, driver)
	switch {
	case o.dryRun && !o.printsPlan(cfg.Identity, err):
		if err != nil {
			inv.exitCode = exitCodeOf(err)
		}
		return nil
	case o.printRoles && !config.IsUsageError(err):
		return inv.printRoles(cfg)
	case o.dryRun && !config.IsUsageError(err):
		return inv.printConfig(all, cfg, role, err)
	case err != nil:
		return err
	}
	if cfg.Identity.NodeIndex == 0 {
		inv.warnOfVariables(all, cfg.Roles.Definitions)
	}
	return run(cfg, role)
}

// warnOfVariables reports variables that have no effect, although they look like those of settings, and
// what may be a mistake in the roles. A daemon that bringupd has started leaves that to the process that
// has, and a run inside of another one has the variables of that.
func (inv *invocation) warnOfVariables(all config.List, defs []roles.Definition) {
	isStarted := func(s *config.Setting) bool { return s.Hidden && s.Source == config.SourceFlag }
	if os.Getenv(launcher.RunVariable) != "" || slices.ContainsFunc(all, isStarted) {
		return
	}
	text, _ := textFiles.ReadFile("topics/env") // it is embedded
	isOther := func(r rune) bool { return !strings.ContainsRune(variableRunes, r) }
	known := strings.FieldsFunc(string(text), isOther)
	for _, command := range inv.newApp().Commands {
		for _, s := range visibleSettings(command) {
			if s.HasEnvVariable() && all.FindSetting(s.Name) == nil {
				known = append(known, s.EnvVariable())
			}
		}
	}
	isSet := func(name string) bool { return os.Getenv(name) != "" }
	for _, sentence := range slices.Concat(all.FindIneffective(os.Environ(), known),
		rolefile.Warnings(defs, isSet)) {
		console.ReportStartWarning(inv.streams.Err, inv.logsJSON, sentence)
	}
}

const variableRunes = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"

// printsPlan reports whether this process prints the plan, or the error of the configuration, for
// all daemons that its launcher starts. A process whose index is given by a flag prints its own.
func (o *options) printsPlan(id launcher.Identity, err error) bool {
	if err != nil { // the identity may be unknown
		return o.nodeIndex >= 0 || !launcher.LeavesErrors(os.LookupEnv)
	}
	return o.nodeIndex >= 0 || id.NodeIndex == 0
}
