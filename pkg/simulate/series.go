package simulate

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"
)

// Series is several simulations, one after the other, in a room of their own.
type Series struct {
	Config
	Sizes []int  // the Nodes of each
	Dir   string // in which the room is made, an absolute path
	Keep  bool   // the room is left to be looked at
	Say   func(format string, args ...any)
}

// Run runs them until one fails, which larger ones would, too: it is the last of the
// report. With an error, which is as OpenRoom's, the report has those that were run.
func (s Series) Run(ctx context.Context) (report Report, err error) {
	host, err := os.Hostname()
	if err != nil {
		return report, err
	}
	room, err := OpenRoom(ctx, s.Dir, host)
	if err != nil {
		return report, err
	}
	s.Say("simulating in %s%s", room.Path(), map[bool]string{true: ", which is kept"}[s.Keep])
	report = Report{
		Version: ReportVersion, Program: s.Program, Host: host, Cores: runtime.GOMAXPROCS(0), Dir: s.Dir,
		Latency: s.Latency, Jitter: s.Jitter, Rate: s.Rate, Skew: s.Skew, Peer: s.Peer,
		Dies: s.Death, Ranks: s.Ranks,
	}
	err = s.runAll(ctx, room, &report)
	if !s.Keep {
		removing, cancel := context.WithTimeoutCause(context.Background(), removeTimeout, errRoom)
		defer cancel()
		err = errors.Join(err, room.Remove(removing))
	}
	return report, err
}

func (s Series) runAll(ctx context.Context, room *Room, report *Report) error {
	for _, nodes := range s.Sizes {
		cfg := s.Config
		cfg.Nodes = nodes
		cfg.Told = func(what string) { s.Say("%d nodes: %s", nodes, what) }
		run, share, err := Simulate(ctx, room, cfg)
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

// removeTimeout is more than a share takes for the names of the largest run.
const removeTimeout = 5 * time.Minute
