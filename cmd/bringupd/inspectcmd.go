package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/preflight"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// nodeCheckCmd is one execution of a subcommand that checks nodes before a job, with the exit code
// of a monitoring plugin: check or doctor.
type nodeCheckCmd struct {
	*invocation
	allSettings config.List
	opts        *options
	asJSON      bool
	isVerbose   bool
}

// manualCheckTimeout is how long checks wait for a node that is not ready yet, on a terminal or in
// a prolog.
const manualCheckTimeout = 10 * time.Second

func (inv *invocation) newNodeCheckCmd() *nodeCheckCmd {
	l := &nodeCheckCmd{invocation: inv, opts: newOptions()}
	l.opts.checks.Timeout = manualCheckTimeout
	return l
}

// completeCheckCommand completes such a subcommand. It accepts all flags of a job, and its help
// lists its own and those of the given headings and names.
func (l *nodeCheckCmd) completeCheckCommand(
	command cli.Command, own config.List, listed []string, run func() error,
) *cli.Command {
	own = append(own, removedSettings(command.Name)...)
	for _, s := range l.opts.daemonSettings() {
		if own.FindSetting(s.Name) == nil {
			s.IsUnlisted = !slices.Contains(listed, s.Category) && !slices.Contains(listed, s.Name)
			l.allSettings = append(l.allSettings, s)
		}
	}
	own = config.FlagsOnly(config.AssignCategory(outputHeading, own...)...)
	l.allSettings = append(l.allSettings, own...)
	command.Description += " All flags of bringupd run are accepted; those that are not listed here have no effect."
	return l.completeCommand(command, l.allSettings, func([]string) error { return run() })
}

func writeJSON(to io.Writer, value any) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// writeReport writes the report as JSON or as text.
func (l *nodeCheckCmd) writeReport(report any, text string) error {
	if !l.asJSON {
		_, err := io.WriteString(l.streams.Out, text)
		return err
	}
	return writeJSON(l.streams.Out, report)
}

// readinessConfig determines the context: on a terminal, in a prolog, or in a step of a job.
func (o *options) readinessConfig() (at preflight.NodeConfig, err error) {
	at = preflight.NodeConfig{NodeIndex: -1, TempDir: o.localTempDir()}
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
	if at.Host = launcher.NodeName(os.LookupEnv); at.Host == "" {
		at.Host, _, _ = strings.Cut(host, ".")
	}
	at.GrantedGPUs, at.GrantedBy = launcher.BatchGPUs(os.LookupEnv)
	given := launcher.Overrides{ReadFile: readLaunchFile, Ancestors: processAncestors()}
	if id, err := launcher.IdentifyDaemon(os.LookupEnv, host, given); err == nil {
		at.Host, at.NodeIndex, at.GrantedGPUs, at.GrantedBy = id.Host, id.NodeIndex, id.GPUs, id.GPUsSource
	}
	if o.gpus >= 0 {
		at.GrantedGPUs, at.GrantedBy = o.gpus, o.gpusSetting.GivenName()
	}
	return at, nil
}
