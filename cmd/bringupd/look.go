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

// looking is one execution of a subcommand that checks nodes before a job, with the exit code of a
// monitoring plugin: check or doctor.
type looking struct {
	*invocation
	all     setting.List
	opts    *options
	json    bool
	verbose bool
}

// byHandTimeout is how long checks wait for a node that is not ready yet, on a terminal or in a
// prolog.
const byHandTimeout = 10 * time.Second

// look returns a command with all settings of a daemon, which a file for jobs may contain, and two
// of its own.
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

// command completes such a subcommand, with the flags of the given categories and names.
func (l *looking) command(command cli.Command, categories, names []string, run func() error) *cli.Command {
	completed := l.invocation.command(command, l.all, func([]string) error { return run() })
	completed.Flags = l.all.Only(func(s *setting.Setting) bool {
		return slices.Contains(categories, s.Category) || slices.Contains(names, s.Name)
	}).Flags()
	return completed
}

// heeded calls do until it returns or a signal ends it, and reports whether it has returned by
// itself. Otherwise the exit code is the signal's. A second signal abandons it.
func (l *looking) heeded(do func(ctx context.Context)) bool {
	signalled, _ := l.leaving(nil, func(ctx context.Context) error {
		do(ctx)
		return nil
	})
	return !signalled
}

// writeJSON writes a value as indented JSON.
func writeJSON(to io.Writer, what any) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(what)
}

// tell writes the report as JSON or as text.
func (l *looking) tell(report any, text string) error {
	if !l.json {
		_, err := io.WriteString(l.files.Out, text)
		return err
	}
	return writeJSON(l.files.Out, report)
}

// where determines the context: by hand, in a prolog, or in a step of a job.
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
	// A launcher uses the name in its own configuration, which by default is the short host name.
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
