package run

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Lifetime is how long the parts of a daemon go on: contexts, each over with the
// one that it hangs from, and each with a cause.
//
//	Work               what must be done to the very end: records, teardown
//	├── Life           the run, as far as this daemon takes part in it; its cause is an *Ending or what failed here
//	├── Ended          over when the end of the run is known; its cause is that *Ending
//	└── Hurry          the graces: over when signals leave no more time
//	    ├── Parting    the driver's grace, which may have to end before the others
//	    └── Led        the wait for the head's word: over when the head is lost after this node has begun to end
//
// At an orderly end, or an abort, Ended and Life are over together.
// Where something fails here, Life is over first (End), and Ended follows when the
// head has made an end of it.
type Lifetime struct {
	Work context.Context
	rest context.CancelFunc // ends Work
	Left func() bool        // stops heeding the caller's context
	Told atomic.Bool        // somebody has told this daemon to end
	cut  atomic.Int64       // how long the driver's grace lasts by signals, in nanoseconds; 0: they leave it as it is

	// The contexts, each with what ends it by a cause.
	Life  context.Context
	End   context.CancelCauseFunc
	Ended context.Context
	Over  context.CancelCauseFunc

	Hurry   context.Context
	Hasten  context.CancelCauseFunc
	Parting context.Context
	Insist  context.CancelCauseFunc
	Led     context.Context
	Orphan  context.CancelCauseFunc

	tasks sync.WaitGroup // everything that runs in the background under Work
}

// ErrHurry is the cause of the contexts that graces hang from, when signals have
// ended them.
var ErrHurry = errors.New("signals have ended the graces")

// NewLifetime returns a lifetime that doesn't end with ctx.
func NewLifetime(ctx context.Context) *Lifetime {
	l := new(Lifetime)
	l.Work, l.rest = context.WithCancel(context.WithoutCancel(ctx))
	l.Life, l.End = context.WithCancelCause(l.Work)
	l.Ended, l.Over = context.WithCancelCause(l.Work)
	l.Hurry, l.Hasten = context.WithCancelCause(l.Work)
	l.Parting, l.Insist = context.WithCancelCause(l.Hurry)
	l.Led, l.Orphan = context.WithCancelCause(l.Hurry)
	return l
}

// CutGrace returns how long a grace of the driver lasts, which signals may have cut.
func (l *Lifetime) CutGrace(grace time.Duration) time.Duration {
	if cut := time.Duration(l.cut.Load()); cut > 0 {
		return min(grace, cut)
	}
	return grace
}

// Background runs a task until Work is over; Close waits for it.
func (l *Lifetime) Background(task func(ctx context.Context)) {
	l.tasks.Go(func() { task(l.Work) })
}

// Close ends what is left and waits for it.
func (l *Lifetime) Close() {
	l.rest()
	l.tasks.Wait()
}
