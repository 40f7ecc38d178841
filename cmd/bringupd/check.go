package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/pkg/readiness"
	"github.com/bringupd/bringupd/pkg/roles"
)

// checking is one call of bringupd check.
type checking struct {
	*invocation
	all     settings
	opts    *options
	json    bool
	verbose bool
}

// byHandTimeout is for how long somebody in front of a terminal, or a prolog,
// waits for what is not ready yet.
const byHandTimeout = 10 * time.Second

// checkFlagNames are the flags that the subcommand shares with a daemon. What
// else a file for jobs says is read, and means nothing to it.
var checkFlagNames = []string{"gpus-per-node", "log-dir", "temp-dir", "config"}

func (inv *invocation) checkCommand() *cli.Command {
	c := &checking{invocation: inv, opts: newOptions()}
	c.opts.checks.Timeout = byHandTimeout
	c.all = c.settings()
	return &cli.Command{
		Name: "check", Usage: "look at this node as a job would, and tell what is wrong with it",
		UsageText: "bringupd check [flags]\nbringupd check --json > node.json",
		Description: "Ends with 0 where the node is well, 1 where there is something to be told of, 2 where no driver would be started on it, " +
			"3 where that can't be known, and 64 where the command line is wrong. The report is on standard output, its first line is the summary.",
		Flags: c.all.flags(c.isFlag),
		Action: func(ctx *cli.Context) error {
			if err := inv.noArguments(ctx); err != nil {
				return err
			}
			return c.run()
		},
	}
}

// settings are all of a daemon's, as a file for jobs may be given, and two of
// its own.
func (c *checking) settings() settings {
	var all settings
	for _, s := range c.opts.settings() {
		switch s.name {
		case "verbose":
			// What a job is to say is no affair of this one.
		case "log-dir":
			s.usage = "directory that all nodes share, to be looked at, too (default: none)"
			all = append(all, s)
		default:
			all = append(all, s)
		}
	}
	own := settings{
		yes("json", &c.json, "print the report as JSON, for programs"),
		yes("verbose", &c.verbose, "show also what passed and what was skipped"),
	}
	for _, s := range under(resultFlags, own) {
		all = append(all, notByVariable(s))
	}
	return all
}

func (c *checking) isFlag(s *setting) bool {
	return s.category == checkFlags || s.category == resultFlags || slices.Contains(checkFlagNames, s.name)
}

// run looks at the node, and ends as monitoring wants it.
func (c *checking) run() error {
	if _, err := c.all.gather(os.LookupEnv); err != nil {
		return err
	}
	if err := judgeChecks(c.all, c.opts.checks, c.opts.gpus); err != nil {
		return err
	}
	cfg, err := c.opts.checkConfig()
	if err != nil {
		return usage("%v", err)
	}
	checks, err := c.checks(cfg)
	if err != nil {
		return err
	}
	ctx, again, stop := c.heed()
	defer stop()
	if len(cfg.Active) > 0 {
		c.say("looking at the node; where it is well, the active checks (%d) follow, for up to %s each", len(cfg.Active), daemon.ShortTime(cfg.ActiveTimeout))
	}
	done := make(chan check.Report, 1)
	go func() { done <- checks.Await(ctx, c.progress(cfg.Timeout)) }()
	var report check.Report
	select {
	case report = <-done:
	case <-again:
	}
	if by, told := errors.AsType[*stopped](context.Cause(ctx)); told {
		c.say("%v", by)
		c.code = by.code()
		return nil
	}
	c.code = check.Nagios(report.Verdict)
	return c.show(report)
}

// checks are all checks of the node.
func (c *checking) checks(cfg check.Config) (*readiness.Checks, error) {
	at, err := c.place()
	if err != nil {
		return nil, err
	}
	at.Config, at.Environ, at.Program = cfg, os.Environ(), version()
	checks, err := readiness.New(at)
	if err != nil {
		return nil, usage("%v", err)
	}
	return checks, nil
}

// progress says what is waited for, each time that it is something else.
func (c *checking) progress(within time.Duration) func(check.Report) {
	var told string
	return func(report check.Report) {
		var waits []string
		for _, f := range report.Findings {
			if f.Verdict == check.Wait {
				waits = append(waits, f.Line())
			}
		}
		const most = 3
		if more := len(waits) - most; more > 0 {
			waits = append(waits[:most], fmt.Sprintf("and %d more", more))
		}
		if what := strings.Join(waits, "; "); what != told {
			told = what
			c.say("waiting, for up to %s (--check-timeout), for %s", daemon.ShortTime(within), what)
		}
	}
}

// place finds out where we are: by hand, in a prolog, or in a step of a job.
func (c *checking) place() (at readiness.Config, err error) {
	at = readiness.Config{Rank: -1, Granted: c.opts.gpus, GrantedBy: "--gpus-per-node", TempDir: c.opts.tempDir}
	if at.TempDir == "" {
		at.TempDir = os.TempDir()
	}
	if c.opts.logDir != "" {
		if at.LogDir, err = filepath.Abs(c.opts.logDir); err != nil {
			return at, err
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return at, err
	}
	// A launcher knows a node by its name in its own configuration, which is the
	// short one where nobody says otherwise.
	if at.Host = roles.NodeName(os.LookupEnv); at.Host == "" {
		at.Host, _, _ = strings.Cut(host, ".")
	}
	id, launch := roles.Identify(os.LookupEnv, host, roles.Want{})
	if launch == nil {
		at.Host, at.Rank = id.Host, id.Rank
	}
	switch {
	case at.Granted >= 0:
	case launch == nil:
		at.Granted, at.GrantedBy = id.GPUs, id.GPUsFrom
	default:
		at.Granted, at.GrantedBy = roles.BatchGPUs(os.LookupEnv)
	}
	return at, nil
}

// show writes the report for programs or for people.
func (c *checking) show(report check.Report) error {
	if c.json {
		if report.Findings == nil {
			report.Findings = []check.Finding{} // an empty list, which is no null
		}
		data, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return fmt.Errorf("cannot write the report as JSON: %v", err)
		}
		_, err = c.files.Out.Write(append(data, '\n'))
		return err
	}
	text := report.Text(check.Style{Verbose: c.verbose, Colour: showsColour(c.files.Out)})
	if drain := check.DrainLine(report, roles.Slurm.Words("").Drain); drain != "" {
		text += "To take the node out of service (nobody has):\n  " + drain + "\n"
	}
	_, err := io.WriteString(c.files.Out, text)
	return err
}
