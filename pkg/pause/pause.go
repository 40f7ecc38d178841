// Package pause provides waits that end with their context.
package pause

import (
	"context"
	"errors"
	"time"
)

// ErrHangs is the error of Bounded for a call that was abandoned.
var ErrHangs = errors.New("it hangs")

// For waits for the duration d, or until ctx ends. It returns false if ctx has ended.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// Await waits until done is closed, or ctx ends. It reports whether done is closed.
func Await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
	case <-ctx.Done():
	}
	return Until(done, 0)
}

// Until waits until done is closed, for at most d. It reports whether done is closed.
func Until(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	}
	select {
	case <-done: // both at the same time
		return true
	default:
		return false
	}
}

// Ring sends a signal on a channel without blocking. The channel must have a buffer of one: several
// signals before the receiver reads it count as one.
func Ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// Bounded makes a call that may never return, such as one to a disk or a driver that hangs: the
// kernel does not release the thread. If ctx ends, the call has the time lag to return; then it is
// abandoned, with its goroutine and its thread, and Bounded returns ErrHangs.
func Bounded[T any](ctx context.Context, lag time.Duration, call func() (T, error)) (T, error) {
	var value T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = call()
	}()
	select {
	case <-done:
		return value, err
	case <-ctx.Done():
	}
	if Until(done, lag) {
		return value, err
	}
	var none T
	return none, ErrHangs
}
