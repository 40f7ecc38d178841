package lifecycle

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

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
