package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// rankSettings returns the settings of a driver that runs as ranks on all nodes.
func (o *options) rankSettings() config.List {
	w := &o.cfg.World
	return config.AssignCategory("Ranks",
		config.NewList("env", "NAME=VALUE", &w.Env, checkVariable,
			"environment variable of the ranks; overrides all others except BRINGUPD_… "+
				"(repeatable)").WithoutVariable(),
		config.NewChoice("output", console.Modes, (*string)(&w.Output),
			"whose output to print: all (line by line), rank0 (unbuffered), or none; the logs have everything"),
		config.NewSwitch("tag", &w.Tag, "prefix each line with rank and node: [12 n3]"),
		config.NewDuration("hang-timeout", &w.Hang,
			"end the job with 124 if no rank makes a step (see --progress) for this time, or before the "+
				"first step uses CPU time or prints (default: never)"),
		eitherSetting("on-rank-failure", "end", "continue", &w.GoOn, "if a rank fails: end (the job), or continue"),
		bindSetting(&w.Bind, "what each rank is bound to"),
		config.NewSwitch("oversubscribe", &w.Oversubscribe,
			"allow more ranks than GPUs or cores, and spawns beyond the slots"),
		config.NewNumber("slots-per-node", &w.MaxPerNode, 1, math.MaxInt32,
			"maximum number of ranks per node, including those that MPI programs spawn or the driver's "+
				"mpirun starts (default: one per GPU, or one per core without GPUs)"),
		config.NewText("pmix", "FILE", &w.PMIx,
			"PMIx server for ranks, which Open MPI needs: auto (if the program may use it and a libpmix is "+
				"found), on, off, or the path of a libpmix").WithCheck(checkPMIx).WithWords(pmixModes...),
	)
}

// replaceUsageError returns the message for an error of the flag parser, with a hint for a flag of
// another launcher.
func (inv *invocation) replaceUsageError(c *cli.Context, err error, _ bool) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	name = strings.TrimLeft(name, "-")
	isJob := slices.ContainsFunc(c.Command.Flags, func(flag cli.Flag) bool { return flag.Names()[0] == "ranks" })
	if hint := config.ForeignFlagHint(name); unknown && isJob && hint != "" {
		typed := config.TypedFlag(inv.ownArgs, name)
		return usageErrorf("cannot use %s: this flag is %s", typed, hint)
	}
	return config.ReplaceUsageError(c.Command, err, inv.ownArgs)
}

// eitherSetting accepts one of two words, the second of which means true.
func eitherSetting(name, no, yes string, to *bool, usage string) *config.Setting {
	return config.NewValue(name, "WORD", to, func(value string) (bool, error) {
		if value != no && value != yes {
			return false, fmt.Errorf("give %s or %s", no, yes)
		}
		return value == yes, nil
	}, func(on bool) any { return map[bool]string{false: no, true: yes}[on] }, usage).WithWords(no, yes)
}

var pmixModes = []string{pmix.Auto, pmix.On, pmix.Off}

// checkPMIx accepts the mode of the PMIx server, or the path of its library.
func checkPMIx(value string) error {
	if !slices.Contains(pmixModes, value) && !filepath.IsAbs(value) {
		return errors.New("give auto, on, off, or the absolute path of a libpmix.so.2")
	}
	return nil
}

func checkVariable(value string) (string, error) {
	switch variable, text, given := strings.Cut(value, "="); {
	case variable == "" || !given:
		return "", errors.New("give NAME=VALUE")
	case strings.HasPrefix(variable, "BRINGUPD_"):
		return "", errors.New("variables that begin with BRINGUPD_ are reserved")
	default:
		return value, launcher.CheckRankVariable(variable, text)
	}
}

func ranksPerNodeSetting(to *string, usage string) *config.Setting {
	return config.NewValue("ranks-per-node", "N", to, ranks.ValidatePerNode, config.ShowGiven,
		usage).WithWords(ranks.Units...)
}

func bindSetting(to *affinity.ResourceKinds, usage string) *config.Setting {
	return config.NewValue("bind", "KINDS", to, affinity.ParseKinds, config.ShowText,
		usage+": auto (all that apply), none, or a list of cpu,memory,network,gpu, without which a rank "+
			"fails (75)").WithWords("auto", "none", "cpu", "memory", "network", "gpu")
}
