package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/launch"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
)

// maxLocalDaemons is the maximum number of daemons on one machine.
const maxLocalDaemons = 1024

// localCmd is the launcher for one machine.
type localCmd struct {
	*invocation
	opts             *options
	allSettings      config.List
	nodeCount        int
	hasGeneratedName bool // true if the name was chosen here and is unique
	runDir           launch.RunDir
	patience         time.Duration // see [launch.Job]
	// outputMux keeps the lines of several daemons apart. It is nil if only the head's output is
	// printed.
	outputMux *console.Mux
}

func (inv *invocation) localCommand() *cli.Command {
	l := &localCmd{invocation: inv, opts: newOptions(), nodeCount: 1}
	count := config.NewNumber("nodes", &l.nodeCount, 1, maxLocalDaemons,
		"number of nodes to simulate: daemons on this machine").ExcludeSources(config.SourceVariable, config.SourceFile)
	count.Category = commonHeading
	l.allSettings = append(config.List{count}, l.opts.daemonSettings()...)
	return &cli.Command{
		Name: "local", Usage: "run a job on this machine",
		UsageText: "bringupd local --nodes=4 [flags] -- driver [args]",
		Flags:     l.jobFlags(),
		Action: func(c *cli.Context) error {
			if err := rejectPositional(c); err != nil {
				return err
			}
			return l.launchLocally()
		},
	}
}

// jobFlags returns the flags of a subcommand that starts the daemons of all nodes.
func (l *localCmd) jobFlags() (flags []cli.Flag) {
	for _, s := range l.allSettings {
		switch {
		case strings.HasPrefix(s.Name, "launched-") || s.Name == "rank" || s.Name == "step":
		case s.Name == "role":
			flags = append(flags, unlistedFlag{s})
		default:
			flags = append(flags, s)
		}
	}
	return flags
}

// launchLocally validates the configuration as a daemon would, so that a mistake is reported once,
// and runs the job.
func (l *localCmd) launchLocally() error {
	driver, err := l.resolveSettings()
	if err != nil {
		return err
	}
	return l.planOrRun(l.allSettings, l.opts, driver, func(cfg deps.Config, _ roles.DaemonRole) error {
		if err := l.checkNameUnused(cfg); err != nil {
			return err
		}
		return l.runDaemons()
	})
}

// checkNameUnused returns an error if a run of this name exists. The head would detect that, too,
// but the workers could have joined the existing run before.
func (l *localCmd) checkNameUnused(cfg deps.Config) error {
	l.runDir = launch.RunDir{Path: filepath.Join(cfg.LogDir, l.opts.overrides.JobID), Host: cfg.Identity.Host, Hosts: cfg.Identity.Hosts}
	l.patience = cfg.LaunchPatience()
	if l.hasGeneratedName || !l.runDir.Exists(cfg.Times.Join) {
		return nil // the daemons report what is wrong there
	}
	return &signal.DirError{
		Path: cfg.LogDir, Host: cfg.Identity.Host,
		Problem: fmt.Sprintf("a run of the same name, %s, already exists", l.opts.overrides.JobID),
		Remedy:  "give another --job-id, or another --log-dir",
	}
}

// headlessRunTimeout is the timeout for finding the run of a head that has ended.
const headlessRunTimeout = 10 * time.Second

// handleDaemonEnd handles the end of a daemon. If the head ends before there is a run, the others
// would wait for the run until their join timeout, so they are ended by a signal.
func (l *localCmd) handleDaemonEnd(node int, child process.Handle) (process.Exit, syscall.Signal) {
	code := child.Exit().Code // -1 if a signal has ended it
	mayBe := code < 0 || code >= health.OutcomeOfKind(health.Usage).Code && code <= health.OutcomeOfKind(health.Internal).Code
	if node == 0 && mayBe && l.nodeCount > 1 && !l.runDir.Exists(headlessRunTimeout) {
		l.printMessage("the head ended before the run started: ending the other daemons")
		return child.Exit(), syscall.SIGTERM
	}
	return child.Exit(), 0
}

// resolveSettings resolves the settings of the user and of this launcher.
func (l *localCmd) resolveSettings() (driver []string, err error) {
	l.allSettings.FindSetting("launched-locally").OfferValues(config.SourceCommand, "", "true")
	if driver, err = l.resolveForAllNodes(); err != nil {
		return nil, err
	}
	l.opts.localSize = l.nodeCount
	l.ensureRunName("local-")
	return driver, nil
}

// resolveForAllNodes resolves the settings of a subcommand that starts the daemons of all nodes. A
// role in a variable or a file is ignored: it is for another launcher.
func (l *localCmd) resolveForAllNodes() (driver []string, err error) {
	role := l.allSettings.FindSetting("role")
	if role.Source == config.SourceFlag && role.RawValues[0] != "auto" {
		return nil, usageErrorf(
			"cannot use --role=%s: this subcommand starts the daemons of all roles; omit it",
			config.EscapeLineEnds(role.RawValues[0]))
	}
	role.OfferValues(config.SourceCommand, "", "auto")
	l.allSettings.FindSetting("rank").OfferValues(config.SourceCommand, "", "0")
	return l.allSettings.ResolveAll(os.LookupEnv, l.readUserFile, l.opts.cfg.Roles.Blocks()...)
}

// ensureRunName gives the run a unique name, unless the user has given one.
func (l *localCmd) ensureRunName(prefix string) {
	if l.opts.overrides.JobID == "" {
		l.opts.overrides.JobID = prefix + time.Now().Format("20060102-150405-") + rand.Text()[:4]
		l.allSettings.FindSetting("job-id").Source = config.SourceCommand
		l.hasGeneratedName = true
	}
}

// runDaemons starts a daemon for each node, and returns the job's exit code.
func (l *localCmd) runDaemons() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program: %v", err)
	}
	l.setUpOutput()
	job := l.newJob(l.handleDaemonEnd)
	for _, step := range append([]string{""}, roles.StepNames(l.opts.cfg.Roles.Definitions)...) {
		for node := range l.nodeCount {
			job.Specs = append(job.Specs, l.daemonCommand(self, node, step))
		}
	}
	exits, err := job.Run()
	if exits != nil {
		l.exitCode = launch.ExitCode(exits)
	}
	return err
}

// newJob returns a job without daemons.
func (l *localCmd) newJob(onExit func(int, process.Handle) (process.Exit, syscall.Signal)) launch.Job {
	return launch.Job{Signals: l.signalChan, Output: l.outputMux, OnExit: onExit, RunDir: l.runDir, EndTimeout: l.patience, OnKill: func(node int) {
		l.printMessage("daemon %d has not ended %s after the others: killing it", node, l.patience)
	}}
}

// daemonCommand returns the command of a node's daemon, or of that of a further step there. The
// daemon inherits variables and reads the file itself.
func (l *localCmd) daemonCommand(self string, node int, step string) process.Spec {
	argv := []string{self, "run", "--launched-locally", "--role=auto", "--job-id=" + l.opts.overrides.JobID,
		"--rank=" + strconv.Itoa(node), "--launched-of=" + strconv.Itoa(l.nodeCount), "--step=" + step}
	for _, s := range l.allSettings {
		if s.Source != config.SourceFlag || s.Name == "nodes" || s.Name == "job-id" {
			continue
		}
		for _, value := range s.RawValues {
			argv = append(argv, "--"+s.Name+"="+value)
		}
	}
	if l.hasDashes {
		argv = append(append(argv, "--"), l.driver...)
	}
	spec := process.Spec{
		Name: "daemon " + strconv.Itoa(node), Argv: argv, Env: os.Environ(), Stdout: l.outputOf(node, false), Stderr: l.outputOf(node, true),
	}
	if step != "" {
		spec.Name += " of step " + step
		return spec
	}
	if node == 0 || l.opts.cfg.World.IsRequested() { // the node whose rank reads it
		spec.Stdin = l.streams.In
	}
	if node == 0 && l.notifySocket != "" { // the head reports for all daemons
		spec.Env = append(spec.Env, service.SocketVariable+"="+l.notifySocket)
	}
	return spec
}

// setUpOutput keeps lines of several daemons intact if the ranks of all of them print.
func (l *localCmd) setUpOutput() {
	if world := l.opts.cfg.World; world.IsRequested() && world.Output == console.AllRanks && l.nodeCount > 1 {
		l.outputMux = console.NewMux(console.MuxConfig{Out: l.streams.Out, Err: l.streams.Err, Mode: console.AllRanks, Ranks: l.nodeCount, FromNodes: true})
	}
}

// outputOf returns the destination of a daemon's standard output or error.
func (l *localCmd) outputOf(node int, isErr bool) io.Writer {
	switch {
	case l.outputMux != nil:
		return l.outputMux.RankWriter(node, isErr)
	case isErr:
		return l.streams.Err
	default:
		return l.streams.Out
	}
}
