package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/internal/version"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/preflight"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

type checkCmd struct {
	*nodeCheckCmd
	recordPath string // output file; empty: none
}

func (inv *invocation) checkCommand() *cli.Command {
	c := &checkCmd{nodeCheckCmd: inv.newNodeCheckCmd()}
	own := config.List{
		config.NewSwitch("json", &c.asJSON, "print the report as JSON"),
		config.NewSwitch("verbose", &c.isVerbose, "also print passed and skipped checks"),
		config.NewText("record", "FILE", &c.recordPath,
			"also write the data that the checks have read to a new file, for a bug report"),
	}
	listed := []string{checkHeading, "gpus-per-node", "log-dir", "temp-dir", "config", startTimeoutFlag}
	command := c.completeCheckCommand(cli.Command{
		Name: "check", Usage: "check this node as a job would",
		UsageText: "bringupd check [flags]\nbringupd check --json > node.json\n" +
			"bringupd check --record=node-record.json",
		Description: "Exits with 0 if the node is usable, 1 if there are warnings, 2 if a job would not start on it, " +
			"3 if that is unknown, and 64 if the command line is wrong. The report is printed to standard " +
			"output; its first line is a summary.",
	}, own, listed, c.runChecks)
	c.allSettings.FindSetting("log-dir").Usage = "also check this directory, on a file system that all " +
		"nodes share (default: none)"
	c.allSettings.FindSetting("log-dir").OfferValues(config.SourceSite, "") // that of a site is for jobs
	return command
}

// runChecks checks the node. Its exit code is that of a monitoring plugin.
func (c *checkCmd) runChecks() error {
	if err := c.checkRecordPath(); err != nil {
		return err
	}
	if err := validateChecks(c.opts.checks, c.opts.gpus); err != nil {
		return c.allSettings.NameSources(err)
	}
	cfg := c.opts.checkConfig()
	at, err := c.opts.readinessConfig()
	if err != nil {
		return err
	}
	at.Config, at.Environ, at.Program = cfg, os.Environ(), version.Program()
	checks, err := preflight.NewNodeChecks(at)
	if err != nil {
		return usageErrorf("%v", err)
	}
	if len(cfg.ActiveCommands) > 0 {
		c.printMessage(
			"checking the node; if it passes, active checks (%d) follow, for up to %s each",
			len(cfg.ActiveCommands), textutil.FlagDuration(cfg.ActiveTimeout))
	}
	var report check.Report
	signalled, err := c.runAbandonable(func(ctx context.Context) error {
		report = checks.AwaitReady(ctx, c.waitReporter(cfg.Timeout))
		return nil
	})
	if signalled || err != nil {
		return err
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
	case c.recordPath == "-":
		return usageErrorf("cannot write the recording to standard output, which has the report: give a file")
	case err == nil:
		return usageErrorf("cannot write %s: it exists already; give a new file", c.recordPath)
	}
	return nil
}

// writeRecording writes the recording to a new file that no other user can read, because only known
// secrets are removed from it.
func (c *checkCmd) writeRecording(recording preflight.Recording) error {
	// O_EXCL does not follow a link
	file, err := os.OpenFile(c.recordPath, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usageErrorf("cannot write the recording: %v; give another file by --record", err)
	}
	if err := errors.Join(writeJSON(file, recording), file.Close()); err != nil {
		return fmt.Errorf("cannot write the recording: %w", err)
	}
	c.printMessage("the recording of the checks is in %s: read it before you send it", c.recordPath)
	return nil
}

// waitReporter returns a function that reports what the checks wait for, each time that it changes.
func (c *checkCmd) waitReporter(within time.Duration) func(check.Report) {
	var last string
	return func(report check.Report) {
		var waits []string
		for _, f := range check.FilterByVerdict(report.Findings, check.Wait) {
			waits = append(waits, f.OneLine())
		}
		if text := textutil.JoinLimited(waits, 3, "; "); text != last {
			last = text
			c.printMessage("waiting for up to %s: %s", textutil.FlagDuration(within), text)
		}
	}
}

func (c *checkCmd) showReport(report check.Report) error {
	if report.Findings == nil {
		report.Findings = []check.Finding{} // an empty list instead of null
	}
	text := report.FormatText(c.isVerbose)
	hints := launcher.SurroundingLauncher(os.LookupEnv).CommandHints("")
	if drain := check.DrainCommand(report, hints.DrainNode); drain != "" {
		text += "To take the node out of service:\n  " + drain + "\n"
	}
	return c.writeReport(report, text)
}
