package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

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
	output      simulate.Output
	keepDirs    bool
	fault       string // whose consequences are asked for; empty: none
}

func (inv *invocation) simulateCommand() *cli.Command {
	times := config.DefaultTimeouts()
	s := &simulateCmd{invocation: inv, simConfig: simulate.Config{RankLoad: simulate.RankLoad{Fences: 4}, LinkMode: config.LinkAuto, JoinTimeout: times.Join, Peer: times.Peer}}
	s.allSettings = s.newSettings()
	return inv.completeCommand(cli.Command{
		Name: "simulate", Usage: "simulate a job of N nodes in one process, and measure it",
		UsageText: "bringupd simulate --nodes=1024 --dir=DIR [flags]\n" +
			"bringupd simulate --nodes=64,256,1024 --dir=DIR [flags]   (a table)\n" +
			"bringupd simulate --nodes=64 --config=job.yaml --fail=judge.1",
	}, s.allSettings, func([]string) error {
		if err := s.validateSettings(); err != nil {
			return err
		}
		if s.fault != "" {
			text, err := s.simConfig.DescribeFault(s.nodeCounts[0], s.fault)
			if err != nil {
				return usageErrorf("%v", err)
			}
			_, err = io.WriteString(s.streams.Out, text)
			return err
		}
		_, err := s.runAbandonable(errSecondSignal, s.runSeries)
		return err
	}, s.simConfig.Blocks(s.allSettings, newOptions().daemonSettings())...)
}

func (s *simulateCmd) newSettings() setting.List {
	return slices.Concat(
		setting.AssignCategory("Simulated job",
			setting.NewNumberList("nodes", &s.nodeCounts, 1, simulate.MaxNodes, fmt.Sprintf("number of nodes, or several numbers, from 1 to %d each", simulate.MaxNodes)),
			setting.NewText("config", "FILE", &s.simConfig.Path, "file with the roles of the job, whose processes are simulated").ExcludeSources(setting.SourceFile),
			setting.NewNumber("gpus-per-node", &s.simConfig.GPUs, 0, 1024, "GPUs of each node, for the roles"),
			setting.NewText("fail", "WHAT", &s.fault, "do not simulate the job, but print what follows if this fails after the gate has opened: an instance of a role, such as judge.1, or a node, such as node:3"),
			setting.NewNumber("ranks", &s.simConfig.Ranks, 0, 1024, "ranks per node, which put values and call fences; 0: none"),
			setting.NewNumber("fences", &s.simConfig.Fences, 1, 10_000, "number of fences"),
			setting.NewNumber("fence-bytes", &s.simConfig.Bytes, 0, 1<<20, "bytes that each rank contributes to each fence, as in MPI; 0: it puts a value before"),
			setting.NewDuration("start-skew", &s.simConfig.Skew, "daemons start at random times within this interval; a real launcher takes 10ms or more"),
			setting.NewDuration("steady", &s.simConfig.Steady, fmt.Sprintf("how long the job runs once all nodes are ready; its second half is measured, which needs at least 56s with 70 nodes or more, and 4s with few; with --death the default is %s", defaultDeathDelay)),
			setting.NewChoice("death", []string{simulate.WorkerDies, simulate.HeadDies}, &s.simConfig.Death,
				"then kill the daemon of a worker or the head, and print how long the others take to end"),
			setting.NewChoice("lifeline", []string{string(config.LinkAuto), string(config.LinkOff)}, (*string)(&s.simConfig.LinkMode),
				"TCP connections from workers to the head: auto or off; simulated in memory if the limit of open files is too low"),
			setting.NewDuration("join-timeout", &s.simConfig.JoinTimeout, "maximum time until all nodes have joined"),
			setting.NewDuration("peer-timeout", &s.simConfig.Peer, "maximum time from the loss of a node to the end of the job; it determines the interval of heartbeats"),
		),
		setting.AssignCategory("Shared file system",
			setting.NewText("dir", "DIR", &s.shareDir, "directory on the shared file system; the simulation uses a new directory in it, and removes that at the end"),
			setting.NewDuration("op-latency", &s.simConfig.Latency, "latency that is added to each file system call"),
			setting.NewDuration("latency-jitter", &s.simConfig.Jitter, "average random latency that is added to each call, rarely up to five times as much"),
			setting.NewNumber("server-rate", &s.simConfig.Rate, 0, 10_000_000, "maximum calls per second of the file server, for all nodes together; 0: unlimited"),
		),
		setting.AssignCategory(outputHeading,
			setting.NewSwitch("table", &s.output.AsTable, "print a table with one row per number of nodes"),
			setting.NewText("json", "FILE", &s.output.JSONPath, "also write all results as JSON; with - to standard output, instead of the text"),
			setting.NewSwitch("trace", &s.simConfig.Trace, "list the calls that waited for each other; best with 2 nodes and an --op-latency of 10ms or more"),
			setting.NewSwitch("keep", &s.keepDirs, "keep the run directories"),
		),
	)
}

// defaultDeathDelay is the default time for which a job runs before one of its daemons is killed.
// All peer links are connected by then.
const defaultDeathDelay = 2 * time.Second

// validateSettings returns an error for settings that cannot work.
func (s *simulateCmd) validateSettings() error {
	if s.simConfig.Death != "" && !s.allSettings.FindSetting("steady").IsSet() {
		s.simConfig.Steady = defaultDeathDelay
	}
	switch {
	case len(s.nodeCounts) == 0:
		return usageErrorf("cannot simulate without nodes: give their number, for example --nodes=1024")
	case s.fault != "" && (len(s.nodeCounts) > 1 || s.simConfig.Path == ""):
		return usageErrorf("cannot show what follows from a failure: give one number of --nodes and a --config with roles")
	case s.shareDir == "" && s.fault == "":
		return usageErrorf("cannot simulate without a directory: give one on the shared file system, for example --dir=/scratch/me")
	}
	s.simConfig.Program = programVersion()
	s.output.AsTable = s.output.AsTable || len(s.nodeCounts) > 1
	for _, n := range s.nodeCounts {
		cfg := s.simConfig
		cfg.Nodes = n
		if err := cmp.Or(cfg.Validate(), simulate.CheckFileLimit(n)); err != nil {
			return usageErrorf("%v", err)
		}
	}
	if info, err := os.Stat(filepath.Dir(s.output.JSONPath)); err != nil || !info.IsDir() {
		return usageErrorf("cannot write --json=%s: give a file in an existing directory", s.output.JSONPath)
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
	return errors.Join(s.output.Show(report, s.streams.Out), err)
}

var errSecondSignal = errors.New("cannot wait until all daemons have ended: interrupted by a second signal; remove the directory yourself")
