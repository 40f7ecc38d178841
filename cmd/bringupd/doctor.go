package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/pkg/doctor"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
)

// examination is one call of bringupd doctor.
type examination struct {
	*invocation
	all     settings
	opts    *options
	json    bool
	verbose bool
}

// doctorFlagNames are the flags that the subcommand shares with a daemon, but
// for those of checks and frameworks. What else a file for jobs says is read,
// and means nothing to it.
var doctorFlagNames = []string{
	"rank", "nnodes", "job-id", "interface", "log-dir", "temp-dir", "config", "gpus-per-node", "cpus-per-node", "join-timeout",
	"launched-locally", "launched-of",
}

func (inv *invocation) doctorCommand() *cli.Command {
	e := &examination{invocation: inv, opts: newOptions()}
	e.opts.checks.Timeout, e.opts.times.Join = byHandTimeout, doctorJoin
	e.all = e.settings()
	return &cli.Command{
		Name: "doctor", Usage: "tell before a big job whether its launch, its nodes and their share would do",
		UsageText: "srun --ntasks-per-node=1 bringupd doctor [flags]\nbringupd doctor [flags]   (this node alone)",
		Description: "Give it the flags of the job. Rank 0 prints one table for all nodes on standard output, the worst first, its first line is the summary. " +
			"Ends with 0 where all is well, 1 where there is something to be told of, 2 where the job would fail, 3 where that can't be known, " +
			"and with 64, 65 or 66 where the table of exit codes has a word for it. Nothing is left behind, and what earlier runs have left is named, not removed.",
		Flags: e.all.flags(e.isFlag),
		Action: func(ctx *cli.Context) error {
			if err := inv.noArguments(ctx); err != nil {
				return err
			}
			return e.run()
		},
	}
}

// doctorJoin is for how long somebody who waits for a report waits for all
// nodes. The report then tells who has not come.
const doctorJoin = time.Minute

// settings are all of a daemon's, and two of its own.
func (e *examination) settings() settings {
	var all settings
	for _, s := range e.opts.settings() {
		if s.name != "verbose" { // what a job is to say is no affair of this one
			all = append(all, s)
		}
	}
	own := settings{
		yes("json", &e.json, "print the report as JSON, for programs, with all facts of all nodes"),
		yes("verbose", &e.verbose, "show also what was skipped"),
	}
	for _, s := range under(resultFlags, own) {
		all = append(all, notByVariable(s))
	}
	return all
}

func (e *examination) isFlag(s *setting) bool {
	switch s.category {
	case checkFlags, resultFlags, frameworkFlags, noneFlags, rayFlags:
		return true
	default:
		return slices.Contains(doctorFlagNames, s.name)
	}
}

// run examines the launch, and ends as monitoring wants it.
func (e *examination) run() error {
	if _, err := e.all.gather(os.LookupEnv); err != nil {
		return err
	}
	cfg, err := e.configure()
	if err != nil || e.code != 0 {
		return err
	}
	ctx, again, stop := e.heed()
	defer stop()
	type outcome struct {
		code int
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		code, err := doctor.Run(ctx, cfg, e.show)
		done <- outcome{code, err}
	}()
	var ended outcome
	select {
	case ended = <-done:
	case <-again:
	}
	if by, told := errors.AsType[*stopped](context.Cause(ctx)); told {
		e.say("%v", by)
		e.code = by.code()
		return nil
	}
	e.code = ended.code
	return ended.err
}

// configure makes the doctor's configuration of the settings and what the
// launcher tells. A rank that has nothing to do has its code set.
func (e *examination) configure() (doctor.Config, error) {
	o := e.opts
	daemonCfg := o.build(e.invocation)
	cfg := doctor.Config{
		TempDir: daemonCfg.TempDir, Framework: daemonCfg.Framework, Policy: o.checks.Policy, Environ: daemonCfg.Environ,
		Program: version(), Join: o.times.Join,
	}
	if err := e.check(); err != nil {
		return cfg, err
	}
	if cfg.Join < time.Second || cfg.Join > mostCheck {
		return cfg, usage("cannot use --join-timeout=%v: give 1s to %v", cfg.Join, daemon.ShortTime(mostCheck))
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

// check refuses what makes no sense, as a daemon would. A rule may be for a line
// of the doctor's own.
func (e *examination) check() error {
	policy := &e.opts.checks.Policy
	all := policy.Rules
	defer func() { policy.Rules = all }()
	policy.Rules = slices.DeleteFunc(slices.Clone(all), doctor.Means)
	return e.opts.check(e.all)
}

// place finds out who we are. Alone, as in a shell, we are a launch of one; and
// so is the first task of a launch that is wrong, which tells of it for all.
func (e *examination) place(cfg *doctor.Config) error {
	id, err := roles.Identify(os.LookupEnv, cfg.Hostname, e.opts.want())
	launch, isLaunch := errors.AsType[*roles.LaunchError](err)
	switch {
	case err == nil:
	case !isLaunch:
		return err
	case launch.Alone:
		cfg.Alone = launch
	case !roles.IsFirst(os.LookupEnv):
		e.code = health.OutcomeOf(health.Launch).Code
		return nil
	default:
		cfg.Mistake = launch
	}
	if isLaunch {
		at, err := (&checking{opts: e.opts}).place()
		if err != nil {
			return err
		}
		id = roles.Identity{
			Launcher: roles.Local, Size: 1, Host: at.Host, Hosts: []string{at.Host}, LocalSize: 1, GPUs: at.Granted, GPUsFrom: at.GrantedBy,
			Job: "alone-" + time.Now().Format("20060102-150405-") + rand.Text()[:4],
		}
	}
	if e.opts.gpus >= 0 {
		id.GPUs, id.GPUsFrom = e.opts.gpus, "--gpus-per-node"
	}
	if e.opts.cpus > 0 {
		id.CPUs = e.opts.cpus
	}
	cfg.Identity = id
	return nil
}

// show writes the report for programs or for people.
func (e *examination) show(report doctor.Report) error {
	if e.json {
		data, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return fmt.Errorf("cannot write the report as JSON: %v", err)
		}
		_, err = e.files.Out.Write(append(data, '\n'))
		return err
	}
	_, err := io.WriteString(e.files.Out, report.Text(check.Style{Verbose: e.verbose, Colour: showsColour(e.files.Out)}))
	return err
}
