// Package pause waits without outliving its context.
package pause

import (
	"context"
	"time"
)

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
