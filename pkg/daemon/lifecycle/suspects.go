package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// LastRank is the only rank of a world that still runs.
type LastRank struct {
	record.WorldRank
	Host       string
	Generation int
	Log        string    // its name in LogsDir
	Since      time.Time // when the one before it has ended, as far as the head knows
}

// String describes the rank.
func (l LastRank) String() string {
	return fmt.Sprintf("%s (%s) still runs, %s after the end of all other ranks of its world",
		l.WorldRank, l.Host, formatSilence(time.Since(l.Since)))
}

// Suspects finds what is the likely reason if a timeout ends the run.
type Suspects struct {
	Events    *NodeEvents // the head's
	Log       *NodeEventLog
	LastRanks func() []LastRank
	IsLost    func(node int) bool // the run goes on without the node
}

const (
	// outliveTimeout is how long a rank may run after all others of its world have ended before that
	// is reported.
	outliveTimeout  = time.Minute
	outliveInterval = 5 * time.Second // the interval between two looks
)

// Watch reports the ranks that outlive all others of their worlds, once each, and logs the silences of
// processes, until ctx ends.
func (s Suspects) Watch(ctx context.Context) {
	defer s.Log.LogSilences(0)
	told := make(outlivingRanks)
	for ctxutil.SleepContext(ctx, outliveInterval) && s.Events.RunCtx.Err() == nil {
		s.Log.LogSilences(outliveInterval)
		for _, last := range told.due(s.LastRanks(), time.Now()) {
			s.Events.Warn(last.String())
		}
	}
}

// outlivingRanks are the ranks that were reported, with their generations.
type outlivingRanks map[string]bool

// due returns those of the last ranks of worlds that must be reported now.
func (o outlivingRanks) due(last []LastRank, now time.Time) (due []LastRank) {
	for _, one := range last {
		key := fmt.Sprint(one.WorldRank, one.Generation)
		if now.Sub(one.Since) >= outliveTimeout && !o[key] {
			o[key] = true
			due = append(due, one)
		}
	}
	return due
}

// Suspect is the likely reason why a timeout has expired. It is empty if there is none.
type Suspect struct {
	Clause    string // follows why the timeout has expired
	ErrorLine string // the error of the process, if it has printed one
	Log       string // the name of its log in LogsDir
}

// Describe returns the likely reason why a timeout has expired: a process that has printed an error
// and nothing since, or else a rank that has outlived all others of its world.
func (s Suspects) Describe() Suspect {
	if suspect := s.Log.describeSilences(s.IsLost); suspect.Clause != "" {
		return suspect
	}
	last := slices.DeleteFunc(s.LastRanks(), func(one LastRank) bool {
		return time.Since(one.Since) < outliveTimeout
	})
	if len(last) == 0 {
		return Suspect{}
	}
	first := slices.MinFunc(last, func(a, b LastRank) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.World, b.World))
	})
	return Suspect{Clause: ": " + first.String(), Log: first.Log}
}

// Explain returns the reason for the end of the run, with the likely reason for that if it is the
// deadline of the job.
func (s Suspects) Explain(end error) error {
	failed, is := errors.AsType[*health.Failure](end)
	if !is || failed.Kind != health.JobDeadlinePassed {
		return end
	}
	explained := *failed // others may be reading it
	suspect := s.Describe()
	explained.Message += suspect.Clause
	explained.ErrorLine, explained.Log = suspect.ErrorLine, suspect.Log
	return &explained
}

func formatSilence(silent time.Duration) string {
	return textutil.FlagDuration(silent.Round(time.Second))
}
