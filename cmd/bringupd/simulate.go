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

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/files"
	"github.com/bringupd/bringupd/pkg/setting"
	"github.com/bringupd/bringupd/pkg/simulate"
)

// simulation is one execution of bringupd simulate.
type simulation struct {
	*invocation
	all   setting.List
	cfg   simulate.Config // without Nodes
	nodes []int           // of each run, in order
	dir   string
	table bool
	json  string // output file; "-": standard output; empty: none
	keep  bool
}

func (inv *invocation) simulateCommand() *cli.Command {
	times := config.DefaultTimes()
	s := &simulation{invocation: inv, cfg: simulate.Config{Fences: 4, Lifeline: config.LifelineAuto, Join: times.Join, Peer: times.Peer}}
	s.all = s.settings()
	return inv.command(cli.Command{
		Name: "simulate", Usage: "bring up N nodes in one process, and tell what it costs",
		UsageText: "bringupd simulate --nodes=1024 --dir=DIR [flags]\n" +
			"bringupd simulate --nodes=64,256,1024 --dir=DIR [flags]   (a table)",
	}, s.all, func([]string) error {
		if err := s.judge(); err != nil {
			return err
		}
		_, err := s.leaving(errAgain, s.simulate)
		return err
	})
}

func (s *simulation) settings() setting.List {
	return slices.Concat(
		setting.Under("What is simulated",
			s.counts(),
			setting.Number("ranks", &s.cfg.Ranks, 0, 1024, "how many ranks each node has, which put values and meet in fences after the gate; 0: none"),
			setting.Number("fences", &s.cfg.Fences, 1, 10_000, "how often they meet"),
			setting.Number("fence-bytes", &s.cfg.Bytes, 0, 1<<20, "how many bytes each rank brings to each fence, as MPI's do; 0: it puts a value before"),
			setting.Wait("start-skew", &s.cfg.Skew, "the daemons start at random within this time; a launcher takes 10ms and more"),
			setting.Wait("steady", &s.cfg.Steady, fmt.Sprintf("how long the job stays up after the gate; the second half of that is measured, which needs at least 56s with 70 nodes or more, and 4s with few; with --death the default is %s", beforeDeath)),
			setting.Choice("death", []string{simulate.DeathOfWorker, simulate.DeathOfHead}, &s.cfg.Death,
				"whose daemon then dies, as by kill -9; and how long the others take to end is printed"),
			setting.Choice("lifeline", []string{string(config.LifelineAuto), string(config.LifelineOff)}, (*string)(&s.cfg.Lifeline),
				"whether workers hold a connection to the head: auto or off; in memory where this shell allows too few files"),
			setting.Wait("join-timeout", &s.cfg.Join, "until all nodes have met"),
			setting.Wait("peer-timeout", &s.cfg.Peer, "the longest time from a peer's death to the end of the job; how often nodes beat and look follows from it"),
		),
		setting.Under("The share",
			setting.Text("dir", "DIR", &s.dir, "directory on the share that the job is to use; everything happens in a new directory in it, which is removed at the end"),
			setting.Wait("op-latency", &s.cfg.Latency, "added to every call into the share: how much farther away it is from the nodes than from here"),
			setting.Wait("latency-jitter", &s.cfg.Jitter, "added at random: this much on average, seldom five times as much"),
			setting.Number("server-rate", &s.cfg.Rate, 0, 10_000_000, "calls per second that the server answers, for all nodes together; 0: as many as it can"),
		),
		setting.Under(resultFlags,
			setting.Yes("table", &s.table, "one row for each number of nodes, even if there is only one"),
			setting.Text("json", "FILE", &s.json, "also write all figures as JSON; - is standard output, which then has nothing else"),
			setting.Yes("keep", &s.keep, "leave the run directories to be looked at"),
		),
	)
}

// beforeDeath is the default time for which a job runs before one of its daemons is killed. All
// peer links are connected by then.
const beforeDeath = 2 * time.Second

// counts returns a setting that accepts numbers of nodes, separated by commas.
func (s *simulation) counts() *setting.Setting {
	return setting.Valued("nodes", "N,…", &s.nodes, func(value string) (nodes []int, err error) {
		for field := range strings.SplitSeq(value, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(field))
			if err != nil || n < 1 || n > simulate.MostNodes {
				return nil, fmt.Errorf("give whole numbers of 1 to %d, with commas between", simulate.MostNodes)
			}
			nodes = append(nodes, n)
		}
		return nodes, nil
	}, func([]int) any { return nil }, fmt.Sprintf("number of nodes, or several: of 1 to %d each", simulate.MostNodes))
}

// judge returns an error for settings that cannot work.
func (s *simulation) judge() error {
	if s.cfg.Death != "" && !s.all.Find("steady").IsSet() {
		s.cfg.Steady = beforeDeath
	}
	switch {
	case len(s.nodes) == 0:
		return usage("cannot simulate: give the number of nodes, as in --nodes=1024")
	case s.dir == "":
		return usage("cannot simulate: give a directory on the share that the job is to use, as in --dir=/scratch/me")
	}
	s.cfg.Program = version()
	for _, n := range s.nodes {
		cfg := s.cfg
		cfg.Nodes = n
		if err := cmp.Or(cfg.Validate(), simulate.Fits(n)); err != nil {
			return usage("%v", err)
		}
	}
	if info, err := os.Stat(filepath.Dir(s.json)); err != nil || !info.IsDir() {
		return usage("cannot write --json=%s: give a file in a directory that is there", s.json)
	}
	var err error
	s.dir, err = filepath.Abs(s.dir)
	return err
}

// simulate runs all simulations, and shows the results.
func (s *simulation) simulate(ctx context.Context) error {
	series := simulate.Series{Config: s.cfg, Sizes: s.nodes, Dir: s.dir, Keep: s.keep, Say: s.say}
	report, err := series.Run(ctx)
	if errors.Is(err, simulate.ErrNoDir) {
		return usage("%v", err)
	}
	if ctx.Err() != nil || len(report.Runs) == 0 {
		return err
	}
	if failure := report.Runs[len(report.Runs)-1].Failure; failure != nil {
		s.code = max(failure.Code, 1)
	}
	return errors.Join(s.show(report), err)
}

// show writes the report.
func (s *simulation) show(report simulate.Report) error {
	if s.json == "-" {
		return writeJSON(s.files.Out, report)
	}
	text := report.Text()
	if s.table || len(s.nodes) > 1 {
		text = report.Table()
	}
	if _, err := io.WriteString(s.files.Out, text); err != nil || s.json == "" {
		return err
	}
	var figures bytes.Buffer
	err := writeJSON(&figures, report)
	if err == nil {
		err = files.Replace(s.json, figures.Bytes(), 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot write the figures: %v", err)
	}
	return nil
}

var errAgain = errors.New("cannot wait for the daemons' end: a second signal came; the directory is left to you")
