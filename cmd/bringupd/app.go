package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
)

// invocation is one execution of the program, with the data that every subcommand needs.
type invocation struct {
	streams    config.Streams
	signalChan <-chan os.Signal
	// driver is the part of the command line after "--". It is cut off before the flags are parsed,
	// because a driver may be called "stop" or have flags of its own.
	driver    []string
	hasDashes bool
	ownArgs   []string // the part before "--"
	logsJSON  bool     // standard error is JSON
	exitCode  int      // set by a subcommand that ends with a code and without an error
	// completes gets the settings and arguments instead of the subcommand; nil: run it
	completes func(all config.List, args []string)
}

func runMain(args []string, signals <-chan os.Signal, files config.Streams) int {
	if len(args) == 2 && args[1] == sshDaemonCommand {
		daemonArgs, all, in, end, err := prepareSSHDaemon(signals, files)
		if err != nil {
			code := exitCodeOf(err)
			console.ReportStartError(files.Err, false, err, code)
			return code
		}
		files.In = in
		code := runMain(daemonArgs, all, files)
		end(code)
		return code
	}
	inv := &invocation{streams: files, signalChan: signals}
	args, inv.driver, inv.hasDashes = splitDriver(args)
	inv.ownArgs = args
	app := inv.newApp()
	if len(args) == 1 && !inv.hasDashes && launcher.IsAlone(os.LookupEnv) {
		args, inv.exitCode = append(args[:1:1], "help"), codeOf(health.Launch) // as on a login node
	}
	args = withDefaultCommand(app, args)
	command := app.Command(args[1])
	switch {
	case args[len(args)-1] == completionFlag && command != nil && command.BashComplete == nil:
		inv.complete(app, command, args[2:len(args)-1])
		return 0
	case args[len(args)-1] == completionFlag:
		args = append(args[:min(2, len(args)-1):2], completionFlag)
	case slices.ContainsFunc(args, isHelpFlag): // only then, because it takes a millisecond
		command.CustomHelpTemplate = verbatimTemplate(helpText(command))
	case slices.Contains(runArgCommands, args[1]):
		args = slices.Concat(args[:2], config.FlagsFirst(command, args[2:]))
	}
	if err := app.Run(args); err != nil {
		code := exitCodeOf(err)
		if inv.isOutputClosed(err) {
			return 128 + int(unix.SIGPIPE) // as if the signal had ended it
		}
		if leavesError(args, err) {
			inv.awaitReporter()
			return code
		}
		if config.IsUsageError(err) && !inv.logsJSON {
			err = fmt.Errorf("%w\nSee: %s", err, strings.TrimSuffix("bringupd help "+args[1], " help"))
		}
		console.ReportStartError(files.Err, inv.logsJSON, err, code)
		return code
	}
	return inv.exitCode
}

// isOutputClosed reports whether err is that the reader of standard output has closed the pipe.
func (inv *invocation) isOutputClosed(err error) bool {
	failed, isPath := errors.AsType[*os.PathError](err)
	return isPath && failed.Err == unix.EPIPE && failed.Path == inv.streams.Out.Name()
}

// leavesError reports whether this process leaves it to another task of its launch to report an
// error that all of them have.
func leavesError(args []string, err error) bool {
	isLaunched := args[1] == "run" && !slices.ContainsFunc(args, isRankFlag) || args[1] == "rank"
	launch, isLaunch := errors.AsType[*launcher.LaunchError](err)
	isSame := isLaunch && launch.SameForAll || config.IsSameUsageError(err)
	return isLaunched && isSame && launcher.LeavesErrors(os.LookupEnv)
}

// isRankFlag reports whether an argument is the flag that gives a daemon its index without a
// launcher.
func isRankFlag(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return name == "--rank" || name == "-rank"
}

// maxReporterDelay is how much later than another task the one that reports an error may start.
const maxReporterDelay = 3 * time.Second

// awaitReporter waits for a signal, or for the time in which the task that reports an error reports
// it: srun --kill-on-bad-exit ends that task when another one exits.
func (inv *invocation) awaitReporter() {
	select {
	case <-inv.signalChan:
	case <-time.After(maxReporterDelay):
	}
}

// isHelpFlag reports whether an argument is the help flag, in any form that package flag accepts.
func isHelpFlag(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return slices.Contains([]string{"-h", "--h", "-help", "--help"}, name)
}

var runArgCommands = []string{"status", "report", "logs", "why", "exec", "stop", "kv", "list", "wait", "roles",
	"bad-nodes"}

// splitDriver splits the arguments at the first "--".
func splitDriver(args []string) (own, driver []string, dashed bool) {
	at := slices.Index(args, "--")
	if at < 0 {
		return args, nil, false
	}
	return args[:at], args[at+1:], true
}

func withDefaultCommand(app *cli.App, args []string) []string {
	program, rest := args[:min(1, len(args))], args[min(1, len(args)):]
	command := "run"
	if len(rest) > 0 {
		flag := rest[0]
		switch {
		case app.Command(flag) != nil:
			return args
		case flag == "-h" || flag == "--help":
			command, rest = "help", rest[1:]
		case flag == "--version":
			command, rest = "version", rest[1:]
		case flag == completionFlag:
			return args
		}
	}
	return slices.Concat(program, []string{command}, rest)
}

// exitCodeOf maps an error to its exit code. It is the only place that does.
func exitCodeOf(err error) int {
	var launch *launcher.LaunchError
	var directory *signal.DirError
	var stall *signal.StallError
	kind := health.Internal
	switch by, isSignal := errors.AsType[*signalError](err); {
	case isSignal:
		return by.exitCode()
	case config.IsUsageError(err):
		kind = health.Usage
	case errors.As(err, &launch):
		kind = health.Launch
	case errors.Is(err, process.ErrNotFound):
		kind = health.NotFound
	case errors.Is(err, process.ErrNotExecutable):
		kind = health.NotExecutable
	case errors.As(err, &directory), errors.As(err, &stall):
		kind = health.ShareUnusable
	}
	return codeOf(kind)
}

func codeOf(kind health.Kind) int { return health.OutcomeOfKind(kind).Code }

func (inv *invocation) newApp() *cli.App {
	app := &cli.App{
		Name:        "bringupd",
		HideHelp:    true,
		HideVersion: true,

		EnableBashCompletion: true,
		Writer:               inv.streams.Out,
		ErrWriter:            inv.streams.Err,
		ExitErrHandler:       func(*cli.Context, error) {},
	}
	inv.addCommands(app, "Start a job",
		inv.runCommand(), inv.localCommand(), inv.hostsCommand(), inv.rankCommand())
	inv.addCommands(app, "Look at a run", inv.listCommand(), inv.statusCommand(), inv.waitCommand(),
		inv.logsCommand(), inv.whyCommand(), inv.reportCommand())
	inv.addCommands(app, "Act on a run",
		inv.execCommand(), inv.stopCommand(), inv.kvCommand(), inv.rshCommand(), inv.pruneCommand())
	inv.addCommands(app, "Check and prepare", inv.checkCommand(), inv.doctorCommand(), inv.badNodesCommand(),
		inv.topologyCommand(), inv.rolesCommand(), inv.scriptCommand(), inv.completionCommand(),
		inv.versionCommand(), inv.helpCommand())
	inv.addCommands(app, "", inv.gpuChildCommand(), inv.pmixChildCommand(), inv.whyNodeCommand())
	inv.addCommands(app, "", removedCommands()...)
	return app
}

func usageErrorf(format string, args ...any) error { return config.UsageErrorf(format, args...) }

func (inv *invocation) addCommands(app *cli.App, group string, commands ...*cli.Command) {
	for _, command := range commands {
		command.Category = group
		command.OnUsageError = inv.replaceUsageError
		command.HideHelpCommand = true
	}
	app.Commands = append(app.Commands, commands...)
}

// completeCommand completes a subcommand that runs no driver: do gets its arguments after its
// settings are resolved. Only subcommands that accept a run take arguments.
func (inv *invocation) completeCommand(
	c cli.Command, all config.List, do func(args []string) error,
) *cli.Command {
	c.Flags = all.CLIFlags()
	c.Action = func(ctx *cli.Context) error {
		takesArgs := slices.Contains(runArgCommands, c.Name) || c.SkipFlagParsing
		switch {
		case !takesArgs && ctx.Args().Present():
			return usageErrorf("cannot use %q: bringupd %s has no arguments", ctx.Args().First(), c.Name)
		case inv.hasDashes && c.Name == "stop":
			return usageErrorf("cannot stop a driver: give the run directory, without --")
		case inv.hasDashes && !slices.Contains([]string{"exec", "rank", "rsh", "doctor"}, c.Name):
			return usageErrorf("cannot use a driver: bringupd %s starts none", c.Name)
		}
		if _, err := all.ResolveAll(os.LookupEnv, inv.readUserFile); err != nil {
			return err
		}
		if inv.completes != nil {
			inv.completes(all, ctx.Args().Slice())
			return nil
		}
		return do(ctx.Args().Slice())
	}
	return &c
}
