package main

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	"github.com/bringupd/bringupd/pkg/signal"
)

const maxLocalDaemons = 1024

// localCmd is the launcher for one machine.
type localCmd struct {
	*invocation
	opts             *options
	allSettings      config.List
	nodeCount        int
	hasGeneratedName bool // true if the name was chosen here and is unique
	job              launch.Job
	// exit code of the first required daemon that has not started
	failedCode int
}

func (inv *invocation) localCommand() *cli.Command {
	l := &localCmd{invocation: inv, opts: newOptions(), nodeCount: 1}
	own := config.FlagsOnly(config.NewNumber("nodes", &l.nodeCount, 1, maxLocalDaemons,
		"number of nodes to simulate: daemons on this machine"))
	l.allSettings = append(config.AssignCategory(commonHeading, own...), l.opts.daemonSettings()...)
	return jobCommand(cli.Command{
		Name: "local", Usage: "run a job on this machine",
		UsageText: "bringupd local --nodes=4 [flags] -- driver [args]",
	}, l.jobFlags(), func() error {
		l.allSettings.FindSetting("launched-locally").OfferValues(config.SourceCommand, "", "true")
		return l.launch("local-", func() error {
			l.opts.localSize = l.nodeCount
			return nil
		}, l.addDaemons)
	})
}

// jobFlags returns the flags of a subcommand that starts the daemons of all nodes.
func (l *localCmd) jobFlags() config.List {
	l.allSettings.FindSetting("role").IsUnlisted = true
	return slices.DeleteFunc(slices.Clone(l.allSettings), func(s *config.Setting) bool {
		return strings.HasPrefix(s.Name, "launched-") || s.Name == "rank" || s.Name == "step"
	})
}

// launch validates the configuration as a daemon would, so that a mistake is reported once, and runs
// the job. findNodes determines the nodes, and addDaemons adds the commands of their daemons to the
// job; self is the path of this program.
func (l *localCmd) launch(
	prefix string, findNodes func() error, addDaemons func(cfg deps.Config, self string) error,
) error {
	driver, err := l.resolveForAllNodes()
	if err != nil {
		return err
	}
	if err := findNodes(); err != nil {
		return err
	}
	l.ensureRunName(prefix)
	return l.planOrRun(l.allSettings, l.opts, driver, func(cfg deps.Config, _ roles.DaemonRole) error {
		l.prepareJob(cfg)
		if err := l.checkNameUnused(cfg); err != nil {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("cannot find this program: %v", err)
		}
		l.setUpOutput(cfg)
		if err := addDaemons(cfg, self); err != nil {
			return err
		}
		exits, err := l.job.Run()
		if exits != nil {
			l.exitCode = cmp.Or(l.failedCode, launch.ExitCode(exits))
		}
		if l.exitCode != 0 && err != nil { // the exit code says more than what is left
			console.ReportStartWarning(l.streams.Err, l.logsJSON, err.Error())
			return nil
		}
		return err
	})
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
	return l.resolveJob(l.allSettings, l.opts)
}

// ensureRunName gives the run a unique name, unless the user has given one.
func (l *localCmd) ensureRunName(prefix string) {
	if l.opts.overrides.JobID == "" {
		l.opts.overrides.JobID = prefix + time.Now().Format("20060102-150405-") + rand.Text()[:4]
		l.allSettings.FindSetting("job-id").Source = config.SourceCommand
		l.hasGeneratedName = true
	}
}

// prepareJob makes the job, without its daemons and their output.
func (l *localCmd) prepareJob(cfg deps.Config) {
	endTimeout := cfg.EndTimeout()
	l.job = launch.Job{
		Signals: l.signalChan, OnExit: l.handleDaemonEnd, EndTimeout: endTimeout,
		RunDir: launch.RunDir{
			Path: filepath.Join(cfg.LogDir, l.opts.overrides.JobID), Host: cfg.Identity.Host, Hosts: cfg.Identity.Hosts,
		},
		OnKill: func(node int) {
			l.printMessage("daemon %d has not ended %s after the others: killing it", node, endTimeout)
		},
	}
}

// checkNameUnused returns an error if a run of this name exists. The head would detect that, too,
// but the workers could have joined the existing run before.
func (l *localCmd) checkNameUnused(cfg deps.Config) error {
	if l.hasGeneratedName || !l.job.RunDir.Exists(cfg.Times.Join) {
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
	mayBe := code < 0 || code >= codeOf(health.Usage) && code <= codeOf(health.Internal)
	if node == 0 && mayBe && l.nodeCount > 1 && !l.job.RunDir.Exists(headlessRunTimeout) {
		l.printMessage("the head ended before the run started: ending the other daemons")
		return child.Exit(), syscall.SIGTERM
	}
	return child.Exit(), 0
}

// setUpOutput keeps the lines of several daemons apart if the ranks of all of them print.
func (l *localCmd) setUpOutput(cfg deps.Config) {
	if world := cfg.World; world.IsRequested() && world.Output == console.AllRanks && l.nodeCount > 1 {
		l.job.Output = console.NewMux(console.MuxConfig{
			Out: l.streams.Out, Err: l.streams.Err, Mode: console.AllRanks, Ranks: l.nodeCount, FromNodes: true,
		})
	}
}

// addDaemons adds a daemon for each node, and for each further step there.
func (l *localCmd) addDaemons(_ deps.Config, self string) error {
	for _, step := range append([]string{""}, roles.StepNames(l.opts.cfg.Roles.Definitions)...) {
		for node := range l.nodeCount {
			l.job.Specs = append(l.job.Specs, l.daemonCommand(self, node, step))
		}
	}
	return nil
}

// daemonCommand returns the command of a node's daemon, or of that of a further step there. The
// daemon inherits variables and reads the file itself.
func (l *localCmd) daemonCommand(self string, node int, step string) process.Spec {
	argv := []string{self, "run", "--launched-locally", "--role=auto", "--job-id=" + l.opts.overrides.JobID,
		"--rank=" + strconv.Itoa(node), "--launched-of=" + strconv.Itoa(l.nodeCount), "--step=" + step}
	argv = append(argv, l.givenFlags([]config.Source{config.SourceFlag}, "nodes", "job-id")...)
	if l.hasDashes {
		argv = append(append(argv, "--"), l.driver...)
	}
	spec := process.Spec{
		Name: "daemon " + strconv.Itoa(node), Argv: argv, Env: os.Environ(),
		Stdout: l.outputOf(node, false), Stderr: l.outputOf(node, true),
	}
	if step != "" {
		spec.Name += " of step " + step
		return spec
	}
	if node == 0 || l.opts.cfg.World.IsRequested() { // the node whose rank reads it
		spec.Stdin = l.streams.In
	}
	return spec
}

// givenFlags returns the settings that these sources have given, as flags, except some.
func (l *localCmd) givenFlags(from []config.Source, except ...string) (flags []string) {
	for _, s := range l.allSettings {
		if slices.Contains(from, s.Source) && !slices.Contains(except, s.Name) {
			for _, value := range s.RawValues {
				flags = append(flags, "--"+s.Name+"="+value)
			}
		}
	}
	return flags
}

// outputOf returns the destination of a daemon's standard output or error.
func (l *localCmd) outputOf(node int, isErr bool) io.Writer {
	switch {
	case l.job.Output != nil:
		return l.job.Output.RankWriter(node, isErr)
	case isErr:
		return l.streams.Err
	default:
		return l.streams.Out
	}
}
