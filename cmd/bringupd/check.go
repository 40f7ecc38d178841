package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/preflight/bundle"
	"github.com/bringupd/bringupd/pkg/preflight/nodecheck"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
)

// checkCmd is one execution of bringupd check.
type checkCmd struct {
	*nodeCheckCmd
	bindingOnly bool
	recordPath  string // output file; empty: none
}

func (inv *invocation) checkCommand() *cli.Command {
	c := &checkCmd{nodeCheckCmd: inv.newNodeCheckCmd("print the report as JSON, for programs", "show also what passed and what was skipped")}
	// This setting overrides a job's setting of that name, which may be in a configuration file for
	// jobs.
	c.allSettings = append(c.allSettings, setting.AssignCategory(resultHeading, setting.NewText("record", "FILE", &c.recordPath, "also write what the checks have seen, for a bug report, to a file "+
		"that is not there yet").ExcludeSources(setting.SourceVariable, setting.SourceFile))...)
	c.allSettings = append(c.allSettings, setting.AssignCategory(resultHeading, setting.NewSwitch("bind", &c.bindingOnly, "tell instead whether this process, which a rank has started, "+
		"is bound to the CPUs, the memory and the GPUs of that rank").ExcludeSources(setting.SourceVariable, setting.SourceFile))...)
	c.allSettings.FindSetting("log-dir").Usage = "directory that all nodes share, to be looked at, too (default: none)"
	return c.completeCheckCommand(cli.Command{
		Name: "check", Usage: "check this node as a job would, and tell what is wrong with it",
		UsageText: "bringupd check [flags]\nbringupd check --json > node.json\nbringupd check --record=node-record.json\nsrun bringupd --ranks-per-node=gpu -- bringupd check --bind",
		Description: "Exits with 0 if the node is well, 1 if there are warnings, 2 if no driver would be started on it, " +
			"3 if that can't be known, and 64 if the command line is wrong. The report is on standard output; its first line is the summary.",
	}, []string{checkHeading, resultHeading}, []string{"gpus-per-node", "log-dir", "temp-dir", "config"}, c.runChecks)
}

// runChecks checks the node. Its exit code is that of a monitoring plugin.
func (c *checkCmd) runChecks() error {
	if err := c.checkRecordPath(); err != nil {
		return err
	}
	if c.bindingOnly {
		return c.checkBinding()
	}
	if err := validateChecks(c.allSettings, c.opts.checks, c.opts.gpus); err != nil {
		return err
	}
	cfg, err := c.opts.checkConfig()
	if err != nil {
		return usageErrorf("%v", err)
	}
	at, err := c.opts.readinessConfig()
	if err != nil {
		return err
	}
	at.Config, at.Environ, at.Program = cfg, os.Environ(), programVersion()
	checks, err := nodecheck.New(at)
	if err != nil {
		return usageErrorf("%v", err)
	}
	if len(cfg.ActiveCommands) > 0 {
		c.printMessage("looking at the node; where it is well, the active checks (%d) follow, for up to %s each", len(cfg.ActiveCommands), textutil.FlagDuration(cfg.ActiveTimeout))
	}
	var report check.Report
	if !c.runUntilSignal(func(ctx context.Context) { report = checks.AwaitReady(ctx, c.waitReporter(cfg.Timeout)) }) {
		return nil
	}
	c.exitCode = check.NagiosExitCode(report.Verdict)
	if err := c.showReport(report); err != nil || c.recordPath == "" {
		return err
	}
	return c.writeRecording(checks.NewRecording(report))
}

// checkRecordPath returns an error if the recording could not be written, before any check has run.
func (c *checkCmd) checkRecordPath() error {
	switch _, err := os.Lstat(c.recordPath); {
	case c.recordPath != "" && c.bindingOnly:
		return usageErrorf("cannot use --record with --bind: no check is made")
	case c.recordPath == "-":
		return usageErrorf("cannot write a recording to standard output, which is the report's: give a file")
	case err == nil:
		return usageErrorf("cannot write %s: it is there; give a file that is not", c.recordPath)
	}
	return nil
}

// writeRecording writes the recording to a new file that no other user can read, because only known
// secrets are removed from it.
func (c *checkCmd) writeRecording(what bundle.Bundle) error {
	// O_EXCL follows no link
	file, err := os.OpenFile(c.recordPath, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usageErrorf("cannot write the recording: %v; give another file by --record", err)
	}
	if err := errors.Join(writeJSON(file, what), file.Close()); err != nil {
		return fmt.Errorf("cannot write the recording: %w", err)
	}
	c.printMessage("what the checks have seen is in %s: read it before you send it", c.recordPath)
	return nil
}

// waitReporter returns a function that reports what the checks wait for, each time that it changes.
func (c *checkCmd) waitReporter(within time.Duration) func(check.Report) {
	var told string
	return func(report check.Report) {
		var waits []string
		for _, f := range check.FilterByVerdict(report.Findings, check.Wait) {
			waits = append(waits, f.OneLine())
		}
		if what := textutil.JoinLimited(waits, 3, "; "); what != told {
			told = what
			c.printMessage("waiting, for up to %s (--check-timeout), for %s", textutil.FlagDuration(within), what)
		}
	}
}

// showReport writes the report as JSON or as text.
func (c *checkCmd) showReport(report check.Report) error {
	if report.Findings == nil {
		report.Findings = []check.Finding{} // an empty list instead of null
	}
	text := report.FormatText(check.TextStyle{Verbose: c.isVerbose, Colour: showsColour(c.streams.Out)})
	if drain := check.DrainCommand(report, roles.SurroundingLauncher(os.LookupEnv).CommandHints("").DrainNode); drain != "" {
		text += "To take the node out of service (nobody has):\n  " + drain + "\n"
	}
	return c.writeReport(report, text)
}

// checkBinding verifies the affinity of this process, which was started by its rank.
func (c *checkCmd) checkBinding() error {
	b, err := ranks.ReadActualBinding(os.Getpid(), os.LookupEnv)
	if err != nil {
		return usageErrorf("%v", err)
	}
	if b.Host, err = hostName(); err != nil {
		return err
	}
	switch {
	case len(b.Differences) > 0:
		c.exitCode = health.OutcomeOfKind(health.CheckFailed).Code
	case b.IsUnknown:
		c.exitCode = check.NagiosExitCode(check.Unknown)
	}
	return c.writeReport(b, b.FormatText())
}

// hostName returns the launcher's name of this node or, without a launcher, its own host name.
func hostName() (string, error) {
	if name := roles.NodeName(os.LookupEnv); name != "" {
		return name, nil
	}
	return os.Hostname()
}
