package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/internal/version"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/preflight"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

type doctorCmd struct{ *nodeCheckCmd }

// doctorJoinTimeout is the default time for which the doctor waits until all nodes have joined. The
// report then names the missing nodes.
const (
	doctorJoinTimeout    = time.Minute
	maxDoctorJoinTimeout = 24 * time.Hour
)

func (inv *invocation) doctorCommand() *cli.Command {
	e := doctorCmd{inv.newNodeCheckCmd()}
	e.opts.cfg.Times.Join = doctorJoinTimeout
	own := config.List{
		config.NewSwitch("json", &e.asJSON, "print the report as JSON, with all facts of all nodes"),
		config.NewSwitch("verbose", &e.isVerbose, "also print skipped checks"),
	}
	listed := []string{
		checkHeading, clusterHeading, "framework", "dedicated-head", "rank", "nnodes", "job-id", "interface",
		"log-dir", "temp-dir", "config", "gpus-per-node", "join-timeout", startTimeoutFlag, "pmix",
	}
	for _, name := range frameworkNames() {
		listed = append(listed, frameworkHeading(name))
	}
	return e.completeCheckCommand(cli.Command{
		Name: "doctor", Usage: "check launch, nodes and file system before a large job",
		UsageText: "srun --ntasks-per-node=1 bringupd doctor [flags] [-- driver]\n" +
			"bringupd doctor [flags] [-- driver]   (this node alone)",
		Description: "Give the flags of the job, and its driver, which is not started but examined for its " +
			"MPI library. Node 0 prints one report for all nodes to standard output, most severe findings " +
			"first; its first line is a summary. Exits with 0 if everything passed, 1 if there are warnings, " +
			"2 if the job would fail, 3 if that is unknown, and 64, 65 or 66 as described by bringupd help " +
			"codes. It leaves no files, and lists those of earlier runs without removing them.",
	}, own, listed, e.runDoctor)
}

// runDoctor examines the launch. Its exit code is that of a monitoring plugin.
func (e doctorCmd) runDoctor() error {
	cfg, err := e.newDoctorConfig()
	if err != nil || e.exitCode != 0 {
		return err
	}
	var code int
	show := func(report preflight.DoctorReport) error {
		return e.writeReport(report, report.FormatText(e.isVerbose))
	}
	signalled, err := e.runAbandonable(func(ctx context.Context) (err error) {
		code, err = preflight.RunDoctor(ctx, cfg, show)
		return err
	})
	if !signalled {
		e.exitCode = code
	}
	return err
}

// newDoctorConfig makes the doctor's configuration from the settings and the launcher's
// environment. It sets the exit code of a node that has nothing to do.
func (e doctorCmd) newDoctorConfig() (preflight.DoctorConfig, error) {
	o := e.opts
	daemonCfg := o.baseConfig(e.invocation)
	cfg := preflight.DoctorConfig{
		ExaminedLaunch: preflight.ExaminedLaunch{Framework: daemonCfg.Framework, Policy: o.checks.Policy},
		TempDir:        daemonCfg.TempDir, Environ: daemonCfg.Environ, Program: version.Program(),
		JoinTimeout: o.cfg.Times.Join,
		Driver:      e.driver, PMIx: o.cfg.World.PMIx,
	}
	if err := o.validateSettings(e.allSettings, preflight.ListDoctorCheckIDs()...); err != nil {
		return cfg, e.allSettings.NameSources(err)
	}
	if cfg.JoinTimeout < time.Second || cfg.JoinTimeout > maxDoctorJoinTimeout {
		return cfg, usageErrorf(
			"cannot use --join-timeout=%v: give 1s to %v",
			cfg.JoinTimeout, textutil.FlagDuration(maxDoctorJoinTimeout))
	}
	var err error
	if cfg.LogDir, err = resolveLogDir(o.cfg.LogDir); err != nil {
		return cfg, usageErrorf("%v", err)
	}
	if cfg.Hostname, err = os.Hostname(); err != nil {
		return cfg, err
	}
	if err := e.setIdentity(&cfg); err != nil || e.exitCode != 0 {
		return cfg, err
	}
	find := launcher.AddressFinder(cfg.Identity, o.interfaces)
	cfg.Address = func() (string, error) {
		address, err := find()
		return address.Address, err
	}
	daemonCfg.Identity = cfg.Identity
	if err := o.addChecks(&daemonCfg); err != nil {
		return cfg, err
	}
	cfg.Checks = daemonCfg.Checks
	return cfg, nil
}

// setIdentity determines the identity of this process. Without a launcher, as in a shell, it is a
// launch of one node. So is a task of a wrong launch. If the launcher merges the output of its tasks,
// only the first one reports the mistake.
func (e doctorCmd) setIdentity(cfg *preflight.DoctorConfig) (err error) {
	cfg.Identity, err = e.opts.identifyDaemon(cfg.Hostname, e.allSettings)
	launch, isLaunch := errors.AsType[*launcher.LaunchError](err)
	switch {
	case !isLaunch:
		return err
	case launch.InShell:
		cfg.AloneReason = launch
	case launcher.LeavesErrors(os.LookupEnv):
		e.exitCode = codeOf(health.Launch)
		return nil
	default:
		cfg.Mistake = launch
	}
	at, err := e.opts.readinessConfig()
	cfg.Identity = launcher.Identity{
		Launcher: launcher.LauncherLocal, Size: 1, Host: at.Host, Hosts: []string{at.Host}, LocalSize: 1,
		GPUs: at.GrantedGPUs, Grant: launcher.Grant{GPUsSource: at.GrantedBy},
		Job: "alone-" + time.Now().Format("20060102-150405-") + rand.Text()[:4],
	}
	return err
}
