package signal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/signal/reports"
)

// Watch polls one directory and serves all waits for its contents: one listing answers all of them.
// Correctness depends on polling only; notifications make the next poll come sooner.
type Watch struct {
	dir         *Dir
	path        string
	wake        chan struct{} // buffered by one: "poll now"
	initialPace Pace          // the initial pace, which SlowDown does not change
	// AllNotified reports whether each new name is notified at present, so that polls are also rare
	// after one that answers a notification. It may be nil, and must be set before Run.
	AllNotified func() bool
	reports     *reports.Store // names that were reported; nil if there are never any

	mu             sync.Mutex // guards all fields below
	pace           Pace
	lastListing    Listing
	waitBegan      time.Time     // when the newest wait began; pauses grow from then on
	nextPoll       time.Time     // when the next poll is due
	earliestPoll   time.Time     // no poll comes earlier than this, even after a notification
	lastPollEnd    time.Time     // when the newest poll ended
	notified       bool          // since the newest poll began
	pollingOnce    bool          // since then, by PollOnceWithin
	listingChanged chan struct{} // closed and replaced by every successful poll
	pollState
}

// pollState is the state of failing polls of a Watch.
type pollState struct {
	listed    []string // names of the newest successful poll
	lastErr   error    // error of the newest poll
	isPolling bool     // a poll is in progress
	begun     int      // number of polls that have begun
	answering bool     // the newest poll began after a notification
	once      bool     // it began after PollOnceWithin, so that the following ones are rare
	// start of the first poll since the last success; zero if the newest poll succeeded
	failingSince time.Time
	firstFailure time.Time // when the first of them failed
}

// NewWatch returns a watch of the subdirectory sub. Its Run must be running for its waits to end.
func (d *Dir) NewWatch(sub string, pace Pace) *Watch {
	now := time.Now()
	return &Watch{
		dir: d, reports: d.reports[sub], path: d.path + "/" + sub, pace: pace, initialPace: pace,
		wake: make(chan struct{}, 1), listingChanged: make(chan struct{}),
		waitBegan: now, lastPollEnd: now, nextPoll: now.Add(pace.nextPause(0, 0, d.access.Jitter())),
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
	for looks := 1; w.awaitNextPoll(ctx, hints); looks++ {
		begin := time.Now()
		w.mu.Lock()
		w.answering, w.once = w.notified, w.pollingOnce
		w.isPolling, w.notified, w.pollingOnce = true, false, false
		w.begun = looks
		if w.failingSince.IsZero() {
			w.failingSince = begin
		}
		w.mu.Unlock()
		names, err := guardedCall(ctx, w.dir.access.Meter, "list", w.path, func() ([]string, error) { return w.dir.access.FS.ListDir(w.path, nil) })
		if ctx.Err() != nil {
			return
		}
		w.recordPoll(names, err, looks, time.Since(begin))
	}
}

// recordPoll records the result of a poll, and sets the time of the next one.
//
// A pause is at least as long as the poll before it took, unless that hung for long, which does not
// predict the duration of others. A poll that answers a notification, by a new name, is not
// repeated soon: the next change will be notified, too. A failed poll is repeated soon, even if
// polls have become rare, so that a temporary error is not mistaken for an unresponsive file system.
// The pauses grow with the time since the first failure; the time for which that poll hung does not
// count.
func (w *Watch) recordPoll(names []string, err error, looks int, took time.Duration) {
	allNotified := w.AllNotified != nil && w.AllNotified() // without the lock: it may use the last listing
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.isPolling, w.lastErr, w.lastPollEnd = false, err, now
	took = min(took, w.pace.MaxPause, w.initialPace.MaxPause)
	w.earliestPoll = now.Add(took)
	if err != nil {
		if w.firstFailure.IsZero() {
			w.firstFailure = now
		}
		w.nextPoll = now.Add(w.initialPace.nextPause(now.Sub(w.firstFailure), 0, w.dir.access.Jitter()))
		w.dir.access.Meter.countRetry()
		return
	}
	showsMore := w.lastListing.Polls > 0 && len(names) > len(w.listed)
	if !w.notified && (w.once || w.answering && showsMore && allNotified) {
		w.relaxLocked(now)
	}
	w.nextPoll = now.Add(w.pace.nextPause(now.Sub(w.waitBegan), took, w.dir.access.Jitter()))
	w.failingSince, w.firstFailure = time.Time{}, time.Time{}
	w.listed = names
	w.showLocked(looks, now)
}

// showLocked makes the names of the newest poll the last listing, with those that were only
// reported. mu must be held.
func (w *Watch) showLocked(polls int, polledAt time.Time) {
	w.lastListing = newListing(w.reports.AddTo(w.listed), w.dir.size, polls, polledAt)
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
		case <-w.reports.Arrived():
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
		left := time.Until(w.nextPoll)
		w.mu.Unlock()
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-w.wake: // due has changed
		case <-hints:
			w.advancePoll(time.Now())
		case <-timer.C:
		}
		timer.Stop()
	}
	return false
}

// advancePoll moves the next poll to the given time if it was due later. After each poll there is a
// rest as long as the poll took: the arrival of a thousand nodes must not make the head list a
// thousand times.
func (w *Watch) advancePoll(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at.Before(w.earliestPoll) {
		at = w.earliestPoll
	}
	if at.Before(w.nextPoll) {
		w.nextPoll = at
	}
	ctxutil.NotifyChannel(w.wake)
}

// SlowDown sets the maximum pause between two polls to steady, beginning with the present pause. It
// is for times in which no change is expected soon: the pauses continue as if a wait had lasted for
// a while already. If a change was notified that no poll has shown yet, the next poll still comes
// soon.
func (w *Watch) SlowDown(steady time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pace.MaxPause = steady
	w.relaxPauseLocked()
}

// Relax is like SlowDown, but keeps the maximum pause.
func (w *Watch) Relax() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.relaxPauseLocked()
}

// relaxPauseLocked relaxes the pace and the present pause. mu must be held.
func (w *Watch) relaxPauseLocked() {
	if w.notified {
		return
	}
	now := time.Now()
	w.waitBegan = now
	w.relaxLocked(now)
	took := max(0, w.earliestPoll.Sub(w.lastPollEnd))
	w.nextPoll = now.Add(w.pace.nextPause(now.Sub(w.waitBegan), took, w.dir.access.Jitter()))
	ctxutil.NotifyChannel(w.wake)
}

// relaxLocked makes the pauses as long as if a wait had lasted for a while already. mu must be held.
func (w *Watch) relaxLocked(now time.Time) {
	if began := now.Add(-relaxedPauses * w.pace.MinPause); began.Before(w.waitBegan) {
		w.waitBegan = began
	}
}

// relaxedPauses is the assumed duration of the wait after SlowDown, in multiples of the shortest
// pause.
const relaxedPauses = 40

// NotifyChange makes the next poll come at once, and the following ones soon until one shows a new
// name, because a listing may be older than the notification. It never blocks.
func (w *Watch) NotifyChange() { w.NotifyChangeWithin(0) }

// NotifyChangeWithin makes the next poll come at a random time before most has passed, so that
// daemons that are notified at once do not all poll at the same time.
func (w *Watch) NotifyChangeWithin(most time.Duration) {
	at := time.Now().Add(time.Duration(w.dir.access.Jitter() * float64(most)))
	w.mu.Lock()
	w.waitBegan, w.notified = at, true
	w.mu.Unlock()
	w.advancePoll(at)
}

// WaitListing waits for a listing for which until returns true, and returns it. It polls often at
// first. If ctx ends first, the error wraps its cause and reports a poll that has failed or not
// returned.
func (w *Watch) WaitListing(ctx context.Context, until func(Listing) bool) (Listing, error) {
	w.SpeedUp()
	return w.FollowListings(ctx, until)
}

// AwaitListing polls the subdirectory sub, at the pace of one of many nodes, until the function
// until returns true for a listing. It returns an error like that of Watch.Wait if ctx ends first.
func (d *Dir) AwaitListing(ctx context.Context, sub string, until func(Listing) bool) error {
	watching, stop := context.WithCancel(ctx)
	watch := d.NewWatch(sub, WorkerPace(d.size))
	var looking sync.WaitGroup
	defer looking.Wait()
	defer stop()
	looking.Go(func() { watch.Run(watching) })
	_, err := watch.WaitListing(ctx, until)
	return err
}

// PollOnceWithin is like NotifyChangeWithin if there may be no change, such as at the begin of a
// peer link, which notifies each later one: the polls after the next one are rare.
func (w *Watch) PollOnceWithin(most time.Duration) {
	w.mu.Lock()
	w.pollingOnce = true
	w.mu.Unlock()
	w.NotifyChangeWithin(most)
}

// PollsBegun returns the number of polls that have begun. A listing with a higher number is from a
// poll that begins after this call.
func (w *Watch) PollsBegun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun
}

// SpeedUp makes the polls come as often as at the start of a wait.
func (w *Watch) SpeedUp() {
	w.mu.Lock()
	w.waitBegan = time.Now()
	soon := w.lastPollEnd.Add(w.pace.nextPause(0, 0, w.dir.access.Jitter()))
	w.mu.Unlock()
	w.advancePoll(soon)
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
	switch {
	case w.isPolling && time.Since(w.failingSince) > w.pace.MaxPause:
		return fmt.Errorf("%w (the shared file system has not responded to a read of %s for %s)", cause, w.path, time.Since(w.failingSince).Round(time.Millisecond))
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
