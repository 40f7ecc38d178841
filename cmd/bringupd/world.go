package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/console/outputmux"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
)

const worldHeading = "A world of ranks"

// worldSettings returns the settings of a driver that runs as ranks on all nodes. The numbers of
// ranks have no variables, because the variables of a rank have the same names.
func (o *options) worldSettings() setting.List {
	w := &o.cfg.World
	perNode := setting.List{ranksPerNodeSetting(&w.PerNode, "run the driver on every node, in so many ranks: a number, or one for each gpu, numa or core").ExcludeSources(setting.SourceVariable)}
	stdin := setting.NewValue("stdin", "N", &w.Stdin, parseStdin, func(rank int) any {
		if rank < 0 {
			return noStdinWord
		}
		return rank
	}, "the rank that is given standard input, or none")
	mpirun := eitherSetting("mpirun", "auto", "off", &w.NoMPIRun, "auto: where --framework is none and there are no ranks, an mpirun of the driver's brings up its daemons by bringupd rsh; or off")
	perNode = append(perNode, foreignSettings()...)
	return append(setting.AssignCategory("The driver's own mpirun", mpirun), setting.AssignCategory(worldHeading, append(perNode,
		setting.NewNumber("ranks", &w.Total, 1, math.MaxInt32, "run the driver in so many ranks in all, node by node: one a GPU where there are GPUs, one a core elsewhere").ExcludeSources(setting.SourceVariable),
		setting.NewChoice("rank-order", ranks.Orders, (*string)(&w.Order), "how ranks are numbered: node (all of one node, then the next), or round-robin"),
		setting.NewSwitch("oversubscribe", &w.Oversubscribe, "let a node have more ranks than GPUs or cores, and spawn more than it has slots"),
		setting.NewNumber("slots-per-node", &w.MaxPerNode, 1, math.MaxInt32, "how many ranks a node may have in all, those too that MPI programs spawn or the driver's mpirun starts (default: one a GPU where there are GPUs, one a core elsewhere)"),
		setting.NewSwitch("allow-launcher", &w.AllowLauncher, "let the driver, or what each rank runs, be torchrun or another program that starts processes on its own node alone"),
		bindSetting(&w.Bind, "what each rank is bound to"),
		setting.NewSwitch("bind-strict", &w.BindStrict, "let the job fail, with 75, where a rank is not where it should be"),
		setting.NewChoice("output", outputmux.Modes, (*string)(&w.Output), "whose output is passed on, by whole lines: all, rank0 (its standard output as it comes), or none; the logs have all"),
		setting.NewSwitch("tag", &w.Tag, "begin each line with the rank and the node it is of: [12 n3]"),
		setting.NewSwitch("merge-identical", &w.Merge, "show a line once that ranks of a node print alike within 200ms, which it waits for: [0-7]"),
		stdin,
		variablesSetting("env", &w.Env, "variable of the ranks, which wins over all others but BRINGUPD_…; may be repeated").ExcludeSources(setting.SourceVariable),
		pmixSetting(&w.PMIx),
		eitherSetting("on-rank-failure", "end", "continue", &w.GoOn, "when a rank has failed: end, all others too, or continue"),
		setting.NewDuration("hang-timeout", &w.Hang, "end the job with 124 when no rank has used CPU time or printed anything for as long; 0: never"),
		eitherSetting("hang-signs", "any", "output", &w.HangOutput, "what shows that a rank does not hang: any, or output alone, for ranks that spin while they wait"),
	)...)...)
}

// foreignSettings are the flags of mpirun and torchrun for the number of ranks.
func foreignSettings() (flags setting.List) {
	for name, of := range map[string]string{"np": "mpirun", "nproc-per-node": "torchrun", "nproc_per_node": "torchrun"} {
		instead := "ranks-per-node"
		if name == "np" {
			instead = "ranks"
		}
		flags = append(flags, setting.NewForeign(name, "N", func(value string) string {
			return fmt.Sprintf("this flag is %s's; give --%s=%s, and the program behind -- without %s", of, instead, setting.EscapeLineEnds(value), of)
		}).ExcludeSources(setting.SourceVariable, setting.SourceFile))
	}
	return flags
}

// eitherSetting accepts one of two words, the second of which means true.
func eitherSetting(name, no, yes string, to *bool, usage string) *setting.Setting {
	s := setting.NewValue(name, "WORD", to, func(value string) (bool, error) {
		if value != no && value != yes {
			return false, fmt.Errorf("give %s or %s", no, yes)
		}
		return value == yes, nil
	}, func(on bool) any { return map[bool]string{false: no, true: yes}[on] }, usage)
	s.AcceptedWords = []string{no, yes}
	return s
}

// pmixSetting accepts the mode of the PMIx server, or the path of its library.
func pmixSetting(to *string) *setting.Setting {
	words := []string{pmix.Auto, pmix.On, pmix.Off}
	s := setting.NewValue("pmix", "FILE", to, func(value string) (string, error) {
		if !slices.Contains(words, value) && !filepath.IsAbs(value) {
			return "", errors.New("give auto, on, off, or the whole path of a libpmix.so.2")
		}
		return value, nil
	}, setting.ShowUnchanged, "serve PMIx to ranks, which Open MPI needs: auto (if the program may use it and a libpmix is found), on, off, or the path of the libpmix to serve by")
	s.AcceptedWords = words
	return s
}

const noStdinWord = "none"

func parseStdin(value string) (int, error) {
	if value == noStdinWord {
		return -1, nil
	}
	rank, err := strconv.Atoi(value)
	if err != nil || rank < 0 {
		return 0, fmt.Errorf("give a rank, or %s", noStdinWord)
	}
	return rank, nil
}

// variablesSetting accepts environment variables, as NAME=VALUE.
func variablesSetting(name string, to *[]string, usage string) *setting.Setting {
	s := setting.NewValue(name, "NAME=VALUE", to, func(value string) ([]string, error) {
		switch variable, _, given := strings.Cut(value, "="); {
		case variable == "" || !given:
			return nil, errors.New("give NAME=VALUE")
		case strings.HasPrefix(variable, "BRINGUPD_"):
			return nil, errors.New("the variables that begin with BRINGUPD_ are bringupd's own")
		}
		return append(*to, value), nil
	}, setting.ShowUnchanged, usage)
	s.IsRepeatable = true
	return s
}

// ranksPerNodeSetting accepts the number of ranks of a node.
func ranksPerNodeSetting(to *string, usage string) *setting.Setting {
	s := setting.NewValue("ranks-per-node", "N", to, ranks.ValidatePerNode, func(told string) any {
		if told == "" {
			return nil
		}
		return told
	}, usage)
	s.AcceptedWords = ranks.Units
	return s
}

// bindSetting accepts the resources to which ranks are bound.
func bindSetting(to *affinity.ResourceKinds, usage string) *setting.Setting {
	s := setting.NewValue("bind", "KINDS", to, affinity.ParseKinds, func(k affinity.ResourceKinds) any { return k.String() },
		usage+": auto (all, where it makes sense), none, or some of cpu,memory,network,gpu")
	s.AcceptedWords = []string{"auto", "none", "cpu", "memory", "network", "gpu"}
	return s
}
