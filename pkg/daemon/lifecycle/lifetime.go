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
