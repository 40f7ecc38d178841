package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/readiness"
	"github.com/bringupd/bringupd/pkg/recording"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/setting"
)

// checking is one execution of bringupd check.
type checking struct {
	*looking
	bind   bool
	record string // output file; empty: none
}

func (inv *invocation) checkCommand() *cli.Command {
	c := &checking{looking: inv.look("print the report as JSON, for programs", "show also what passed and what was skipped")}
	// This setting overrides a job's setting of that name, which may be in a configuration file for
	// jobs.
	c.all = append(c.all, setting.Under(resultFlags, setting.Text("record", "FILE", &c.record, "also write what the checks have seen, for a bug report, to a file "+
		"that is not there yet").Not(setting.ByVariable, setting.ByFile))...)
	c.all = append(c.all, setting.Under(resultFlags, setting.Yes("bind", &c.bind, "tell instead whether this process, which a rank has started, "+
		"is bound to the CPUs, the memory and the GPUs of that rank").Not(setting.ByVariable, setting.ByFile))...)
	c.all.Find("log-dir").Usage = "directory that all nodes share, to be looked at, too (default: none)"
	return c.command(cli.Command{
		Name: "check", Usage: "check this node as a job would, and tell what is wrong with it",
		UsageText: "bringupd check [flags]\nbringupd check --json > node.json\nbringupd check --record=node-record.json\nsrun bringupd --ranks-per-node=gpu -- bringupd check --bind",
		Description: "Exits with 0 if the node is well, 1 if there are warnings, 2 if no driver would be started on it, " +
			"3 if that can't be known, and 64 if the command line is wrong. The report is on standard output; its first line is the summary.",
	}, []string{checkFlags, resultFlags}, []string{"gpus-per-node", "log-dir", "temp-dir", "config"}, c.run)
}

// run checks the node. Its exit code is that of a monitoring plugin.
func (c *checking) run() error {
	if err := c.judgeRecord(); err != nil {
		return err
	}
	if c.bind {
		return c.checkBinding()
	}
	if err := judgeChecks(c.all, c.opts.checks, c.opts.gpus); err != nil {
		return err
	}
	cfg, err := c.opts.checkConfig()
	if err != nil {
		return usage("%v", err)
	}
	at, err := c.opts.where()
	if err != nil {
		return err
	}
	at.Config, at.Environ, at.Program = cfg, os.Environ(), version()
	checks, err := readiness.New(at)
	if err != nil {
		return usage("%v", err)
	}
	if len(cfg.Active) > 0 {
		c.say("looking at the node; where it is well, the active checks (%d) follow, for up to %s each", len(cfg.Active), prose.FlagTime(cfg.ActiveTimeout))
	}
	var report check.Report
	if !c.heeded(func(ctx context.Context) { report = checks.Await(ctx, c.progress(cfg.Timeout)) }) {
		return nil
	}
	c.code = check.Nagios(report.Verdict)
	if err := c.show(report); err != nil || c.record == "" {
		return err
	}
	return c.write(checks.Record(report))
}

// judgeRecord returns an error if the recording could not be written, before any check has run.
func (c *checking) judgeRecord() error {
	switch _, err := os.Lstat(c.record); {
	case c.record != "" && c.bind:
		return usage("cannot use --record with --bind: no check is made")
	case c.record == "-":
		return usage("cannot write a recording to standard output, which is the report's: give a file")
	case err == nil:
		return usage("cannot write %s: it is there; give a file that is not", c.record)
	}
	return nil
}

// write writes the recording to a new file that no other user can read, because only known secrets
// are removed from it.
func (c *checking) write(what recording.Recording) error {
	file, err := os.OpenFile(c.record, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // O_EXCL follows no link
	if err != nil {
		return usage("cannot write the recording: %v; give another file by --record", err)
	}
	if err := errors.Join(writeJSON(file, what), file.Close()); err != nil {
		return fmt.Errorf("cannot write the recording: %w", err)
	}
	c.say("what the checks have seen is in %s: read it before you send it", c.record)
	return nil
}

// progress returns a function that reports what the checks wait for, each time that it changes.
func (c *checking) progress(within time.Duration) func(check.Report) {
	var told string
	return func(report check.Report) {
		var waits []string
		for _, f := range check.Of(report.Findings, check.Wait) {
			waits = append(waits, f.Line())
		}
		if what := prose.List(waits, 3, "; "); what != told {
			told = what
			c.say("waiting, for up to %s (--check-timeout), for %s", prose.FlagTime(within), what)
		}
	}
}

// show writes the report as JSON or as text.
func (c *checking) show(report check.Report) error {
	if report.Findings == nil {
		report.Findings = []check.Finding{} // an empty list instead of null
	}
	text := report.Text(check.Style{Verbose: c.verbose, Colour: showsColour(c.files.Out)})
	if drain := check.DrainLine(report, roles.Around(os.LookupEnv).Words("").Drain); drain != "" {
		text += "To take the node out of service (nobody has):\n  " + drain + "\n"
	}
	return c.tell(report, text)
}

// checkBinding verifies the affinity of this process, which was started by its rank.
func (c *checking) checkBinding() error {
	b, err := ranks.ReadBack(os.Getpid(), os.LookupEnv)
	if err != nil {
		return usage("%v", err)
	}
	if b.Host, err = hostName(); err != nil {
		return err
	}
	switch {
	case len(b.Differences) > 0:
		c.code = health.OutcomeOf(health.Check).Code
	case b.Unknown:
		c.code = check.Nagios(check.Unknown)
	}
	return c.tell(b, b.Text())
}

// hostName returns the launcher's name of this node or, without a launcher, its own host name.
func hostName() (string, error) {
	if name := roles.NodeName(os.LookupEnv); name != "" {
		return name, nil
	}
	return os.Hostname()
}
