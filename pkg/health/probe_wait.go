package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
)

const (
	minTryPause     = 10 * time.Millisecond  // between the first two tries
	maxTryPause     = 500 * time.Millisecond // maximum between two tries, by default
	maxSlowTryPause = 2 * time.Second        // the same after tries that take long
)

// WaitOptions has what WaitReady needs to know about the service. All fields are optional.
type WaitOptions struct {
	// ChildExited is closed when the service's child has ended, which ends the wait.
	ChildExited <-chan struct{}
	// Ports are the service's local ports: that of the probe, and others. No process listened there
	// when the child was started. Each listener, on any address of the node, must be the child or one
	// of its descendants, according to OwnsProcess, or, if its process is not visible, belong to a
	// trusted user. Any other ends the wait: before a try if its user is not trusted, and otherwise
	// after the try that found the service ready.
	Ports []int
	// AcceptsBeside reports that an untrusted user may listen on other addresses than the child.
	AcceptsBeside bool
	MaxPause      time.Duration // the maximum pause between two tries; 0 means half a second
	// OwnsProcess reports whether a process belongs to the child. If it is nil, listeners are not
	// checked.
	OwnsProcess func(pid int) bool
}

var errChildDied = errors.New("the process has ended")

// WaitReady calls look until it returns nil. At first it tries every 10 ms, then less often, up to
// a pause of MaxPause, and never so often that the tries take more than half of the time. Each try
// must respect its context and have a timeout of its own, like Probe.Try. WaitReady also ends if
// the child dies, if another user listens on one of the ports, and with ctx. The error then has the
// duration, the number of tries and the last result, and wraps the cause of ctx.
func WaitReady(ctx context.Context, look func(context.Context) error, w WaitOptions) error {
	start := time.Now()
	ctx, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if ctxutil.AwaitDone(ctx, w.ChildExited) {
			stop(errChildDied)
		}
	})
	defer watch.Wait()
	defer stop(nil)

	var last error
	gap := minTryPause
	for tries := 0; ; tries++ {
		if ctx.Err() != nil {
			return waitError(context.Cause(ctx), tries, time.Since(start), last)
		}
		began := time.Now()
		// A try may send a password, so nothing may be sent to another user.
		if err := w.checkListenerUsers(); err != nil {
			return err
		}
		seen := look(ctx)
		took := time.Since(began)
		if seen == nil {
			final, err := w.confirmReady()
			if final {
				return err
			}
			seen = err
		}
		// An interrupted try is less informative than the one before. A connection has the deadline of
		// ctx, and may end a moment before ctx does.
		deadline, bounded := ctx.Deadline()
		if last == nil || ctx.Err() == nil && (!bounded || !time.Now().After(deadline)) {
			last = seen
		}
		if !ctxutil.SleepContext(ctx, max(gap, min(took, maxSlowTryPause))) {
			continue
		}
		gap = min(gap*3/2, cmp.Or(w.MaxPause, maxTryPause))
	}
}

// NotReadyError is the error of a wait that has ended before the service was ready.
type NotReadyError struct {
	Tries int
	Last  error // of the last try; nil: there was none
	error
}

// Unwrap returns the reason with its cause.
func (e *NotReadyError) Unwrap() error { return e.error }

func waitError(cause error, tries int, took time.Duration, last error) error {
	seen := "nothing was seen"
	if last != nil {
		seen = "last seen: " + last.Error()
	}
	err := fmt.Errorf("cannot confirm readiness after %s and %d %s: %w; %s", took.Round(time.Millisecond), tries,
		textutil.PluralForm(tries, "attempt"), cause, seen)
	return &NotReadyError{Tries: tries, Last: last, error: err}
}

// FindStrangers returns the listeners of untrusted users on these ports of the node, on any address.
func FindStrangers(ports ...int) ([]ListeningSocket, error) {
	found, err := findListenerSockets("/proc", ports...)
	found = slices.DeleteFunc(found, func(l ListeningSocket) bool { return !l.IsStrangers() })
	if len(found) > 0 {
		addProcessInfo("/proc", found)
	}
	return found, err
}

// checkListenerUsers returns an error if an untrusted user listens on one of the ports.
func (w WaitOptions) checkListenerUsers() error {
	if w.OwnsProcess == nil {
		return nil
	}
	found, err := FindStrangers(w.Ports...)
	if w.AcceptsBeside {
		found = slices.DeleteFunc(found, ListeningSocket.IsBeside)
	}
	return cmp.Or(err, w.foreignListenerError(found))
}

// confirmReady decides after a try that found the service ready. It reports whether the result is
// final, and returns its error.
func (w WaitOptions) confirmReady() (final bool, err error) {
	if w.OwnsProcess != nil {
		found, err := findListenersOn("/proc", w.Ports...)
		if w.AcceptsBeside && slices.ContainsFunc(found,
			func(l ListeningSocket) bool { return l.BelongsTo(w.OwnsProcess) }) {
			found = slices.DeleteFunc(found, ListeningSocket.IsBeside)
		}
		if err == nil {
			err = w.foreignListenerError(found)
		}
		if err != nil {
			return true, err
		}
	}
	// The child may have died during the try, and another process may have answered.
	if ctxutil.AwaitDoneFor(w.ChildExited, 0) {
		return false, errors.New("a response, followed by the end of the process")
	}
	return true, nil
}

// foreignListenerError returns an error that names a listener which does not belong to the child.
// One among several is sufficient: it is unknown which of them has answered, and a client may
// connect to another.
func (w WaitOptions) foreignListenerError(found []ListeningSocket) error {
	for _, l := range found {
		switch {
		case l.BelongsTo(w.OwnsProcess):
		case l.PID == 0:
			return currentTrustedUsers().refusalError(l)
		default:
			return fmt.Errorf("cannot accept the response as the service's own: %s, which does not belong to it", l)
		}
	}
	return nil
}
