// Package ctxutil provides waits that end with their context.
package ctxutil

import (
	"context"
	"errors"
	"time"
)

// ErrAbandoned is the error of CallBounded for a call that was abandoned.
var ErrAbandoned = errors.New("it hangs")

// SleepContext waits for the duration d, or until ctx ends. It returns false if ctx has ended.
func SleepContext(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// AwaitDone waits until done is closed, or ctx ends. It reports whether done is closed.
func AwaitDone(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
	case <-ctx.Done():
	}
	return AwaitDoneFor(done, 0)
}

// AwaitDoneFor waits until done is closed, for at most d. It reports whether done is closed.
func AwaitDoneFor(done <-chan struct{}, d time.Duration) bool {
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

// Turn is a lock that its holder may keep while it waits, for a file system for example: others stop
// waiting for it when their context ends. It is made with the capacity 1.
type Turn chan struct{}

// Take takes the turn, which [Turn.Leave] ends. It reports false if ctx ends first.
func (t Turn) Take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Leave ends the turn.
func (t Turn) Leave() { <-t }

// NotifyChannel sends a signal on a channel without blocking. The channel must have a buffer of
// one: several signals before the receiver reads it count as one.
func NotifyChannel(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// CallBounded makes a call that may never return, such as one to a disk or a driver that hangs: the
// kernel does not release the thread. If ctx ends, the call has the time lag to return; then it is
// abandoned, with its goroutine and its thread, and CallBounded returns ErrAbandoned.
func CallBounded[T any](ctx context.Context, lag time.Duration, call func() (T, error)) (T, error) {
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
	if AwaitDoneFor(done, lag) {
		return value, err
	}
	var none T
	return none, ErrAbandoned
}
