package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/launch"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// sshDaemonCommand is the command that "bringupd hosts" runs by ssh. It is not a subcommand,
// because its arguments come by standard input.
const sshDaemonCommand = "hosts-daemon"

// hostsCmd is the launcher for several machines without a batch system.
type hostsCmd struct {
	*localCmd
	hostList, hostFile, sshCommand, remoteProgram string
	exportedVars                                  []string
	sessions                                      []*launch.SSHSession
	spareCount                                    int // number of further daemons that need not start
	// exit code of the first required daemon that has not started
	failedCode int
}

func (inv *invocation) hostsCommand() *cli.Command {
	h := &hostsCmd{localCmd: &localCmd{invocation: inv, opts: newOptions()}, sshCommand: "ssh"}
	own := config.AssignCategory("Hosts",
		config.NewText("hosts", "LIST", &h.hostList,
			"hosts, in the order of node indexes, for example a,me@b,node[01-04]"),
		config.NewText("hostfile", "FILE", &h.hostFile, "file with one host per line"),
		config.NewText("ssh", "COMMAND", &h.sshCommand, "ssh command with options; the host name is appended"),
		config.NewText("remote-program", "PATH", &h.remoteProgram,
			"path of bringupd on the hosts (default: the same as here)"),
		config.NewWordList("export", "NAME[=VALUE]", &h.exportedVars,
			"environment variable for daemons and driver; without VALUE, its current value (repeatable)"),
	)
	for _, s := range own {
		s.ExcludeSources(config.SourceFile)
	}
	h.allSettings = append(own, h.opts.daemonSettings()...)
	return &cli.Command{
		Name: "hosts", Usage: "run a job on several machines over ssh, without a batch system",
		UsageText: "bringupd hosts --hosts=a,b,c [flags] -- driver [args]\nbringupd hosts --hostfile=FILE " +
			"[flags] -- driver [args]",
		Flags: h.jobFlags(),
		Action: func(c *cli.Context) error {
			if err := rejectPositional(c); err != nil {
				return err
			}
			return h.launchOnHosts()
		},
	}
}

// launchOnHosts validates the configuration as a daemon would, so that a mistake is reported once,
// and runs the job.
func (h *hostsCmd) launchOnHosts() error {
	driver, err := h.resolveForAllNodes()
	if err != nil {
		return err
	}
	if err := h.parseHosts(); err != nil {
		return err
	}
	h.ensureRunName("hosts-")
	return h.planOrRun(h.allSettings, h.opts, driver, func(cfg deps.Config, _ roles.DaemonRole) error {
		if err := h.checkNameUnused(cfg); err != nil {
			return err
		}
		return h.runRemoteDaemons(cfg)
	})
}

// parseHosts determines the hosts.
func (h *hostsCmd) parseHosts() (err error) {
	slots := false
	switch {
	case (h.hostList == "") == (h.hostFile == ""):
		return usageErrorf("cannot determine the hosts: give one of --hosts=a,b,c and --hostfile=FILE")
	case h.hostList != "":
		if h.opts.overrides.Hosts, err = launch.ParseHosts(h.hostList); err != nil {
			return usageErrorf("cannot use --hosts=%s: %v", config.EscapeLineEnds(h.hostList), err)
		}
	default:
		text, err := h.readUserFile("the hostfile", h.hostFile)
		if err != nil {
			return err
		}
		if h.opts.overrides.Hosts, slots, err = launch.ReadHosts(h.hostFile, string(text)); err != nil {
			return usageErrorf("%v", err)
		}
	}
	if slots {
		h.printMessage("ignoring the slots in %s: each host has one daemon", h.hostFile)
	}
	if h.nodeCount = len(h.opts.overrides.Hosts); h.nodeCount == 0 || h.nodeCount > maxLocalDaemons {
		return usageErrorf("cannot start %d daemons: name 1 to %d hosts", h.nodeCount, maxLocalDaemons)
	}
	return nil
}

// runRemoteDaemons starts a daemon on each host, and returns the job's exit code.
func (h *hostsCmd) runRemoteDaemons(cfg deps.Config) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program: %v", err)
	}
	h.remoteProgram, h.spareCount = cmp.Or(h.remoteProgram, self), len(h.opts.overrides.Hosts)-cfg.Team.ForSize(len(h.opts.overrides.Hosts)).Min
	order, err := h.newDaemonSpec(cfg)
	if err != nil {
		return err
	}
	h.setUpOutput()
	job := h.newJob(h.handleSSHEnd)
	job.SendSignal = func(node int, _ process.Handle, sig syscall.Signal) { h.sessions[node].SendSignal(sig) }
	defer func() {
		for _, tether := range h.sessions {
			tether.Close()
		}
	}()
	for node, destination := range h.opts.overrides.Hosts {
		mine := order
		mine.Args = append([]string{"run", "--rank=" + strconv.Itoa(node)}, order.Args...)
		tether, stdin, err := launch.NewSSHSession(mine, h.outputOf(node, true))
		if err != nil {
			return err
		}
		defer func() { _ = stdin.Close() }()
		h.sessions = append(h.sessions, tether)
		job.Specs = append(job.Specs, process.Spec{
			Name: "ssh to " + destination, Argv: h.sshArgv(destination), Env: os.Environ(), Stdin: stdin, Stdout: h.outputOf(node, false), Stderr: tether,
		})
	}
	exits, err := job.Run()
	if exits != nil {
		h.exitCode = cmp.Or(h.failedCode, launch.ExitCode(exits))
	}
	return err
}

// sshArgv returns the command that reaches a host. The user's own options come first, because ssh
// uses the first value of an option (ssh_config(5)).
func (h *hostsCmd) sshArgv(destination string) []string {
	return slices.Concat(strings.Fields(h.sshCommand), []string{
		"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
		destination, "exec " + textutil.QuoteShellWord(h.remoteProgram) + " " + sshDaemonCommand,
	})
}

// newDaemonSpec returns the specification of all daemons. Settings that the user has given by a
// variable are passed as variables, all others as flags.
func (h *hostsCmd) newDaemonSpec(cfg deps.Config) (order launch.DaemonSpec, err error) {
	order = launch.DaemonSpec{Program: programVersion(), Mark: "bringupd hosts " + rand.Text()}
	if order.Dir, err = os.Getwd(); err != nil {
		return order, fmt.Errorf("cannot find this directory: %v", err)
	}
	order.Args = []string{"--launched-on=" + strings.Join(h.opts.overrides.Hosts, ","), "--role=auto", "--job-id=" + h.opts.overrides.JobID, "--log-dir=" + cfg.LogDir}
	own := []string{"hosts", "hostfile", "ssh", "remote-program", "export", "role", "rank", "job-id", "log-dir", "config"}
	for _, s := range h.allSettings {
		switch {
		case s.Source == config.SourceDefault || s.Source == config.SourceCommand || slices.Contains(own, s.Name):
		case s.Source == config.SourceVariable:
			order.Env = append(order.Env, s.EnvVariable()+"="+strings.Join(s.RawValues, "\n"))
		default:
			for _, value := range s.RawValues {
				order.Args = append(order.Args, "--"+s.Name+"="+value)
			}
		}
	}
	if len(cfg.Driver) > 0 {
		order.Args = append(append(order.Args, "--"), cfg.Driver...)
	}
	exported, err := config.ResolveVariables("export", h.exportedVars)
	if err != nil {
		return order, usageErrorf("%v", err)
	}
	order.Env = append(order.Env, exported...)
	return order, nil
}

// handleSSHEnd handles the end of the ssh to a host. If the connection is lost, the daemon there
// ends, and then all others do. They would wait for a daemon that has never started, so they get a
// signal and the launch has failed, unless there are enough spares.
func (h *hostsCmd) handleSSHEnd(node int, child process.Handle) (exit process.Exit, sig syscall.Signal) {
	exit = child.Exit()
	tether, host := h.sessions[node], h.opts.overrides.Hosts[node]
	reason := "it printed nothing"
	if lines := child.LastLines(); len(lines) > 0 {
		reason = textutil.SingleLine(lines[len(lines)-1], 200)
	}
	switch {
	case tether.HasStarted() && exit.Signal == 0 && (exit.Code != 255 || tether.HasExited255()):
		return h.handleDaemonEnd(node, child)
	case tether.HasStarted():
		h.printMessage("lost the ssh connection to %s: %s", host, reason)
		return process.Exit{Code: -1, Signal: syscall.SIGKILL, Err: exit.Err}, 0
	case exit.Code == 255:
		exit.Code = health.OutcomeOfKind(health.Launch).Code
		reason = fmt.Sprintf(
			"cannot reach %s: %s; try: %s",
			host, reason, textutil.FormatCommand(append(strings.Fields(h.sshCommand), "-o", "BatchMode=yes", host, "true")...))
		h.printMessage("%s", reason)
	case exit.Code == 127 || exit.Code == 126:
		exit.Code = health.OutcomeOfKind(health.Launch).Code
		reason = fmt.Sprintf(
			"cannot find bringupd on %s: %s; install it there at %s, or give --remote-program",
			host, reason, h.remoteProgram)
		h.printMessage("%s", reason)
	default: // the daemon has reported it itself
		reason = fmt.Sprintf("cannot start on %s: %s", host, reason)
	}
	if node > 0 && h.spareCount > 0 && h.failedCode == 0 {
		h.spareCount--
		h.printMessage("continuing without %s: %d spares remain", host, h.spareCount)
		return process.Exit{}, 0
	}
	h.failedCode = cmp.Or(h.failedCode, exit.ShellStatus())
	for _, other := range h.sessions {
		other.SendFailure(reason)
	}
	return exit, syscall.SIGTERM
}

// prepareSSHDaemon replaces the arguments and streams of a daemon that ssh has started by those in
// its specification.
func prepareSSHDaemon(signals <-chan os.Signal, files config.Streams) (args []string, all <-chan os.Signal, in *os.File, end func(code int), err error) {
	t, err := launch.ReadDaemonSpec(files.In, files.Err)
	if err == nil {
		err = t.ApplyTo(programVersion())
	}
	if _, isLaunch := errors.AsType[*launcher.LaunchError](err); err != nil && !isLaunch {
		err = usageErrorf("%v", err)
	}
	if err == nil {
		in, err = os.Open(os.DevNull)
	}
	if err != nil {
		return nil, nil, nil, nil, err
	}
	t.ReportStarted()
	return append([]string{"bringupd"}, t.Args...), t.MergeSignals(signals), in, t.ReportExit, nil
}
