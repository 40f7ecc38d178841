package main

import (
	"errors"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/preflight"
)

// checkSettings returns the settings of a node's checks, for a daemon and for "bringupd check".
func checkSettings(to *check.Config) config.List {
	return config.List{
		config.NewChoice("gpu-check", check.ModeNames, (*string)(&to.Policy.Mode),
			"GPU checks: off, auto (if the node has or should have GPUs), require (GPUs are required, and "+
				"all must be healthy), "+
				"or strict (some warnings are failures; for acceptance tests)"),
		config.NewList("check", "ID=WORD", &to.Policy.Rules, check.ParseRule,
			"severity of the check ID: fail, warn, or off; "+
				"ID may be a pattern, for example net.*=off; the last match has precedence (repeatable)"),
		config.NewList("active-check", "COMMAND", &to.ActiveCommands, checkShellCommand,
			"your own shell command that checks the node after all other checks have passed; exit code "+
				"0 means passed, 1 warning, 3 unknown, any other failed (repeatable)"),
	}
}

func checkShellCommand(command string) (string, error) {
	if strings.TrimSpace(command) == "" {
		return "", errors.New("give a shell command")
	}
	return command, nil
}

// validateChecks returns an error for contradictory settings of the checks. gpus is -1 if the
// expected number of GPUs is not known; more are further checks that a rule can name.
func validateChecks(cfg check.Config, gpus int, more ...string) error {
	ids := append(preflight.ListNodeCheckIDs(cfg.ActiveCommands), more...)
	for _, rule := range cfg.Policy.Rules {
		if rule.Matches(ids...) {
			continue
		}
		for _, removed := range removedFrom(removedCheck) {
			if rule.Matches(strings.Fields(removed.name)...) {
				return usageErrorf("cannot use --check=%s: this check was removed: %s", rule, removed.instead)
			}
		}
		return usageErrorf("cannot use --check=%s: no check has this id; the ids are %s", rule, strings.Join(ids, ", "))
	}
	if mode := cfg.Policy.Mode; gpus == 0 && (mode == check.ModeRequire || mode == check.ModeStrict) {
		return usageErrorf("cannot use --gpu-check=%s with --gpus-per-node=0: it requires GPUs", mode)
	}
	return nil
}

// checkConfig returns the configuration of the checks, within the timeout of the start.
func (o *options) checkConfig() check.Config {
	cfg := o.checks
	cfg.ActiveTimeout, cfg.Timeout = o.cfg.Times.Start, min(cfg.Timeout, o.cfg.Times.Start)
	return cfg
}
