package service

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
)

// SilenceWatch finds programs that have printed an error, and have neither printed anything nor used
// the processor since. It reads their last lines once for each pause of their output.
type SilenceWatch struct {
	After    time.Duration // how long a program must be silent
	Programs []process.Handle
	// CPUTimes returns the processor times of process trees; nil: as [stackdump.SumCPUTimes].
	CPUTimes func(children []int) (map[int]time.Duration, error)
	// OnChange is called with the error of a program that is silent since then, and without one when
	// that program has gone on, has ended, or is watched no more.
	OnChange func(program process.Handle, errorLine string)
}

const (
	// The interval between samples is a tenth of After, within these limits.
	minSilenceInterval = time.Second
	maxSilenceInterval = 5 * time.Second
	// leadSamples is how many samples of its processor time a program has before it counts as silent.
	leadSamples = 2
	// maxSilentShare is the part of a core that a silent program may use between two samples.
	maxSilentShare = 0.03
)

// Run watches the programs until ctx ends.
func (w SilenceWatch) Run(ctx context.Context) {
	if w.CPUTimes == nil {
		scanner := process.NewFamilyScanner()
		w.CPUTimes = func(children []int) (map[int]time.Duration, error) {
			return stackdump.SumCPUTimes(scanner, children)
		}
	}
	silences := make([]silence, len(w.Programs))
	change := func(i int, errorLine string) {
		if silences[i].reported != errorLine {
			silences[i].reported = errorLine
			w.OnChange(w.Programs[i], errorLine)
		}
	}
	interval := min(max(w.After/10, minSilenceInterval), maxSilenceInterval)
	for ctxutil.SleepContext(ctx, interval) {
		var suspects []int // their PIDs
		for i, program := range w.Programs {
			if silences[i].inspect(program, w.After-leadSamples*interval) {
				suspects = append(suspects, program.PID())
			}
		}
		var used map[int]time.Duration
		if len(suspects) > 0 {
			used, _ = w.CPUTimes(suspects) // a tree that cannot be read shows nothing
		}
		now := time.Now()
		for i, program := range w.Programs {
			s := &silences[i]
			s.addUsage(now, used[program.PID()])
			_, ago := program.OutputStats()
			switch {
			case s.errorLine == "":
				change(i, "")
			case ago >= w.After && now.Sub(s.activeAt) >= w.After:
				change(i, s.errorLine)
			case s.activeAt.Equal(now):
				change(i, "")
			}
		}
	}
	for i := range silences {
		change(i, "")
	}
}

// silence is what is known about the silence of a program.
type silence struct {
	inspected int64  // its output in bytes when its lines were read last
	errorLine string // with which its output ends; empty: none, or it goes on
	reported  string // the error of which the caller knows
	// The processor time at the last sample, and when it has grown by more than that of a silent one.
	used     time.Duration
	usedAt   time.Time
	activeAt time.Time
}

// inspect reads the last lines of the program after a pause of its output, and reports whether it
// runs and its output ends with an error.
func (s *silence) inspect(program process.Handle, pause time.Duration) bool {
	printed, ago := program.OutputStats()
	switch {
	case HasEnded(program) || printed != s.inspected && ago < pause || printed == 0:
		*s = silence{reported: s.reported}
	case printed != s.inspected:
		*s = silence{inspected: printed, errorLine: lastError(program), reported: s.reported}
	}
	return s.errorLine != ""
}

// addUsage adds a sample of the processor time; 0 if it is unknown. A decrease means that a process
// of the program has ended.
func (s *silence) addUsage(now time.Time, used time.Duration) {
	if used == 0 {
		return
	}
	limit := time.Duration(maxSilentShare * float64(now.Sub(s.usedAt)))
	if grown := used - s.used; !s.usedAt.IsZero() && (grown < 0 || grown > limit) {
		s.activeAt = now
	}
	s.used, s.usedAt = used, now
}

// lastError returns the error with which the output of a program ends that still runs, or that has
// ended with 0, or an empty string.
func lastError(program process.Handle) string {
	out, err := program.RecentLines()
	return health.FindLastError(program.LastLines(), err, out)
}
