package daemon

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
)

// lifetime is how long the parts of a daemon go on: contexts, each over with the
// one that it hangs from, and each with a cause.
//
//	work               what must be done to the very end: records, teardown
//	├── life           the run, as far as this daemon takes part in it; its cause is an *ending or what failed here
//	├── ended          over when the end of the run is known; its cause is that *ending
//	└── hurry          the graces: over when signals leave no more time
//	    ├── parting    the driver's grace, which may have to end before the others
//	    └── led        the wait for the head's word: over when the head is lost after this node has begun to end
//
// At an orderly end, or an abort, ended and life are over together (node.finish).
// Where something fails here, life is over first (end), and ended follows when the
// head has made an end of it.
type lifetime struct {
	work context.Context
	rest context.CancelFunc // ends work
	left func() bool        // stops heeding the caller's context
	told atomic.Bool        // somebody has told this daemon to end

	life  context.Context
	end   context.CancelCauseFunc
	ended context.Context
	over  context.CancelCauseFunc

	hurry   context.Context
	hasten  context.CancelCauseFunc
	parting context.Context
	insist  context.CancelCauseFunc
	led     context.Context
	orphan  context.CancelCauseFunc

	tasks sync.WaitGroup // everything that runs in the background under work
}

// errHurry is the cause of the contexts that graces hang from, when signals have
// ended them.
var errHurry = errors.New("signals have ended the graces")

// errDeadline is the cause of a context whose time is over.
var errDeadline = health.ErrDeadline

// newLifetime returns a lifetime that doesn't end with ctx.
func newLifetime(ctx context.Context) *lifetime {
	l := new(lifetime)
	l.work, l.rest = context.WithCancel(context.WithoutCancel(ctx))
	l.life, l.end = context.WithCancelCause(l.work)
	l.ended, l.over = context.WithCancelCause(l.work)
	l.hurry, l.hasten = context.WithCancelCause(l.work)
	l.parting, l.insist = context.WithCancelCause(l.hurry)
	l.led, l.orphan = context.WithCancelCause(l.hurry)
	return l
}

// background runs a task until work is over; close waits for it.
func (l *lifetime) background(task func(ctx context.Context)) {
	l.tasks.Go(func() { task(l.work) })
}

// close ends what is left and waits for it.
func (l *lifetime) close() {
	l.rest()
	l.tasks.Wait()
}

// lookPause lies between two looks at what is known of the others.
const lookPause = 5 * time.Millisecond
