package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/readiness"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/setting"
)

// looking is one call of a subcommand that looks at nodes for a job to come, and
// ends as monitoring wants it: check or doctor.
type looking struct {
	*invocation
	all     setting.List
	opts    *options
	json    bool
	verbose bool
}

// byHandTimeout is for how long somebody in front of a terminal, or a prolog, waits for what is not ready yet.
const byHandTimeout = 10 * time.Second

// look has all  setting.List of a daemon, as a file for jobs may be given, and two of
// its own: what a job is to say is no affair of this one.
func (inv *invocation) look(jsonUsage, verboseUsage string) *looking {
	l := &looking{invocation: inv, opts: newOptions()}
	l.opts.checks.Timeout = byHandTimeout
	l.all = slices.DeleteFunc(l.opts.settings(), func(s *setting.Setting) bool { return s.Name == "verbose" })
	own := setting.Under(resultFlags, setting.Yes("json", &l.json, jsonUsage).Not(setting.ByVariable), setting.Yes("verbose", &l.verbose, verboseUsage).Not(setting.ByVariable))
	l.all = append(l.all, own...)
	l.all = append(l.all, setting.Under(checkFlags, setting.Removed("active", "WORD", "for the GPUs, "+
		"give --active-check with dcgmi diag, as in docs/checks.md; for the network, run nccl-tests "+
		"or perftest, as in docs/doctor.md").Not(setting.ByVariable, setting.ByFile))...)
	return l
}

// command completes a command that runs so, with flags of these categories and names.
func (l *looking) command(command cli.Command, categories, names []string, run func() error) *cli.Command {
	completed := l.invocation.command(command, l.all, func([]string) error { return run() })
	completed.Flags = l.all.Only(func(s *setting.Setting) bool {
		return slices.Contains(categories, s.Category) || slices.Contains(names, s.Name)
	}).Flags()
	return completed
}

// heeded has something done until it is over or a signal ends it, and tells whether it is over; otherwise the code is
// the signal's. At a second signal it is left behind.
func (l *looking) heeded(do func(ctx context.Context)) bool {
	signalled, _ := l.leaving(nil, func(ctx context.Context) error {
		do(ctx)
		return nil
	})
	return !signalled
}

// writeJSON writes something for programs.
func writeJSON(to io.Writer, what any) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(what)
}

// tell writes the report for programs or for people.
func (l *looking) tell(report any, text string) error {
	if !l.json {
		_, err := io.WriteString(l.files.Out, text)
		return err
	}
	return writeJSON(l.files.Out, report)
}

// where finds out where we are: by hand, in a prolog, or in a step of a job.
func (o *options) where() (at readiness.Config, err error) {
	at = readiness.Config{Rank: -1, TempDir: o.temporary()}
	if o.cfg.LogDir != "" {
		if at.LogDir, err = filepath.Abs(o.cfg.LogDir); err != nil {
			return at, err
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return at, err
	}
	// A launcher knows a node by its name in its own configuration, which is the short one where nobody says otherwise.
	if at.Host = roles.NodeName(os.LookupEnv); at.Host == "" {
		at.Host, _, _ = strings.Cut(host, ".")
	}
	at.Granted, at.GrantedBy = roles.BatchGPUs(os.LookupEnv)
	if id, err := roles.Identify(os.LookupEnv, host, roles.Want{ReadFile: readLaunchFile, Ancestry: ancestry}); err == nil {
		at.Host, at.Rank, at.Granted, at.GrantedBy = id.Host, id.Rank, id.GPUs, id.GPUsFrom
	}
	if o.gpus >= 0 {
		at.Granted, at.GrantedBy = o.gpus, "--gpus-per-node"
	}
	return at, nil
}
