package simulate

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"
)

// Series is a series of simulations, one after the other, in a common room.
type Series struct {
	Config
	Sizes []int  // number of nodes of each simulation
	Dir   string // directory in which the room is created, an absolute path
	Keep  bool   // do not remove the room
	Logf  func(format string, args ...any)
}

// Run runs the simulations until one fails, because larger ones would fail, too. The failed one is
// the last in the report. If Run returns an error, which is of the kinds that MakeScratchDir
// returns, the report has the simulations before it.
func (s Series) Run(ctx context.Context) (report Report, err error) {
	host, err := os.Hostname()
	if err != nil {
		return report, err
	}
	room, err := MakeScratchDir(ctx, s.Dir, host)
	if err != nil {
		return report, err
	}
	s.Logf("simulating in %s%s", room.Path(), map[bool]string{true: " (kept)"}[s.Keep])
	report = Report{
		Version: ReportVersion, Program: s.Program, Host: host, Cores: runtime.GOMAXPROCS(0), Dir: s.Dir,
		Latency: s.Latency, Jitter: s.Jitter, Rate: s.Rate, Skew: s.Skew, Peer: s.Peer,
		Dies: s.Death, Ranks: s.Ranks, RoleFile: s.Path,
	}
	err = s.runAll(ctx, room, &report)
	if !s.Keep {
		removing, cancel := context.WithTimeoutCause(context.Background(), removeTimeout, errTimeOver)
		defer cancel()
		err = errors.Join(err, room.Remove(removing))
	}
	return report, err
}

// runAll runs the simulations and adds their results to the report.
func (s Series) runAll(ctx context.Context, room *ScratchDir, report *Report) error {
	for _, nodes := range s.Sizes {
		cfg := s.Config
		cfg.Nodes = nodes
		cfg.Progress = func(what string) { s.Logf("%d nodes: %s", nodes, what) }
		run, share, err := SimulateJob(ctx, room, cfg)
		if err != nil {
			return err
		}
		report.Share = share
		if report.Runs = append(report.Runs, run); run.Failure != nil {
			return nil
		}
	}
	return nil
}

// removeTimeout is longer than it takes to remove the names of the largest run.
const removeTimeout = 5 * time.Minute
