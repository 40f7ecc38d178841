package service

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
)

// SilenceWatch finds programs that have printed an error and nothing since. It reads their last
// lines once for each silence.
type SilenceWatch struct {
	After    time.Duration // how long a program must be silent
	Programs []process.Handle
	// OnChange is called with the error of a program that is silent since then, and without one when
	// that program has printed something again, has ended, or is watched no more.
	OnChange func(program process.Handle, errorLine string)
}

// The interval between samples is a tenth of After, within these limits.
const (
	minSilenceInterval = time.Second
	maxSilenceInterval = 5 * time.Second
)

// Run watches the programs until ctx ends.
func (w SilenceWatch) Run(ctx context.Context) {
	silences := make([]silence, len(w.Programs))
	change := func(i int, errorLine string) {
		if silences[i].errorLine != errorLine {
			silences[i].errorLine = errorLine
			w.OnChange(w.Programs[i], errorLine)
		}
	}
	for ctxutil.SleepContext(ctx, min(max(w.After/10, minSilenceInterval), maxSilenceInterval)) {
		for i, program := range w.Programs {
			printed, ago := program.OutputStats()
			switch silences[i].next(HasEnded(program), printed, ago >= w.After) {
			case silenceBegins:
				change(i, lastError(program))
			case silenceEnds:
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
	errorLine string // with which it has fallen silent; empty: none
}

// silenceChange is what a sample of a program means.
type silenceChange int

const (
	silenceGoesOn silenceChange = iota
	silenceBegins               // its last lines must be read
	silenceEnds
)

// next returns what a sample of the program means: whether it has ended, its output so far in
// bytes, and whether it has been silent for long enough.
func (s *silence) next(hasEnded bool, printed int64, isSilent bool) silenceChange {
	switch {
	case hasEnded:
		return silenceEnds
	case printed == s.inspected:
		return silenceGoesOn // or it has printed nothing at all
	case !isSilent:
		return silenceEnds
	}
	s.inspected = printed
	return silenceBegins
}

// lastError returns the error with which the output of a program ends that still runs, or that has
// ended with 0, or an empty string.
func lastError(program process.Handle) string {
	out, err := program.RecentLines()
	return health.FindLastError(program.LastLines(), err, out)
}
