package signal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
)

// Watch polls one directory and serves all waits for its contents: one listing answers all of them.
// Correctness depends on polling only; notifications make the next poll come sooner.
type Watch struct {
	dir  *Dir
	path string
	wake chan struct{} // buffered by one: the next poll may be due earlier
	// AllNotified reports whether each new name is notified at present, so that polls are also rare
	// after one that answers a notification. It may be nil, and must be set before Run.
	AllNotified func() bool
	reports     *reportStore // names that were reported; nil if there are never any

	mu             sync.Mutex // guards all fields below
	schedule       pollSchedule
	lastListing    Listing
	listingChanged chan struct{} // closed and replaced by every successful poll
	pollState
}

type pollState struct {
	listed    []string // names of the newest successful poll
	lastErr   error    // error of the newest poll
	isPolling bool     // a poll is in progress
	begun     int      // number of polls that have begun
	// start of the first poll since the last success; zero if the newest poll succeeded
	failingSince time.Time
}

// NewWatch returns a watch of the subdirectory sub. Its Run must be running for its waits to end.
func (d *Dir) NewWatch(sub string, pace Pace) *Watch {
	return &Watch{
		dir: d, reports: d.reports[sub], path: d.path + "/" + sub,
		schedule: newPollSchedule(pace, d.access.Jitter, time.Now()),
		wake:     make(chan struct{}, 1), listingChanged: make(chan struct{}),
	}
}

// Run polls until ctx ends, and returns only then. A failed poll is repeated; waits report it at
// their deadline.
func (w *Watch) Run(ctx context.Context) {
	hints, stop := files.WatchNames(w.path, w.dir.fileSystem.Local && !w.dir.access.NoHints)
	defer stop()
	var merging sync.WaitGroup
	defer merging.Wait()
	merging.Go(func() { w.mergeReports(ctx) })
	for w.awaitNextPoll(ctx, hints) {
		begin := time.Now()
		w.beginPoll(begin)
		names, err := guardedCall(ctx, w.dir.access, "list", w.path, func(path string) ([]string, error) {
			return w.dir.access.FS.ListDir(path, nil)
		})
		if ctx.Err() != nil {
			return
		}
		w.endPoll(names, err, time.Since(begin))
	}
}

func (w *Watch) beginPoll(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.schedule.beginPoll()
	w.isPolling = true
	w.begun++
	if w.failingSince.IsZero() {
		w.failingSince = now
	}
}

func (w *Watch) endPoll(names []string, err error, took time.Duration) {
	result := pollResult{took: took, failed: err != nil}
	// It is called without the lock, because it may use the last listing.
	result.allNotified = w.AllNotified != nil && w.AllNotified()
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	result.showsMore = w.lastListing.Polls > 0 && len(names) > len(w.listed)
	w.schedule.endPoll(now, result)
	w.isPolling, w.lastErr = false, err
	if err != nil {
		w.dir.access.Meter.countRetry()
		return
	}
	w.failingSince, w.listed = time.Time{}, names
	w.showLocked(w.begun, now)
}

// showLocked makes the names of the newest poll the last listing, with those that were only
// reported. mu must be held.
func (w *Watch) showLocked(polls int, polledAt time.Time) {
	w.lastListing = newListing(w.reports.addTo(w.listed), w.dir.size, polls, polledAt)
	w.lastListing.SeenAt = time.Now()
	close(w.listingChanged)
	w.listingChanged = make(chan struct{})
}

// mergeReports adds names to the last listing as they are reported, until ctx ends, also while polls
// fail or hang. The reports of many nodes are added together: all of it takes at most a twentieth of
// a processor.
func (w *Watch) mergeReports(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.reports.arrivedNames():
		}
		began := time.Now()
		w.mu.Lock()
		if last := w.lastListing; last.Polls > 0 {
			w.showLocked(last.Polls, last.PolledAt)
		}
		w.mu.Unlock()
		ctxutil.SleepContext(ctx, 20*time.Since(began))
	}
}

// awaitNextPoll waits until the next poll is due and reports whether there is one.
func (w *Watch) awaitNextPoll(ctx context.Context, hints <-chan struct{}) bool {
	for ctx.Err() == nil {
		w.mu.Lock()
		left := time.Until(w.schedule.next)
		w.mu.Unlock()
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-hints:
			w.reschedule(func(s *pollSchedule) { s.advance(time.Now()) })
		case <-timer.C:
		}
		timer.Stop()
	}
	return false
}

func (w *Watch) reschedule(change func(s *pollSchedule)) {
	w.mu.Lock()
	change(&w.schedule)
	w.mu.Unlock()
	ctxutil.NotifyChannel(w.wake)
}

// SlowDown sets the maximum pause between two polls to steady, and relaxes the watch: see
// [Watch.Relax].
func (w *Watch) SlowDown(steady time.Duration) {
	w.reschedule(func(s *pollSchedule) {
		s.pace.MaxPause = steady
		s.relax(time.Now())
	})
}

// Relax lengthens the pauses, beginning with the present one. It is for times in which no change is
// expected soon: the pauses continue as if a wait had lasted for a while already. If a change was
// notified that no poll has shown yet, the next poll still comes soon.
func (w *Watch) Relax() { w.reschedule(func(s *pollSchedule) { s.relax(time.Now()) }) }

// SpeedUp makes the polls come as often as at the start of a wait.
func (w *Watch) SpeedUp() { w.reschedule(func(s *pollSchedule) { s.speedUp(time.Now()) }) }

// NotifyChange makes the next poll come at once, and the following ones soon until one shows a new
// name, because a listing may be older than the notification. It never blocks.
func (w *Watch) NotifyChange() { w.NotifyChangeWithin(0) }

// NotifyChangeWithin makes the next poll come at a random time before limit has passed, so that
// daemons that are notified at once do not all poll at the same time.
func (w *Watch) NotifyChangeWithin(limit time.Duration) { w.notifyWithin(limit, false) }

// PollOnceWithin is like NotifyChangeWithin if there may be no change, such as at the begin of a
// peer link, which notifies each later one: the polls after the next one are rare.
func (w *Watch) PollOnceWithin(limit time.Duration) { w.notifyWithin(limit, true) }

func (w *Watch) notifyWithin(limit time.Duration, once bool) {
	at := time.Now().Add(time.Duration(w.dir.access.Jitter() * float64(limit)))
	w.reschedule(func(s *pollSchedule) { s.notify(at, once) })
}

// WaitListing waits for a listing for which until returns true, and returns it. It polls often at
// first. If ctx ends first, the error wraps its cause and reports a poll that has failed or not
// returned.
func (w *Watch) WaitListing(ctx context.Context, until func(Listing) bool) (Listing, error) {
	w.SpeedUp()
	return w.FollowListings(ctx, until)
}

// AwaitListing polls the subdirectory sub, at the pace of one of many nodes, until the function
// until returns true for a listing. It returns an error like that of [Watch.WaitListing] if ctx ends
// first.
func (d *Dir) AwaitListing(ctx context.Context, sub string, until func(Listing) bool) error {
	watching, stop := context.WithCancel(ctx)
	watch := d.NewWatch(sub, WorkerPace(d.size))
	var polling sync.WaitGroup
	defer polling.Wait()
	defer stop()
	polling.Go(func() { watch.Run(watching) })
	_, err := watch.WaitListing(ctx, until)
	return err
}

// PollsBegun returns the number of polls that have begun. A listing with a higher number is from a
// poll that begins after this call.
func (w *Watch) PollsBegun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun
}

// FollowListings is like WaitListing, but keeps the present pace of the watch.
func (w *Watch) FollowListings(ctx context.Context, until func(Listing) bool) (Listing, error) {
	for {
		w.mu.Lock()
		last, changed := w.lastListing, w.listingChanged
		w.mu.Unlock()
		if last.Polls > 0 && until(last) {
			return last, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return last, w.waitError(ctx)
		}
	}
}

func (w *Watch) waitError(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	cause := context.Cause(ctx)
	switch failing := time.Since(w.failingSince); {
	case w.isPolling && failing > w.schedule.pace.MaxPause:
		return fmt.Errorf("%w (the shared file system has not responded to a read of %s for %s)",
			cause, w.path, failing.Round(time.Millisecond))
	case w.lastErr != nil:
		return fmt.Errorf("%w (last error of %s: %v)", cause, w.path, w.lastErr)
	default:
		return cause
	}
}

// UnresponsiveFor returns the time since the start of the first poll that did not succeed, or 0 if
// the last poll has succeeded. For that time the file system is unresponsive, not the peers.
func (w *Watch) UnresponsiveFor() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failingSince.IsZero() {
		return 0
	}
	return time.Since(w.failingSince)
}

// LastListing returns the newest listing; it is empty before the first poll.
func (w *Watch) LastListing() Listing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastListing
}
