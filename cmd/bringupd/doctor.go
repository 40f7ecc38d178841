package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/doctor"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
)

// examination is one execution of bringupd doctor.
type examination struct{ *looking }

// doctorJoin is the default time for which the doctor waits until all nodes have joined. The report
// then names the missing nodes.
const doctorJoin = time.Minute

func (inv *invocation) doctorCommand() *cli.Command {
	e := examination{inv.look("print the report as JSON, for programs, with all facts of all nodes", "show also what was skipped")}
	e.opts.cfg.Times.Join = doctorJoin
	headings := []string{checkFlags, resultFlags, bringUpFlags}
	for _, name := range frameworkNames() {
		headings = append(headings, frameworkFlags(name))
	}
	return e.command(cli.Command{
		Name: "doctor", Usage: "tell before a big job whether its launch, its nodes and their share are fit for it",
		UsageText: "srun --ntasks-per-node=1 bringupd doctor [flags] [-- driver]\nbringupd doctor [flags] [-- driver]   (this node alone)",
		Description: "Give it the flags of the job, and its driver, which is not run: it tells the MPI that this is linked with. Rank 0 prints one table for all nodes on standard output, the worst first; its first line is the summary. " +
			"Exits with 0 if all is well, 1 if there are warnings, 2 if the job would fail, 3 if that can't be known, " +
			"and with 64, 65 or 66 for what the table of exit codes says. It leaves nothing behind, and names what earlier runs have left without removing it.",
	}, headings, []string{
		"rank", "nnodes", "job-id", "interface", "log-dir", "temp-dir", "config", "gpus-per-node", "cpus-per-node", "join-timeout",
		"launched-locally", "launched-of", "pmix",
	}, e.run)
}

// run examines the launch. Its exit code is that of a monitoring plugin.
func (e examination) run() error {
	cfg, err := e.configure()
	if err != nil || e.code != 0 {
		return err
	}
	var code int
	if e.heeded(func(ctx context.Context) { code, err = doctor.Run(ctx, cfg, e.show) }) {
		e.code = code
		return err
	}
	return nil
}

// configure makes the doctor's configuration from the settings and the launcher's environment. It
// sets the exit code of a node that has nothing to do.
func (e examination) configure() (doctor.Config, error) {
	o := e.opts
	daemonCfg := o.build(e.invocation)
	cfg := doctor.Config{
		Launch:  doctor.Launch{Framework: daemonCfg.Framework, Policy: o.checks.Policy},
		TempDir: daemonCfg.TempDir, Environ: daemonCfg.Environ, Program: version(), Join: o.cfg.Times.Join,
		Driver: e.driver, PMIx: o.cfg.World.PMIx,
	}
	if err := e.check(); err != nil {
		return cfg, err
	}
	if cfg.Join < time.Second || cfg.Join > mostCheck {
		return cfg, usage("cannot use --join-timeout=%v: give 1s to %v", cfg.Join, prose.FlagTime(mostCheck))
	}
	var err error
	if cfg.LogDir, err = o.logs(); err != nil {
		return cfg, usage("%v", err)
	}
	if cfg.Hostname, err = os.Hostname(); err != nil {
		return cfg, err
	}
	if err := e.place(&cfg); err != nil || e.code != 0 {
		return cfg, err
	}
	cfg.Address = o.address(cfg.Identity)
	daemonCfg.Identity = cfg.Identity
	if err := o.addChecks(&daemonCfg); err != nil {
		return cfg, err
	}
	cfg.Checks = daemonCfg.Checks
	return cfg, nil
}

// check returns an error for invalid settings, as a daemon would. A rule may refer to a line of the
// doctor's own.
func (e examination) check() error {
	policy := &e.opts.checks.Policy
	all := policy.Rules
	defer func() { policy.Rules = all }()
	policy.Rules = slices.DeleteFunc(slices.Clone(all), func(rule check.Rule) bool { return rule.Means(doctor.IDs()...) })
	return e.opts.check(e.all)
}

// place determines the identity of this process. Without a launcher, as in a shell, it is a launch
// of one node. So is the first task of a wrong launch, which reports the mistake for all tasks.
func (e examination) place(cfg *doctor.Config) (err error) {
	cfg.Identity, err = e.opts.identify(cfg.Hostname)
	launch, isLaunch := errors.AsType[*roles.LaunchError](err)
	switch {
	case !isLaunch:
		return err
	case launch.Alone:
		cfg.Alone = launch
	case !roles.IsFirst(os.LookupEnv, ancestry):
		e.code = health.OutcomeOf(health.Launch).Code
		return nil
	default:
		cfg.Mistake = launch
	}
	at, err := e.opts.where()
	cfg.Identity = roles.Identity{
		Launcher: roles.Local, Size: 1, Host: at.Host, Hosts: []string{at.Host}, LocalSize: 1,
		GPUs: at.Granted, GPUsFrom: at.GrantedBy, CPUs: e.opts.cpus,
		Job: "alone-" + time.Now().Format("20060102-150405-") + rand.Text()[:4],
	}
	return err
}

// show writes the report as JSON or as text.
func (e examination) show(report doctor.Report) error {
	return e.tell(report, report.Text(check.Style{Verbose: e.verbose, Colour: showsColour(e.files.Out)}))
}
