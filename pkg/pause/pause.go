// Package pause waits without outliving its context.
package pause

import (
	"context"
	"errors"
	"time"
)

// ErrHangs is what Bounded returns for a call that was left to itself.
var ErrHangs = errors.New("it hangs")

// For waits for d, or until ctx ends. It tells whether ctx still lives.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// Await waits for done to be closed, until ctx ends at most. It tells whether done was.
func Await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
	case <-ctx.Done():
	}
	return Until(done, 0)
}

// Until waits for done to be closed, for at most d. It tells whether done was.
func Until(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	}
	select {
	case <-done: // both at once
		return true
	default:
		return false
	}
}

// Ring asks for attention without waiting for it. The bell is buffered by one: rings that come before it is heard are one.
func Ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// Bounded makes a call that may never return, as one into a disk or a driver that hangs: the kernel does not let go of
// who waits there. Where ctx ends, the call has the lag to return in; later it is left to itself, with its goroutine
// and its thread, and Bounded returns ErrHangs.
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
