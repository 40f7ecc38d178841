package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	firstPause = 10 * time.Millisecond  // between the first two looks
	lastPause  = 500 * time.Millisecond // between two looks, at most, where nothing else is said
	dearPause  = 2 * time.Second        // the same after looks that take long themselves
)

// Wait is what WaitReady knows of the service that it waits for. The zero Wait knows nothing.
type Wait struct {
	// Died is closed when the service's child has ended, which ends the wait.
	Died <-chan struct{}
	// Ports are the service's local ports: that which the look asks, and others. Nobody listened
	// there when the child was started. Each listener, on any address of the node, must be the
	// child or of its family, as Owns tells, or, if its process cannot be seen, belong to a trusted
	// user. Any other ends the wait: before a look, if its user is not trusted, and otherwise after
	// the look that found the service ready.
	Ports []int
	// Pace is the longest pause between two looks; 0: half a second.
	Pace time.Duration
	// Owns tells whether a process is the child's. Without it nobody is asked.
	Owns func(pid int) bool
}

var errChildDied = errors.New("the process has ended")

// WaitReady looks until the look returns nil, first every 10 ms and then ever slower, down to the pace, and
// never so often that looking takes more than half of the time. Each look must keep to its context, and to a bound
// of its own, as Probe.Try does. WaitReady ends too with the child's death, with a stranger on the port, and with
// ctx; the error then tells how long it took, how many looks and what the last one saw, and wraps the cause of ctx.
func WaitReady(ctx context.Context, look func(context.Context) error, w Wait) error {
	start := time.Now()
	ctx, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if pause.Await(ctx, w.Died) {
			stop(errChildDied)
		}
	})
	defer watch.Wait()
	defer stop(nil)

	var last error
	gap := firstPause
	for tries := 0; ; tries++ {
		if ctx.Err() != nil {
			return waitError(context.Cause(ctx), tries, time.Since(start), last)
		}
		began := time.Now()
		// A look may send a password: nothing is sent to a stranger.
		if err := w.judgeUsers(); err != nil {
			return err
		}
		seen := look(ctx)
		took := time.Since(began)
		if seen == nil {
			final, err := w.judge()
			if final {
				return err
			}
			seen = err
		}
		// A look that was cut short has less to tell than the one before. A connection's deadline, which it has of ctx,
		// may end it a moment before ctx does.
		deadline, bounded := ctx.Deadline()
		if last == nil || ctx.Err() == nil && (!bounded || !time.Now().After(deadline)) {
			last = seen
		}
		if !pause.For(ctx, max(gap, min(took, dearPause))) {
			continue
		}
		gap = min(gap*3/2, cmp.Or(w.Pace, lastPause))
	}
}

func waitError(cause error, tries int, took time.Duration, last error) error {
	seen := "nothing was seen"
	if last != nil {
		seen = "last seen: " + last.Error()
	}
	return fmt.Errorf("cannot see it ready after %s and %d %s: %w; %s", took.Round(time.Millisecond), tries, prose.Noun(tries, "look"), cause, seen)
}

// judgeUsers returns an error if a user who is not trusted listens on the port.
func (w Wait) judgeUsers() error {
	if w.Owns == nil {
		return nil
	}
	found, err := listenersOf("/proc", w.Ports...)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(l Listener) bool { return trusted().include(l.user) })
	if len(found) > 0 {
		nameHolders("/proc", found)
	}
	return w.strangers(found)
}

// judge decides on a look that found the service ready: whether that is final, and if so with what error.
func (w Wait) judge() (final bool, err error) {
	if w.Owns != nil {
		found, err := listenersIn("/proc", w.Ports...)
		if err == nil {
			err = w.strangers(found)
		}
		if err != nil {
			return true, err
		}
	}
	// The child may have died while the look was under way, and somebody else have answered.
	if pause.Until(w.Died, 0) {
		return false, errors.New("an answer, and the end of the process with it")
	}
	return true, nil
}

// strangers returns an error that names a listener that is not the child's. One among several is one
// too many: which of them has answered is unknown, and a client may connect to another.
func (w Wait) strangers(found []Listener) error {
	for _, l := range found {
		switch {
		case l.PID == 0 && !trusted().include(l.user):
			return trusted().refuse(l)
		case l.PID != 0 && !slices.ContainsFunc(l.pids, w.Owns):
			return fmt.Errorf("cannot take the answer for the service's own: %s, which is not of its family", l)
		}
	}
	return nil
}
