package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/readiness"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/setting"
	"github.com/bringupd/bringupd/pkg/shown"
	"github.com/bringupd/bringupd/pkg/team"
)

// configure makes the validated configuration from the settings and the launcher's environment. It
// creates no directory and starts no process. If only the launch is wrong, it returns the
// configuration with the error.
func (inv *invocation) configure(all setting.List, o *options, fromFile []string) (config.Config, roles.Role, error) {
	cfg := o.build(inv)
	var err error
	if cfg.Shown, err = o.shown(inv); err != nil {
		return cfg, "", usage("%v", err)
	}
	if cfg.Driver, err = inv.chosenDriver(o, fromFile); err != nil {
		return cfg, "", err
	}
	if err := o.check(all); err != nil {
		return cfg, "", err
	}
	if cfg.LogDir, err = o.logs(); err != nil {
		return cfg, "", usage("%v", err)
	}
	role, err := o.place(&cfg)
	if err != nil {
		return cfg, role, err
	}
	if err := cfg.Validate(); err != nil {
		return cfg, role, usage("%v", err)
	}
	if role != roles.Sandbox {
		err = o.addChecks(&cfg)
		cfg.Renew = o.addChecks
	}
	return cfg, role, err
}

// shown returns the configuration of a daemon's telemetry.
func (o *options) shown(inv *invocation) (where shown.Config, err error) {
	where = o.cfg.Shown
	where.NotifySocket = inv.notifySocket
	if where.MetricsDir != "" {
		where.MetricsDir, err = filepath.Abs(where.MetricsDir)
	}
	return where, err
}

// addChecks adds the checks of the node and the monitoring of its GPUs.
func (o *options) addChecks(cfg *config.Config) error {
	told, err := o.checkConfig()
	if err != nil {
		return usage("%v", err)
	}
	traits := framework.TraitsOf(cfg.Framework)
	checks, err := readiness.New(readiness.Config{
		ObjectStore: traits.ObjectStore, Tasks: traits.Tasks,
		Config: told, Host: cfg.Identity.Host, Rank: cfg.Identity.Rank, Granted: cfg.Identity.GPUs, GrantedBy: cfg.Identity.GPUsFrom,
		Environ: cfg.Environ, Nodes: cfg.Identity.Size, TempDir: cfg.TempDir, Program: cfg.Program,
	})
	if err != nil {
		return usage("%v", err)
	}
	cfg.Checks, cfg.CheckPolicy = checks, told
	if gpus := checks.GPUs(); gpus != nil {
		cfg.GPUs = gpus
	}
	return nil
}

// chosenDriver returns the driver on the command line, or otherwise that of the file. A step with
// sandboxes ignores the file's driver, which belongs to another step.
func (inv *invocation) chosenDriver(o *options, fromFile []string) ([]string, error) {
	switch {
	case inv.dashed && len(inv.driver) == 0:
		return nil, usage("cannot run an empty driver: leave the -- away for a job without one")
	case inv.dashed && o.role == string(roles.Sandbox):
		return nil, usage("cannot run a driver with --role=sandbox: it runs in the step of the other daemons")
	case inv.dashed:
		return inv.driver, nil
	case o.role == string(roles.Sandbox):
		return nil, nil
	default:
		return fromFile, nil
	}
}

// build returns the parts of the configuration that need no validation.
func (o *options) build(inv *invocation) config.Config {
	cfg := o.cfg
	cfg.Program, cfg.Framework = version(), o.chosen().Framework(o.dedicatedHead)
	cfg.After.Requeue.OnFailure = o.onFailure == onFailureRequeue
	cfg.TempDir, cfg.Environ, cfg.Signals, cfg.Began = o.temporary(), os.Environ(), inv.signals, time.Now()
	cfg.Files, cfg.JSONLog = inv.files, o.logFormat == jsonFormat
	return cfg
}

// temporary returns the local directory for temporary files.
func (o *options) temporary() string { return cmp.Or(o.cfg.TempDir, os.TempDir()) }

// check returns an error for settings that contradict each other.
func (o *options) check(all setting.List) error {
	switch {
	case o.role == string(roles.Sandbox) && o.cfg.Sandbox.Command == "":
		return usage("cannot be a sandbox without its command: give --sandbox-cmd")
	case o.cfg.Sandbox.Ready != nil && o.cfg.Sandbox.Command == "":
		return usage("cannot use --sandbox-ready without a sandbox: give --sandbox-cmd")
	case all.Find("sandbox-require").Source == setting.ByFlag && !o.cfg.Sandbox.Wanted():
		return usage("cannot use --sandbox-require without a sandbox: give --sandbox-cmd or --sandbox-step")
	case o.cfg.After.Restarts > 0 && o.cfg.Sandbox.Step:
		return usage("cannot use --restarts with --sandbox-step: the sandboxes of another step are not started anew; give --sandbox-cmd to this one")
	case all.Find("restart-backoff").Source == setting.ByFlag && o.cfg.After.Restarts == 0:
		return usage("cannot use --restart-backoff without restarts: give --restarts")
	case all.Find("clean-after").Source == setting.ByFlag && o.cfg.After.Clean != config.CleanNone:
		return usage("cannot use --clean-after with --clean=%s: it is for --clean=none", o.cfg.After.Clean)
	case all.Find("max-requeues").Source == setting.ByFlag && o.onFailure != onFailureRequeue:
		return usage("cannot use --max-requeues with --on-failure=%s: it is for --on-failure=requeue", o.onFailure)
	}
	if checked, is := o.chosen().(framework.Checked); is {
		if err := checked.Check(); err != nil {
			return usage("%v", err)
		}
	}
	if err := judgeChecks(all, o.checks, o.gpus); err != nil {
		return err
	}
	if _, err := o.checkConfig(); err != nil {
		return usage("%v", err)
	}
	for _, s := range all {
		if !s.IsFor(o.framework) && s.IsMeant() {
			return usage("cannot use --%s (given by %s) with --framework=%s: it is for --framework=%s",
				s.Name, s.Origin(), o.framework, s.Framework)
		}
	}
	return nil
}

// logs returns the log directory.
func (o *options) logs() (string, error) { return logsIn(o.cfg.LogDir) }

// logsIn returns the given log directory, relative to the directory in which the job was submitted.
func logsIn(dir string) (string, error) {
	return filepath.Abs(cmp.Or(dir, filepath.Join(roles.SubmitDir(os.LookupEnv), "bringupd-logs")))
}

// place determines the identity of this daemon in its launch.
func (o *options) place(cfg *config.Config) (roles.Role, error) {
	role, err := roles.ParseRole(o.role)
	if err != nil {
		return "", usage("%v", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return role, err
	}
	id, err := o.identify(host)
	if err != nil {
		return role, err
	}
	cfg.Identity, cfg.Address = id, o.address(id)
	cfg.After.Requeue.By = id.Requeuer(runProgram)
	if cfg.Team, err = o.teamOf(id); err != nil {
		return role, err
	}
	if role == roles.Sandbox && !id.Launcher.Traits().Steps {
		return role, &roles.LaunchError{
			Problem: "cannot be a sandbox of its own without Slurm: the run that it is for is found by the job's number",
			Mend:    "give --sandbox-cmd to the run itself",
		}
	}
	return id.Elect(role)
}

// identify determines the identity from the launcher and the flags.
func (o *options) identify(host string) (roles.Identity, error) {
	id, err := roles.Identify(os.LookupEnv, host, o.want())
	if err != nil {
		return id, err
	}
	if o.gpus >= 0 {
		id.GPUs, id.GPUsFrom = o.gpus, "--gpus-per-node"
	}
	if o.cpus > 0 {
		id.CPUs = o.cpus
	}
	return id, nil
}

// want returns the values of the flags that describe the launch.
func (o *options) want() roles.Want {
	want := o.asked
	want.ReadFile, want.CPUs, want.Ancestry = readLaunchFile, runtime.NumCPU(), ancestry
	if o.rank >= 0 {
		want.Rank = &o.rank
	}
	switch {
	case o.localSize > 0:
		want.Size = &o.localSize
	case o.cfg.Team.Max > 0:
		want.Size = &o.cfg.Team.Max
	}
	return want
}

// ancestry returns this process and its ancestors.
func ancestry() (all []roles.Ancestor) {
	for pid, argv := range process.Ancestors(os.Getpid()) {
		all = append(all, roles.Ancestor{PID: pid, Argv: argv})
	}
	return all
}

// teamOf returns the number of nodes that the driver needs, limited by the size of the launch.
func (o *options) teamOf(id roles.Identity) (team.Bounds, error) {
	team := o.cfg.Team
	if team.Min > id.Size {
		return team, &roles.LaunchError{
			Problem: fmt.Sprintf("cannot gather %d nodes (--nnodes): the launch has %d daemons, one a node", team.Min, id.Size),
			Mend:    fmt.Sprintf("start at least %d of them (%s), and more to have spares, or want fewer", team.Min, id.Launcher.Words(id.Job).Nodes(team.Min)),
		}
	}
	team.Max = min(team.Max, id.Size)
	return team, nil
}

// addressTimeout is the timeout for finding this node's own address.
const addressTimeout = 10 * time.Second

var errNoAddress = errors.New("the search for this node's address took too long")

// address returns a function that finds this node's address at its first call.
func (o *options) address(id roles.Identity) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), addressTimeout, errNoAddress)
		defer cancel()
		address, err := roles.LocalAddress(ctx, id, o.interfaceName)
		if err != nil {
			return "", err
		}
		return address.String(), nil
	})
}
