package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/simulate"
)

// simulateCmd is one execution of bringupd simulate.
type simulateCmd struct {
	*invocation
	allSettings setting.List
	simConfig   simulate.Config // without Nodes
	nodeCounts  []int           // of each run, in order
	shareDir    string
	asTable     bool
	jsonPath    string // output file; "-": standard output; empty: none
	keepDirs    bool
}

func (inv *invocation) simulateCommand() *cli.Command {
	times := config.DefaultTimeouts()
	s := &simulateCmd{invocation: inv, simConfig: simulate.Config{Fences: 4, LinkMode: config.LinkAuto, JoinTimeout: times.Join, Peer: times.Peer}}
	s.allSettings = s.newSettings()
	return inv.completeCommand(cli.Command{
		Name: "simulate", Usage: "bring up N nodes in one process, and tell what it costs",
		UsageText: "bringupd simulate --nodes=1024 --dir=DIR [flags]\n" +
			"bringupd simulate --nodes=64,256,1024 --dir=DIR [flags]   (a table)",
	}, s.allSettings, func([]string) error {
		if err := s.validateSettings(); err != nil {
			return err
		}
		_, err := s.runAbandonable(errSecondSignal, s.runSeries)
		return err
	})
}

func (s *simulateCmd) newSettings() setting.List {
	return slices.Concat(
		setting.AssignCategory("What is simulated",
			s.nodesSetting(),
			setting.NewNumber("ranks", &s.simConfig.Ranks, 0, 1024, "how many ranks each node has, which put values and meet in fences after the gate; 0: none"),
			setting.NewNumber("fences", &s.simConfig.Fences, 1, 10_000, "how often they meet"),
			setting.NewNumber("fence-bytes", &s.simConfig.Bytes, 0, 1<<20, "how many bytes each rank brings to each fence, as MPI's do; 0: it puts a value before"),
			setting.NewDuration("start-skew", &s.simConfig.Skew, "the daemons start at random within this time; a launcher takes 10ms and more"),
			setting.NewDuration("steady", &s.simConfig.Steady, fmt.Sprintf("how long the job stays up after the gate; the second half of that is measured, which needs at least 56s with 70 nodes or more, and 4s with few; with --death the default is %s", defaultDeathDelay)),
			setting.NewChoice("death", []string{simulate.WorkerDies, simulate.HeadDies}, &s.simConfig.Death,
				"whose daemon then dies, as by kill -9; and how long the others take to end is printed"),
			setting.NewChoice("lifeline", []string{string(config.LinkAuto), string(config.LinkOff)}, (*string)(&s.simConfig.LinkMode),
				"whether workers hold a connection to the head: auto or off; in memory where this shell allows too few files"),
			setting.NewDuration("join-timeout", &s.simConfig.JoinTimeout, "until all nodes have met"),
			setting.NewDuration("peer-timeout", &s.simConfig.Peer, "the longest time from a peer's death to the end of the job; how often nodes beat and look follows from it"),
		),
		setting.AssignCategory("The share",
			setting.NewText("dir", "DIR", &s.shareDir, "directory on the share that the job is to use; everything happens in a new directory in it, which is removed at the end"),
			setting.NewDuration("op-latency", &s.simConfig.Latency, "added to every call into the share: how much farther away it is from the nodes than from here"),
			setting.NewDuration("latency-jitter", &s.simConfig.Jitter, "added at random: this much on average, seldom five times as much"),
			setting.NewNumber("server-rate", &s.simConfig.Rate, 0, 10_000_000, "calls per second that the server answers, for all nodes together; 0: as many as it can"),
		),
		setting.AssignCategory(resultHeading,
			setting.NewSwitch("table", &s.asTable, "one row for each number of nodes, even if there is only one"),
			setting.NewText("json", "FILE", &s.jsonPath, "also write all figures as JSON; - is standard output, which then has nothing else"),
			setting.NewSwitch("keep", &s.keepDirs, "leave the run directories to be looked at"),
		),
	)
}

// defaultDeathDelay is the default time for which a job runs before one of its daemons is killed.
// All peer links are connected by then.
const defaultDeathDelay = 2 * time.Second

// nodesSetting returns a setting that accepts numbers of nodes, separated by commas.
func (s *simulateCmd) nodesSetting() *setting.Setting {
	return setting.NewValue("nodes", "N,…", &s.nodeCounts, func(value string) (nodes []int, err error) {
		for field := range strings.SplitSeq(value, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(field))
			if err != nil || n < 1 || n > simulate.MaxNodes {
				return nil, fmt.Errorf("give whole numbers of 1 to %d, with commas between", simulate.MaxNodes)
			}
			nodes = append(nodes, n)
		}
		return nodes, nil
	}, func([]int) any { return nil }, fmt.Sprintf("number of nodes, or several: of 1 to %d each", simulate.MaxNodes))
}

// validateSettings returns an error for settings that cannot work.
func (s *simulateCmd) validateSettings() error {
	if s.simConfig.Death != "" && !s.allSettings.FindSetting("steady").IsSet() {
		s.simConfig.Steady = defaultDeathDelay
	}
	switch {
	case len(s.nodeCounts) == 0:
		return usageErrorf("cannot simulate: give the number of nodes, as in --nodes=1024")
	case s.shareDir == "":
		return usageErrorf("cannot simulate: give a directory on the share that the job is to use, as in --dir=/scratch/me")
	}
	s.simConfig.Program = programVersion()
	for _, n := range s.nodeCounts {
		cfg := s.simConfig
		cfg.Nodes = n
		if err := cmp.Or(cfg.Validate(), simulate.CheckFileLimit(n)); err != nil {
			return usageErrorf("%v", err)
		}
	}
	if info, err := os.Stat(filepath.Dir(s.jsonPath)); err != nil || !info.IsDir() {
		return usageErrorf("cannot write --json=%s: give a file in a directory that is there", s.jsonPath)
	}
	var err error
	s.shareDir, err = filepath.Abs(s.shareDir)
	return err
}

// runSeries runs all simulations, and shows the results.
func (s *simulateCmd) runSeries(ctx context.Context) error {
	series := simulate.Series{Config: s.simConfig, Sizes: s.nodeCounts, Dir: s.shareDir, Keep: s.keepDirs, Logf: s.printMessage}
	report, err := series.Run(ctx)
	if errors.Is(err, simulate.ErrNotDirectory) {
		return usageErrorf("%v", err)
	}
	if ctx.Err() != nil || len(report.Runs) == 0 {
		return err
	}
	if failure := report.Runs[len(report.Runs)-1].Failure; failure != nil {
		s.exitCode = max(failure.Code, 1)
	}
	return errors.Join(s.showReport(report), err)
}

// showReport writes the report.
func (s *simulateCmd) showReport(report simulate.Report) error {
	if s.jsonPath == "-" {
		return writeJSON(s.streams.Out, report)
	}
	text := report.Text()
	if s.asTable || len(s.nodeCounts) > 1 {
		text = report.Table()
	}
	if _, err := io.WriteString(s.streams.Out, text); err != nil || s.jsonPath == "" {
		return err
	}
	var figures bytes.Buffer
	err := writeJSON(&figures, report)
	if err == nil {
		err = files.ReplaceFile(s.jsonPath, figures.Bytes(), 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot write the figures: %v", err)
	}
	return nil
}

var errSecondSignal = errors.New("cannot wait for the daemons' end: a second signal came; the directory is left to you")
