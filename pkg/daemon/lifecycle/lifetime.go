// Package lifecycle has the parts of a daemon's life that do not depend on what the run runs: the
// contexts of its tasks ([Lifetime]), the checks of its node ([Checker]), the monitors of its mount
// and network ([Monitor]) and of its GPUs ([GPUMonitor]), what it publishes in the run directory
// ([Publisher]) and outside of it ([Telemetry]), and how the run ends for it: by signals, by the
// head or by its loss ([NextHeadAction]), and with the user's command ([RunEndCommand]).
package lifecycle

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// Lifetime has the contexts of a daemon's tasks. Each ends with the one above it, and has a cause.
//
//	WorkCtx                everything until the very end: records, teardown
//	├── RunCtx             this daemon's part in the run; its cause is an *Outcome or a failure here
//	├── EndKnownCtx        done when the end of the run is known; its cause is that *Outcome
//	└── GraceCtx           the grace periods: done when signals leave no more time
//	    ├── DriverGraceCtx the driver's grace period, which may have to end before the others
//	    └── HeadWaitCtx    the wait for the head: done if it is lost after this node begins to end
//
// At an orderly end, or an abort, EndKnownCtx and RunCtx end together. After a failure of this
// node, RunCtx ends first (CancelRun), and EndKnownCtx follows when the head has published the end.
type Lifetime struct {
	WorkCtx      context.Context
	cancelWork   context.CancelFunc // ends WorkCtx
	EndRequested atomic.Bool        // this daemon was asked to end
	// the driver's grace period as cut by signals, in nanoseconds; 0: not cut
	cutDriverGrace atomic.Int64

	RunCtx         context.Context
	CancelRun      context.CancelCauseFunc
	EndKnownCtx    context.Context
	CancelEndKnown context.CancelCauseFunc

	GraceCtx          context.Context
	CancelGrace       context.CancelCauseFunc
	DriverGraceCtx    context.Context
	CancelDriverGrace context.CancelCauseFunc
	HeadWaitCtx       context.Context
	CancelHeadWait    context.CancelCauseFunc

	tasks sync.WaitGroup // all background tasks, which use WorkCtx
}

// ErrGraceEnded is the cause of the grace periods' contexts when signals have ended them.
var ErrGraceEnded = errors.New("signals have ended the grace periods")

// NewLifetime returns a lifetime that does not end with ctx.
func NewLifetime(ctx context.Context) *Lifetime {
	l := new(Lifetime)
	l.WorkCtx, l.cancelWork = context.WithCancel(context.WithoutCancel(ctx))
	l.RunCtx, l.CancelRun = context.WithCancelCause(l.WorkCtx)
	l.EndKnownCtx, l.CancelEndKnown = context.WithCancelCause(l.WorkCtx)
	l.GraceCtx, l.CancelGrace = context.WithCancelCause(l.WorkCtx)
	l.DriverGraceCtx, l.CancelDriverGrace = context.WithCancelCause(l.GraceCtx)
	l.HeadWaitCtx, l.CancelHeadWait = context.WithCancelCause(l.GraceCtx)
	return l
}

// CutGrace returns the driver's grace period, which signals may have cut.
func (l *Lifetime) CutGrace(grace time.Duration) time.Duration {
	if cut := time.Duration(l.cutDriverGrace.Load()); cut > 0 {
		return min(grace, cut)
	}
	return grace
}

// Background runs a task until WorkCtx ends; Close waits for it.
func (l *Lifetime) Background(task func(ctx context.Context)) {
	l.tasks.Go(func() { task(l.WorkCtx) })
}

// Close ends all remaining contexts and waits for the tasks.
func (l *Lifetime) Close() {
	l.cancelWork()
	l.tasks.Wait()
}

// ExtendForStart returns a context for starting a process, which ends StartExtension later than
// ctx, and a function that the caller must call when the start is over. If ctx has already ended,
// it returns ctx itself.
func (l *Lifetime) ExtendForStart(ctx context.Context) (context.Context, func()) {
	select {
	case <-ctx.Done():
		return ctx, func() {}
	default:
	}
	late, end := context.WithCancelCause(context.WithoutCancel(ctx))
	l.Background(func(context.Context) {
		select {
		case <-ctx.Done():
			ctxutil.SleepContext(late, StartExtension)
			end(context.Cause(ctx))
		case <-late.Done():
		}
	})
	return late, func() { end(nil) }
}

// StartExtension is how long the start of a driver, or of a command, may continue after the run's
// context has ended. Abandoning a start kills the process at once, although it may already run and
// must have its grace period.
const StartExtension = time.Second

// RecentExits has the exits of services that may be failures, but have not been explained yet: the
// reason may be a signal that this daemon is about to receive, too. It is safe for concurrent use.
type RecentExits struct {
	tell atomic.Pointer[func()] // also called for each exit; nil: none

	mu      sync.Mutex
	next    int
	pending map[int]time.Time // when an exit was seen, by its number; guarded by mu
}

// exitReportTimeout is how long an exit may take to be explained and reported: a service that TERM
// has ended is explained after a second.
const exitReportTimeout = 2 * time.Second

// ForwardTo makes each exit from now on also known to another daemon.
func (r *RecentExits) ForwardTo(tell func()) { r.tell.Store(&tell) }

// Add adds an exit. The returned function removes it, if it is no failure.
func (r *RecentExits) Add() (remove func()) {
	if tell := r.tell.Load(); tell != nil {
		(*tell)()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == nil {
		r.pending = make(map[int]time.Time)
	}
	for number, seen := range r.pending {
		if time.Since(seen) > exitReportTimeout {
			delete(r.pending, number)
		}
	}
	number := r.next
	r.next++
	r.pending[number] = time.Now()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.pending, number)
	}
}

// Await waits until ctx ends, which an exit causes that is a failure of the run, or none of the
// exits that were added by a time may still be one. It reports whether there was one of these.
func (r *RecentExits) Await(ctx context.Context, by time.Time) (found bool) {
	for r.hasPending(by) {
		found = true
		if !ctxutil.SleepContext(ctx, exitPollInterval) {
			break
		}
	}
	return found
}

// exitPollInterval is the interval of Await. It does not involve the file system.
const exitPollInterval = 5 * time.Millisecond

// hasPending reports whether an exit that was added by a time may still be reported as a failure.
func (r *RecentExits) hasPending(by time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, seen := range r.pending {
		if !seen.After(by) && time.Since(seen) <= exitReportTimeout {
			return true
		}
	}
	return false
}
