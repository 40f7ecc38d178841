package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/internal/version"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/preflight"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// newConfig makes the validated configuration from the settings and the launcher's environment. It
// creates no directory and starts no process. If only the launch is wrong, it returns the
// configuration with the error.
func (inv *invocation) newConfig(
	all config.List, o *options, fromFile []string,
) (deps.Config, roles.DaemonRole, error) {
	cfg := o.baseConfig(inv)
	var err error
	if dir := cfg.MetricsDir; dir != "" {
		if cfg.MetricsDir, err = filepath.Abs(dir); err != nil {
			return cfg, "", usageErrorf("%v", err)
		}
	}
	if cfg.Driver, err = inv.selectDriver(fromFile); err != nil {
		return cfg, "", err
	}
	if err := o.validateSettings(all); err != nil {
		return cfg, "", all.NameSources(err)
	}
	if err := cfg.ValidateRankFlags(all); err != nil {
		return cfg, "", usageErrorf("%v", err)
	}
	cfg.GivenFlags = all.GivenFlags(newOptions().daemonSettings())
	if cfg.LogDir, err = resolveLogDir(o.cfg.LogDir); err != nil {
		return cfg, "", usageErrorf("%v", err)
	}
	role, err := o.setIdentity(&cfg, all)
	if err != nil {
		return cfg, role, err
	}
	if err := cfg.Validate(); err != nil {
		return cfg, role, all.NameSources(err)
	}
	err = o.addChecks(&cfg)
	cfg.RenewChecks = o.addChecks
	return cfg, role, err
}

func (o *options) addChecks(cfg *deps.Config) error {
	checkCfg := o.checkConfig()
	traits := framework.TraitsOf(cfg.Framework)
	checks, err := preflight.NewNodeChecks(preflight.NodeConfig{
		ObjectStore: traits.ObjectStoreBytes, Tasks: traits.MinTasks,
		Config: checkCfg, Host: cfg.Identity.Host, NodeIndex: cfg.Identity.NodeIndex,
		GrantedGPUs: cfg.Identity.GPUs, GrantedBy: cfg.Identity.GPUsSource,
		Environ: cfg.Environ, Nodes: cfg.Identity.Size, TempDir: cfg.TempDir, Program: cfg.Program,
		Network: cfg.NetworkChecks(),
	})
	if err != nil {
		return config.NodeUsageErrorf("%v", err)
	}
	cfg.Checks, cfg.CheckPolicy = checks, checkCfg
	if gpus := checks.GPUs(); gpus != nil {
		cfg.GPUs = gpus
	}
	return nil
}

// selectDriver returns the driver on the command line, or otherwise that of the file.
func (inv *invocation) selectDriver(fromFile []string) ([]string, error) {
	switch {
	case inv.hasDashes && len(inv.driver) == 0:
		return nil, usageErrorf("cannot run an empty driver: nothing follows --; omit it to run without a driver")
	case inv.hasDashes:
		return inv.driver, nil
	default:
		return fromFile, nil
	}
}

// autoRole is the only value of --role: the place of a daemon decides what it does.
const autoRole = "auto"

func parseDaemonRole(text string) (string, error) {
	switch text {
	case autoRole:
		return text, nil
	case "sandbox":
		return "", errors.New("it was removed: " + useStepKey)
	}
	return "", errors.New("give " + autoRole)
}

// baseConfig returns the parts of the configuration that need no validation.
func (o *options) baseConfig(inv *invocation) deps.Config {
	cfg := deps.Config{Config: o.cfg, Set: deps.Set{Signals: inv.signalChan}}
	cfg.Program, cfg.Framework = version.Program(), o.chosenFramework().BuildFramework(o.shared)
	cfg.Roles.Frameworks = make(map[string]framework.Framework)
	for _, f := range o.frameworks {
		cfg.Roles.Frameworks[f.Name()] = f.BuildFramework(o.shared)
	}
	cfg.After.Requeue.OnFailure = o.onFailure == config.OnFailureRequeue
	cfg.TempDir, cfg.Environ, cfg.FirstStart = o.localTempDir(), os.Environ(), time.Now()
	cfg.Streams, cfg.JSONLog = inv.streams, o.logFormat == jsonFormat
	return cfg
}

func (o *options) localTempDir() string { return cmp.Or(o.cfg.TempDir, os.TempDir()) }

// validateSettings returns an error for settings that contradict each other. A rule may name one of
// the checks, besides those of a node.
func (o *options) validateSettings(all config.List, checks ...string) error {
	switch {
	case o.printRoles && !o.dryRun:
		return usageErrorf("cannot use --roles without --dry-run: a run prints no file; give both")
	case o.cfg.Sandbox.Ready != nil && o.cfg.Sandbox.Command == "":
		return usageErrorf("cannot use --sandbox-ready without a sandbox: give --sandbox-cmd")
	case all.FindSetting("sandbox-require").Source == config.SourceFlag && !o.cfg.Sandbox.IsRequested():
		return usageErrorf("cannot use --sandbox-require without a sandbox: give --sandbox-cmd")
	}
	if err := config.ValidateRecovery(all, &o.cfg.After, o.onFailure); err != nil {
		return usageErrorf("%v", err)
	}
	if err := o.chosenFramework().ValidateSettings(); err != nil {
		return usageErrorf("%v", err)
	}
	if o.shared.Auth == framework.AuthOwn && o.framework == "dask" {
		return usageErrorf("cannot use --framework-auth=own with --framework=dask: give auto or off")
	}
	if err := validateChecks(o.checks, o.gpus, checks...); err != nil {
		return err
	}
	for _, s := range all {
		if !s.IsForFramework(o.framework) && s.IsGivenForJob() &&
			!slices.ContainsFunc(s.Frameworks, o.cfg.Roles.NeedsFramework) {
			return usageErrorf("cannot use %s with --framework=%s: it is for --framework=%s",
				s.GivenName(), o.framework, strings.Join(s.Frameworks, " or "))
		}
	}
	return nil
}

// resolveLogDir returns the given log directory, relative to the directory in which the job was
// submitted.
func resolveLogDir(dir string) (string, error) {
	return filepath.Abs(cmp.Or(dir, filepath.Join(launcher.SubmitDir(os.LookupEnv), "bringupd-logs")))
}

func (o *options) setIdentity(cfg *deps.Config, all config.List) (roles.DaemonRole, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	id, err := o.identifyDaemon(host, all)
	if err != nil {
		return "", err
	}
	id.Steps = cfg.StepNames()
	cfg.Identity, cfg.Address = id, launcher.AddressFinder(id, o.interfaces)
	cfg.After.Requeue.By = id.NewRequeuer(process.RunClient)
	if cfg.Team, err = o.neededNodes(id); err != nil {
		return "", err
	}
	if cfg.Roles.Step != "" {
		return roles.ElectStepRole(id, cfg.Roles.Step)
	}
	return roles.ElectRole(id), nil
}

func (o *options) identifyDaemon(host string, all config.List) (launcher.Identity, error) {
	id, err := launcher.IdentifyDaemon(os.LookupEnv, host, o.launchOverrides())
	if err != nil {
		return id, err
	}
	// Slurm names its jobs and steps itself, also for the requeue.
	name := all.FindSetting("job-id")
	if name != nil && name.IsSet() && name.Source != config.SourceCommand && id.Launcher == launcher.LauncherSlurm {
		return id, usageErrorf("cannot name the run by %s under Slurm, which names it %s: omit it",
			name.SourceName(), id.RunName())
	}
	if o.gpus >= 0 {
		id.GPUs, id.GPUsSource = o.gpus, o.gpusSetting.GivenName()
	}
	return id, nil
}

// launchOverrides returns the values of the flags that describe the launch.
func (o *options) launchOverrides() launcher.Overrides {
	overrides := o.overrides
	overrides.ReadFile, overrides.CPUs, overrides.Ancestors = readLaunchFile, runtime.NumCPU(), processAncestors()
	if o.nodeIndex >= 0 {
		overrides.NodeIndex = &o.nodeIndex
	}
	switch {
	case o.localSize > 0:
		overrides.Size = &o.localSize
	case o.cfg.Team.Max > 0:
		overrides.Size = &o.cfg.Team.Max
	}
	return overrides
}

func processAncestors() (all []launcher.Ancestor) {
	for pid, argv := range process.Ancestors(os.Getpid()) {
		all = append(all, launcher.Ancestor{PID: pid, Argv: argv})
	}
	return all
}

// neededNodes returns the number of nodes that the driver needs, limited by the size of the launch.
func (o *options) neededNodes(id launcher.Identity) (membership.NodeRange, error) {
	team := o.cfg.Team
	if team.Min > id.Size {
		return team, &launcher.LaunchError{
			Problem: fmt.Sprintf(
				"cannot gather %d nodes (--nnodes): the launch has %d %s, one per node",
				team.Min, id.Size, textutil.PluralForm(id.Size, "daemon")),
			Fix: fmt.Sprintf(
				"start at least %d (%s), or reduce --nnodes",
				team.Min, id.Launcher.CommandHints(id.Job).StartOn(team.Min)),
			SameForAll: true,
		}
	}
	team.Max = min(team.Max, id.Size)
	return o.cfg.Roles.NodeRange(team, id.Size), nil
}

// maxLaunchFileBytes is the maximum size in bytes of a launcher's file: a million hosts with long
// names.
const maxLaunchFileBytes = 64 << 20

// readLaunchFile reads a file that a launcher has made, such as PBS_NODEFILE.
func readLaunchFile(path string) ([]byte, error) { return files.ReadRegular(path, maxLaunchFileBytes) }
