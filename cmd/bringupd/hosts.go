package main

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/launch"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/setting"
)

// tetheredCommand is the command that "bringupd hosts" runs by ssh. It is not a subcommand, because
// its arguments come by standard input.
const tetheredCommand = "hosts-daemon"

// onHosts is the launcher for several machines without a batch system.
type onHosts struct {
	*local
	list, file, ssh, program string
	export                   []string
	tethers                  []*launch.Tether
	spares                   int // number of further daemons that need not start
	failed                   int // exit code of the first required daemon that has not started
}

func (inv *invocation) hostsCommand() *cli.Command {
	h := &onHosts{local: &local{invocation: inv, opts: newOptions()}, ssh: "ssh"}
	own := setting.Under(launchFlags,
		setting.Text("hosts", "LIST", &h.list, "hosts to start a daemon on, in the order of the ranks, as in a,me@b,node[01-04]"),
		setting.Text("hostfile", "FILE", &h.file, "file that names them instead, a host a line"),
		setting.Text("ssh", "COMMAND", &h.ssh, "how to reach a host: words, to which its name is added"),
		setting.Text("remote-program", "PATH", &h.program, "this program's path on the hosts (default: its path here)"),
		setting.Words("export", "NAME[=VALUE]", &h.export, "variable for the daemons and their driver; without a value, the one that it has here; may be repeated"),
	)
	for _, s := range own {
		s.Not(setting.ByFile)
	}
	h.all = append(own, h.opts.settings()...)
	return &cli.Command{
		Name: "hosts", Usage: "run a whole job on several machines without a batch system, by ssh",
		UsageText: "bringupd hosts --hosts=a,b,c [flags] -- driver [args]\nbringupd hosts --hostfile=FILE [flags] -- driver [args]",
		Flags:     h.all.Only(isLocalFlag).Flags(),
		Action: func(c *cli.Context) error {
			if err := noPositional(c); err != nil {
				return err
			}
			return h.launch()
		},
	}
}

// launch validates the configuration as a daemon would, so that a mistake is reported once, and
// runs the job.
func (h *onHosts) launch() error {
	h.all.Find("role").Offer(setting.ByCommand, "", "auto")
	h.all.Find("rank").Offer(setting.ByCommand, "", "0")
	driver, err := h.all.Gather(os.LookupEnv, h.read)
	if err != nil {
		return err
	}
	if err := h.name(); err != nil {
		return err
	}
	h.nameRun("hosts-")
	return h.planOr(h.all, h.opts, driver, func(cfg config.Config, _ roles.Role) error {
		if err := h.refuseTwin(cfg); err != nil {
			return err
		}
		return h.run(cfg)
	})
}

// name determines the hosts.
func (h *onHosts) name() (err error) {
	slots := false
	switch {
	case (h.list == "") == (h.file == ""):
		return usage("cannot tell which hosts are meant: give one of --hosts=a,b,c and --hostfile=FILE")
	case h.list != "":
		if h.opts.asked.Hosts, err = launch.ParseHosts(h.list); err != nil {
			return usage("cannot use --hosts=%s: %v", setting.OneLine(h.list), err)
		}
	default:
		text, err := h.read("the hostfile", h.file)
		if err != nil {
			return err
		}
		if h.opts.asked.Hosts, slots, err = launch.ReadHosts(h.file, string(text)); err != nil {
			return usage("%v", err)
		}
	}
	if slots {
		h.say("the slots in %s do not count: each host has one daemon", h.file)
	}
	if h.nodes = len(h.opts.asked.Hosts); h.nodes == 0 || h.nodes > maxLocal {
		return usage("cannot start %d daemons: name 1 to %d hosts", h.nodes, maxLocal)
	}
	return nil
}

// run starts a daemon on each host, and returns the job's exit code.
func (h *onHosts) run(cfg config.Config) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program: %v", err)
	}
	h.program, h.spares = cmp.Or(h.program, self), len(h.opts.asked.Hosts)-cfg.Team.Of(len(h.opts.asked.Hosts)).Min
	order, err := h.order(cfg)
	if err != nil {
		return err
	}
	h.gatherOutput()
	job := launch.Job{Signals: h.signals, Chorus: h.chorus, Ended: h.ended, Signal: func(rank int, _ *process.Child, sig syscall.Signal) {
		h.tethers[rank].Signal(sig)
	}}
	defer func() {
		for _, tether := range h.tethers {
			tether.Close()
		}
	}()
	for rank, destination := range h.opts.asked.Hosts {
		mine := order
		mine.Args = append([]string{"run", "--rank=" + strconv.Itoa(rank)}, order.Args...)
		tether, stdin, err := launch.NewTether(mine, h.out(rank, true))
		if err != nil {
			return err
		}
		defer func() { _ = stdin.Close() }()
		h.tethers = append(h.tethers, tether)
		job.Specs = append(job.Specs, process.Spec{
			Name: "ssh to " + destination, Argv: h.command(destination), Env: os.Environ(), Stdin: stdin, Stdout: h.out(rank, false), Stderr: tether,
		})
	}
	exits, err := job.Run()
	if exits != nil {
		h.code = cmp.Or(h.failed, launch.Code(exits))
	}
	return err
}

// command returns the command that reaches a host. The user's own options come first, because ssh
// uses the first value of an option (ssh_config(5)).
func (h *onHosts) command(destination string) []string {
	return slices.Concat(strings.Fields(h.ssh), []string{
		"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
		destination, "exec " + prose.ShellWord(h.program) + " " + tetheredCommand,
	})
}

// order returns the specification of all daemons. Settings that the user has given by a variable
// are passed as variables, all others as flags.
func (h *onHosts) order(cfg config.Config) (order launch.Order, err error) {
	order = launch.Order{Program: version(), Mark: "bringupd hosts " + rand.Text()}
	if order.Dir, err = os.Getwd(); err != nil {
		return order, fmt.Errorf("cannot find this directory: %v", err)
	}
	order.Args = []string{"--launched-on=" + strings.Join(h.opts.asked.Hosts, ","), "--role=auto", "--job-id=" + h.opts.asked.JobID, "--log-dir=" + cfg.LogDir}
	own := []string{"hosts", "hostfile", "ssh", "remote-program", "export", "role", "rank", "job-id", "log-dir", "config"}
	for _, s := range h.all {
		switch {
		case s.Source == setting.ByDefault || s.Source == setting.ByCommand || slices.Contains(own, s.Name):
		case s.Source == setting.ByVariable:
			order.Env = append(order.Env, s.Variable()+"="+strings.Join(s.Given, "\n"))
		default:
			for _, value := range s.Given {
				order.Args = append(order.Args, "--"+s.Name+"="+value)
			}
		}
	}
	if len(cfg.Driver) > 0 {
		order.Args = append(append(order.Args, "--"), cfg.Driver...)
	}
	exported, err := namedHere("export", h.export)
	order.Env = append(order.Env, exported...)
	return order, err
}

// ended handles the end of the ssh to a host. If the connection is lost, the daemon there ends, and
// then all others do. They would wait for a daemon that has never started, so they get a signal and
// the launch has failed, unless there are enough spares.
func (h *onHosts) ended(rank int, child *process.Child) (exit process.Exit, sig syscall.Signal) {
	exit = child.Exit()
	tether, host := h.tethers[rank], h.opts.asked.Hosts[rank]
	said := "it has said nothing"
	if lines := child.LastLines(); len(lines) > 0 {
		said = prose.Line(lines[len(lines)-1], 200)
	}
	switch {
	case tether.Began() && exit.Signal == 0 && (exit.Code != 255 || tether.Failed255()):
		if exit.Code < health.OutcomeOf(health.Usage).Code || exit.Code > health.OutcomeOf(health.Internal).Code {
			return exit, 0 // the log directory may not be shared with this machine
		}
		return h.local.ended(rank, child)
	case tether.Began():
		h.say("lost the ssh connection to %s: %s", host, said)
		return process.Exit{Code: -1, Signal: syscall.SIGKILL, Err: exit.Err}, 0
	case exit.Code == 255:
		exit.Code = health.OutcomeOf(health.Launch).Code
		said = fmt.Sprintf("cannot reach %s: %s; see whether this works: %s", host, said, prose.ShellLine(append(strings.Fields(h.ssh), "-o", "BatchMode=yes", host, "true")...))
		h.say("%s", said)
	case exit.Code == 127 || exit.Code == 126:
		exit.Code = health.OutcomeOf(health.Launch).Code
		said = fmt.Sprintf("cannot find bringupd on %s: %s; put it at %s there, or give --remote-program", host, said, h.program)
		h.say("%s", said)
	default: // the daemon has reported it itself
		said = fmt.Sprintf("cannot begin on %s: %s", host, said)
	}
	if rank > 0 && h.spares > 0 && h.failed == 0 {
		h.spares--
		h.say("going on without %s: %d more can be spared", host, h.spares)
		return process.Exit{}, 0
	}
	h.failed = cmp.Or(h.failed, exit.Status())
	for _, other := range h.tethers {
		other.Fail(said)
	}
	return exit, syscall.SIGTERM
}

// tethered replaces the arguments and streams of a daemon that ssh has started by those in its
// specification.
func tethered(signals <-chan os.Signal, files config.Files) (args []string, all <-chan os.Signal, in *os.File, end func(code int), err error) {
	host, _ := os.Hostname()
	t, err := launch.ReadOrder(files.In, files.Err)
	if err != nil {
		return nil, nil, nil, nil, usage("%v", err)
	}
	if t.Program != version() {
		return nil, nil, nil, nil, &roles.LaunchError{
			Problem: fmt.Sprintf("cannot take part on %s: bringupd is %s there, and %s where it was launched", host, version(), t.Program),
			Mend:    "have one on all hosts, or give --remote-program",
		}
	}
	if err := os.Chdir(t.Dir); err != nil {
		return nil, nil, nil, nil, &roles.LaunchError{
			Problem: fmt.Sprintf("cannot begin on %s where bringupd was launched: %v", host, err), Mend: "launch it from a directory that all hosts have",
		}
	}
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "BRINGUPD_") {
			_ = os.Unsetenv(name) // the launcher's count
		}
	}
	for _, entry := range t.Env {
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, nil, nil, nil, usage("cannot set %s: %v", name, err)
		}
	}
	if in, err = os.Open(os.DevNull); err != nil {
		return nil, nil, nil, nil, err
	}
	t.Begin()
	return append([]string{"bringupd"}, t.Args...), t.Follow(signals), in, t.End, nil
}
