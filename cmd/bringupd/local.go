package main

import (
	"context"
	"crypto/rand"
	"errors"
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
	"github.com/bringupd/bringupd/pkg/launch"
	"github.com/bringupd/bringupd/pkg/output"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/setting"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/systemd"
)

// maxLocal is the maximum number of daemons on one machine.
const maxLocal = 1024

// local is the launcher for one machine.
type local struct {
	*invocation
	opts  *options
	all   setting.List
	nodes int
	named bool // true if the name was chosen here and is unique
	host  string
	path  string // of the run directory, if it is unique
	// chorus keeps the lines of several daemons apart. It is nil if only the head's output is printed.
	chorus *output.Chorus
}

func (inv *invocation) localCommand() *cli.Command {
	l := &local{invocation: inv, opts: newOptions(), nodes: 1}
	count := setting.Number("nodes", &l.nodes, 1, maxLocal, "number of daemons to start on this machine").Not(setting.ByVariable, setting.ByFile)
	count.Category = launchFlags
	l.all = append(setting.List{count}, l.opts.settings()...)
	return &cli.Command{
		Name: "local", Usage: "run a whole job on this machine: all daemons, and the driver",
		UsageText: "bringupd local --nodes=4 [flags] -- driver [args]",
		Flags:     l.all.Only(isLocalFlag).Flags(),
		Action: func(c *cli.Context) error {
			if err := noPositional(c); err != nil {
				return err
			}
			return l.launch()
		},
	}
}

// isLocalFlag reports whether a setting applies if all daemons run on this machine. The role is
// accepted, because it may be in a configuration file for Slurm.
func isLocalFlag(s *setting.Setting) bool {
	return !strings.HasPrefix(s.Name, "launched-") && s.Name != "role" && s.Name != "rank"
}

// launch validates the configuration as a daemon would, so that a mistake is reported once, and
// runs the job.
func (l *local) launch() error {
	driver, err := l.gather()
	if err != nil {
		return err
	}
	return l.planOr(l.all, l.opts, driver, func(cfg config.Config, _ roles.Role) error {
		if err := l.refuseTwin(cfg); err != nil {
			return err
		}
		return l.run()
	})
}

// refuseTwin returns an error if a run of this name exists. The head would detect that, too, but
// the workers could have joined the existing run before.
func (l *local) refuseTwin(cfg config.Config) error {
	l.path, l.host = filepath.Join(cfg.LogDir, l.opts.asked.JobID), cfg.Identity.Host
	if l.named || !l.hasRun(cfg.Times.Join) {
		return nil // the daemons report what is wrong there
	}
	return &signal.DirError{
		Path: cfg.LogDir, Host: cfg.Identity.Host,
		Seen: fmt.Sprintf("a run of the same name, %s, has been there before", l.opts.asked.JobID),
		Mend: "give another --job-id, or another --log-dir",
	}
}

// hasRun reports whether a run of this name exists, as far as this can be determined within a time.
func (l *local) hasRun(within time.Duration) bool {
	ctx, cancel := context.WithTimeoutCause(context.Background(), within, errTwinTimeout)
	defer cancel()
	_, _, err := signal.OpenExisting(ctx, l.path, l.host)
	return err == nil
}

var errTwinTimeout = errors.New("the join timeout is over")

// headlessLook is the timeout for finding the run of a head that has ended.
const headlessLook = 10 * time.Second

// ended handles the end of a daemon. If the head ends before there is a run, the others would wait
// for the run until their join timeout, so they are ended by a signal.
func (l *local) ended(rank int, child *process.Child) (process.Exit, syscall.Signal) {
	if rank == 0 && l.nodes > 1 && !l.hasRun(headlessLook) {
		l.say("the head has ended before the run began: ending the other daemons")
		return child.Exit(), syscall.SIGTERM
	}
	return child.Exit(), 0
}

// gather resolves the settings of the user and of this launcher.
func (l *local) gather() (driver []string, err error) {
	l.all.Find("launched-locally").Offer(setting.ByCommand, "", "true")
	l.all.Find("role").Offer(setting.ByCommand, "", "auto")
	l.all.Find("rank").Offer(setting.ByCommand, "", "0")
	driver, err = l.all.Gather(os.LookupEnv, l.read)
	if err != nil {
		return nil, err
	}
	l.opts.localSize = l.nodes
	l.nameRun("local-")
	return driver, nil
}

// nameRun gives the run a unique name, unless the user has given one.
func (l *local) nameRun(prefix string) {
	if l.opts.asked.JobID == "" {
		l.opts.asked.JobID = prefix + time.Now().Format("20060102-150405-") + rand.Text()[:4]
		l.all.Find("job-id").Source = setting.ByCommand
		l.named = true
	}
}

// run starts a daemon for each node, and returns the job's exit code.
func (l *local) run() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program: %v", err)
	}
	l.gatherOutput()
	job := launch.Job{Signals: l.signals, Chorus: l.chorus, Ended: l.ended}
	for rank := range l.nodes {
		job.Specs = append(job.Specs, l.spec(self, rank))
	}
	exits, err := job.Run()
	if exits != nil {
		l.code = launch.Code(exits)
	}
	return err
}

// spec returns the command of a node's daemon. The daemon inherits variables and reads the file
// itself.
func (l *local) spec(self string, rank int) process.Spec {
	argv := []string{self, "run", "--launched-locally", "--role=auto", "--job-id=" + l.opts.asked.JobID,
		"--rank=" + strconv.Itoa(rank), "--launched-of=" + strconv.Itoa(l.nodes)}
	for _, s := range l.all {
		if s.Source != setting.ByFlag || s.Name == "nodes" || s.Name == "job-id" {
			continue
		}
		for _, value := range s.Given {
			argv = append(argv, "--"+s.Name+"="+value)
		}
	}
	if l.dashed {
		argv = append(append(argv, "--"), l.driver...)
	}
	spec := process.Spec{
		Name: "daemon " + strconv.Itoa(rank), Argv: argv, Env: os.Environ(), Stdout: l.out(rank, false), Stderr: l.out(rank, true),
	}
	if rank == 0 || l.opts.cfg.World.Wanted() { // the node whose rank reads it
		spec.Stdin = l.files.In
	}
	if rank == 0 {
		if l.notifySocket != "" { // the head reports for all daemons
			spec.Env = append(spec.Env, systemd.Variable+"="+l.notifySocket)
		}
	}
	return spec
}

// gatherOutput keeps lines of several daemons intact if the ranks of all of them print.
func (l *local) gatherOutput() {
	if world := l.opts.cfg.World; world.Wanted() && world.Output == output.All && l.nodes > 1 {
		l.chorus = output.New(output.Config{Out: l.files.Out, Err: l.files.Err, Mode: output.All, Ranks: l.nodes, Nodes: true})
	}
}

// out returns the destination of a daemon's standard output or error.
func (l *local) out(rank int, isErr bool) io.Writer {
	switch {
	case l.chorus != nil:
		return l.chorus.Writer(rank, isErr)
	case isErr:
		return l.files.Err
	default:
		return l.files.Out
	}
}
