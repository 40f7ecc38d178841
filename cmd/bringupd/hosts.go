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
	"github.com/bringupd/bringupd/internal/version"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/launch"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// sshDaemonCommand is the command that "bringupd hosts" runs by ssh. It is not a subcommand,
// because its arguments come by standard input.
const sshDaemonCommand = "hosts-daemon"

// hostsCmd is the launcher for several machines without a batch system.
type hostsCmd struct {
	*localCmd
	hostList, hostFile string
	ssh                launch.SSH

	exportedVars []string
	sessions     []*launch.SSHSession
	spareCount   int // number of further daemons that need not start
}

func (inv *invocation) hostsCommand() *cli.Command {
	h := &hostsCmd{localCmd: &localCmd{invocation: inv, opts: newOptions()}, ssh: launch.SSH{Command: "ssh"}}
	own := config.AssignCategory("Hosts",
		config.NewText("hosts", "LIST", &h.hostList,
			"hosts, in the order of node indexes, for example a,me@b,node[01-04]").WithoutFile(),
		config.NewText("hostfile", "FILE", &h.hostFile, "file with one host per line").WithoutFile(),
		config.NewText("ssh", "COMMAND", &h.ssh.Command,
			"ssh command with options; the host name is appended").WithoutFile(),
		config.NewText("remote-program", "PATH", &h.ssh.Program,
			"path of bringupd on the hosts (default: the same as here)").WithoutFile(),
		config.NewWordList("export", "NAME[=VALUE]", &h.exportedVars,
			"environment variable for daemons and driver; without VALUE, its current value (repeatable)").WithoutFile(),
	)
	h.allSettings = append(own, h.opts.daemonSettings()...)
	return jobCommand(cli.Command{
		Name: "hosts", Usage: "run a job on several machines over ssh, without a batch system",
		UsageText: "bringupd hosts --hosts=a,b,c [flags] -- driver [args]\n" +
			"bringupd hosts --hostfile=FILE [flags] -- driver [args]",
	}, h.jobFlags(), func() error {
		defer func() {
			for _, session := range h.sessions {
				session.Close()
			}
		}()
		return h.launch("hosts-", h.parseHosts, h.addSessions)
	})
}

// parseHosts determines the hosts and the variables for them.
func (h *hostsCmd) parseHosts() (err error) {
	hosts, slots := []string(nil), false
	switch {
	case (h.hostList == "") == (h.hostFile == ""):
		return usageErrorf("cannot determine the hosts: give one of --hosts=a,b,c and --hostfile=FILE")
	case h.hostList != "":
		if hosts, err = launch.ParseHosts(h.hostList); err != nil {
			return usageErrorf("cannot use --hosts=%s: %v", config.EscapeLineEnds(h.hostList), err)
		}
	default:
		text, err := h.readUserFile("the hostfile", h.hostFile)
		if err != nil {
			return err
		}
		if hosts, slots, err = launch.ReadHosts(h.hostFile, string(text)); err != nil {
			return usageErrorf("%v", err)
		}
	}
	if slots {
		h.printMessage("ignoring the slots in %s: each host has one daemon", h.hostFile)
	}
	h.opts.overrides.Hosts, h.nodeCount = hosts, len(hosts)
	if h.nodeCount == 0 || h.nodeCount > maxLocalDaemons {
		return usageErrorf("cannot start %d daemons: name 1 to %d hosts", h.nodeCount, maxLocalDaemons)
	}
	if h.exportedVars, err = config.ResolveVariables("export", h.exportedVars); err != nil {
		return usageErrorf("%v", err)
	}
	return nil
}

// addSessions adds an ssh to each host, which runs the daemon there.
func (h *hostsCmd) addSessions(cfg deps.Config, self string) error {
	h.ssh.Program = cmp.Or(h.ssh.Program, self)
	h.spareCount = h.nodeCount - cfg.Team.ForSize(h.nodeCount).Min
	h.job.OnExit = h.handleSSHEnd
	h.job.SendSignal = func(node int, _ process.Handle, sig syscall.Signal) { h.sessions[node].SendSignal(sig) }
	order, err := h.newDaemonSpec(cfg)
	if err != nil {
		return err
	}
	for node, destination := range h.opts.overrides.Hosts {
		mine := order
		mine.Args = append([]string{"run", "--rank=" + strconv.Itoa(node)}, order.Args...)
		session, err := launch.NewSSHSession(mine, h.outputOf(node, true))
		if err != nil {
			return err
		}
		h.sessions = append(h.sessions, session)
		h.job.Specs = append(h.job.Specs, process.Spec{
			Name: "ssh to " + destination, Argv: h.ssh.Argv(destination, sshDaemonCommand), Env: os.Environ(),
			Stdin: session.Stdin, Stdout: h.outputOf(node, false), Stderr: session,
		})
	}
	return nil
}

// newDaemonSpec returns the specification of all daemons. Settings that the user has given by a
// variable are passed as variables, all others as flags.
func (h *hostsCmd) newDaemonSpec(cfg deps.Config) (order launch.DaemonSpec, err error) {
	order = launch.DaemonSpec{Program: version.Program(), Mark: "bringupd hosts " + rand.Text()}
	if order.Dir, err = os.Getwd(); err != nil {
		return order, fmt.Errorf("cannot find this directory: %v", err)
	}
	own := []string{
		"hosts", "hostfile", "ssh", "remote-program", "export", "role", "rank", "job-id", "log-dir", "config",
	}
	order.Args = append([]string{
		"--launched-on=" + strings.Join(h.opts.overrides.Hosts, ","), "--role=auto",
		"--job-id=" + h.opts.overrides.JobID, "--log-dir=" + cfg.LogDir,
	}, h.givenFlags([]config.Source{config.SourceFlag, config.SourceFile}, own...)...)
	for _, s := range h.allSettings {
		if s.Source == config.SourceVariable && !slices.Contains(own, s.Name) {
			order.Env = append(order.Env, s.EnvVariable()+"="+strings.Join(s.RawValues, "\n"))
		}
	}
	if len(cfg.Driver) > 0 {
		order.Args = append(append(order.Args, "--"), cfg.Driver...)
	}
	order.Env = append(order.Env, h.exportedVars...)
	return order, nil
}

// handleSSHEnd handles the end of the ssh to a host. If the connection is lost, the daemon there
// ends, and then all others do. They would wait for a daemon that has never started, so they get a
// signal and the launch has failed, unless there are enough spares.
func (h *hostsCmd) handleSSHEnd(node int, child process.Handle) (exit process.Exit, sig syscall.Signal) {
	exit = child.Exit()
	session, host := h.sessions[node], h.opts.overrides.Hosts[node]
	reason := "it printed nothing"
	if lines := child.LastLines(); len(lines) > 0 {
		reason = textutil.SingleLine(lines[len(lines)-1], 200)
	}
	switch {
	case session.HasStarted() && exit.Signal == 0 && (exit.Code != 255 || session.HasExited255()):
		return h.handleDaemonEnd(node, child)
	case session.HasStarted():
		h.printMessage("lost the ssh connection to %s: %s", host, reason)
		return process.Exit{Code: -1, Signal: syscall.SIGKILL, Err: exit.Err}, 0
	case exit.Code == 255 || exit.Code == 127 || exit.Code == 126:
		reason = h.ssh.ExplainExit(exit.Code, host, reason)
		exit.Code = codeOf(health.Launch)
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
func prepareSSHDaemon(signals <-chan os.Signal, files config.Streams) (
	args []string, all <-chan os.Signal, in *os.File, end func(code int), err error,
) {
	t, err := launch.ReadDaemonSpec(files.In, files.Err)
	if err == nil {
		err = t.ApplyTo(version.Program())
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
