package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/setting"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/systemd"
	"github.com/bringupd/bringupd/pkg/voice"
)

// invocation is one execution of the program, with the data that every subcommand needs.
type invocation struct {
	files   config.Files
	signals <-chan os.Signal
	// driver is the part of the command line after "--". It is cut off before the flags are parsed,
	// because a driver may be called "stop" or have flags of its own.
	driver []string
	dashed bool
	// notifySocket is the socket of the service manager that has started this process. It is empty if
	// there is none.
	notifySocket string
	jsonLog      bool // standard error is JSON
	code         int  // set by a subcommand that ends with a code and without an error
}

// run is the whole program. It returns the exit code.
func run(args []string, signals <-chan os.Signal, files config.Files) int {
	if len(args) == 2 && args[1] == tetheredCommand {
		told, all, in, end, err := tethered(signals, files)
		if err != nil {
			code := codeOf(err)
			voice.Refuse(files.Err, false, err, code)
			return code
		}
		files.In = in
		code := run(told, all, files)
		end(code)
		return code
	}
	inv := &invocation{files: files, signals: signals, notifySocket: takeNotifySocket()}
	args, inv.driver, inv.dashed = cutDriver(args)
	app := inv.app()
	args = named(app, args)
	if command := app.Command(args[1]); command != nil && slices.ContainsFunc(args, asksForHelp) {
		command.CustomHelpTemplate = verbatim(helpText(app, command)) // takes a millisecond at each start
	}
	if slices.Contains(ofRuns, args[1]) {
		args = slices.Concat(args[:2], setting.FlagsFirst(app.Command(args[1]), args[2:]))
	}
	if err := app.Run(args); err != nil {
		code := codeOf(err)
		if setting.IsUsage(err) && !inv.jsonLog {
			err = fmt.Errorf("%w\nSee: %s", err, strings.TrimSuffix("bringupd help "+args[1], " help"))
		}
		voice.Refuse(files.Err, inv.jsonLog, err, code)
		return code
	}
	return inv.code
}

// asksForHelp reports whether an argument is the help flag, in any form that package flag accepts.
func asksForHelp(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return slices.Contains([]string{"-h", "--h", "-help", "--help"}, name)
}

// ofRuns are the subcommands that accept a run as an argument.
var ofRuns = []string{"status", "report", "logs", "why", "exec", "attach", "stop", "kv"}

// takeNotifySocket returns the socket of the service manager, and removes it from the environment:
// a child that used it would speak for the service.
func takeNotifySocket() string {
	socket := os.Getenv(systemd.Variable)
	_ = os.Unsetenv(systemd.Variable) // fails only for invalid names
	return socket
}

// cutDriver splits the arguments at the first "--".
func cutDriver(args []string) (own, driver []string, dashed bool) {
	at := slices.Index(args, "--")
	if at < 0 {
		return args, nil, false
	}
	return args[:at], args[at+1:], true
}

// named inserts the default subcommand if none is given.
func named(app *cli.App, args []string) []string {
	program, rest := args[:min(1, len(args))], args[min(1, len(args)):]
	meant := "run"
	if len(rest) > 0 {
		flag := rest[0]
		switch {
		case app.Command(flag) != nil:
			return args
		case flag == "-h" || flag == "--help":
			meant, rest = "help", rest[1:]
		case flag == "--version":
			meant, rest = "version", rest[1:]
		}
	}
	return slices.Concat(program, []string{meant}, rest)
}

// codeOf maps an error to its exit code. It is the only place that does.
func codeOf(err error) int {
	var launch *roles.LaunchError
	var directory *signal.DirError
	var stall *signal.StallError
	var by *stopped
	switch {
	case errors.As(err, &by):
		return by.code()
	case setting.IsUsage(err):
		return health.OutcomeOf(health.Usage).Code
	case errors.As(err, &launch):
		return health.OutcomeOf(health.Launch).Code
	case errors.Is(err, process.ErrNotFound):
		return health.OutcomeOf(health.NotFound).Code
	case errors.Is(err, process.ErrNotExecutable):
		return health.OutcomeOf(health.NotExecutable).Code
	case errors.As(err, &directory), errors.As(err, &stall):
		return health.OutcomeOf(health.Share).Code
	default:
		return health.OutcomeOf(health.Internal).Code
	}
}

func (inv *invocation) app() *cli.App {
	app := &cli.App{
		Name:           "bringupd",
		HideHelp:       true,
		HideVersion:    true,
		Writer:         inv.files.Out,
		ErrWriter:      inv.files.Err,
		ExitErrHandler: func(*cli.Context, error) {},
	}
	app.Commands = []*cli.Command{
		inv.runCommand(), inv.localCommand(), inv.hostsCommand(), inv.rankCommand(), inv.statusCommand(), inv.reportCommand(), inv.logsCommand(),
		inv.whyCommand(), inv.kvCommand(), inv.rshCommand(), inv.execCommand(), inv.attachCommand(), inv.stopCommand(), inv.pruneCommand(), inv.checkCommand(), inv.topologyCommand(),
		inv.doctorCommand(), inv.simulateCommand(), inv.completionCommand(), inv.versionCommand(), inv.helpCommand(),
		inv.gpuChildCommand(), inv.pmixChildCommand(), inv.whyNodeCommand(),
		removedCommand("pmi", "give a program of your MPI in its place, as in docs/mpi.md"),
	}
	for _, command := range app.Commands {
		command.OnUsageError = setting.OnUsageError
		command.HideHelpCommand = true
	}
	return app
}

// removedCommand returns the hidden subcommand of a name that this release no longer has. Every
// call of it is refused with instead, a clause that names the replacement.
func removedCommand(name, instead string) *cli.Command {
	return &cli.Command{
		Name: name, Usage: "removed: " + instead, UsageText: "(none)", Hidden: true, SkipFlagParsing: true,
		Action: func(*cli.Context) error {
			return usage("cannot run bringupd %s: this subcommand was removed: %s", name, instead)
		},
	}
}

// command completes a subcommand that runs no driver: do gets its arguments after its settings are
// resolved. Only subcommands that accept a run take arguments.
func (inv *invocation) command(c cli.Command, all setting.List, do func(args []string) error) *cli.Command {
	c.Flags = all.Flags()
	c.Action = func(ctx *cli.Context) error {
		switch takes := slices.Contains(ofRuns, c.Name); {
		case !takes && !c.SkipFlagParsing && ctx.Args().Present():
			return usage("cannot take %q: bringupd %s has no arguments", ctx.Args().First(), c.Name)
		case inv.dashed && c.Name == "stop":
			return usage("cannot stop by a driver: give the run directory, without --")
		case inv.dashed && c.Name == "attach":
			return usage("cannot take a command: bringupd exec runs one, and attach opens a shell")
		case inv.dashed && !slices.Contains([]string{"exec", "rank", "rsh", "doctor"}, c.Name):
			return usage("cannot take a driver: bringupd %s runs none", c.Name)
		}
		if _, err := all.Gather(os.LookupEnv, inv.read); err != nil {
			return err
		}
		return do(ctx.Args().Slice())
	}
	return &c
}
