package signal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Watch polls one directory and serves all waits for its contents: one listing answers all of them.
// Correctness depends on polling only; notifications make the next poll come sooner.
type Watch struct {
	dir   *Dir
	path  string
	nudge chan struct{} // buffered by one: "poll now"
	brisk Pace          // the initial pace, which Relax does not change

	mu      sync.Mutex // guards all fields below
	pace    Pace
	last    Listing
	began   time.Time     // when the newest wait began; pauses grow from then on
	due     time.Time     // when the next poll is due
	rested  time.Time     // no poll comes earlier than this, even after a notification
	looked  time.Time     // when the newest poll ended
	nudged  bool          // since the newest poll began
	changed chan struct{} // closed and replaced by every successful poll
	trouble
}

// trouble is the state of failing polls of a Watch.
type trouble struct {
	err     error     // error of the newest poll
	looking bool      // a poll is in progress
	sick    time.Time // start of the first poll since the last success; zero if the newest poll succeeded
	failing time.Time // when the first of them failed
}

// Watch returns a watch of the subdirectory sub. Its Run must be running for its waits to end.
func (d *Dir) Watch(sub string, pace Pace) *Watch {
	now := time.Now()
	return &Watch{
		dir: d, path: d.path + "/" + sub, pace: pace, brisk: pace,
		nudge: make(chan struct{}, 1), changed: make(chan struct{}),
		began: now, looked: now, due: now.Add(pace.next(0, 0, d.via.Jitter())),
	}
}

// Run polls until ctx ends, and returns only then. A failed poll is repeated; waits report it at
// their deadline.
func (w *Watch) Run(ctx context.Context) {
	hints, stop := hint(w.path, w.dir.kind.Local && !w.dir.via.Deaf)
	defer stop()
	for looks := 1; w.pause(ctx, hints); looks++ {
		begin := w.begin()
		names, err := guarded(ctx, w.dir.via.Meter, "list", w.path, func() ([]string, error) { return w.dir.via.Share.List(w.path, nil) })
		if ctx.Err() != nil {
			return
		}
		w.note(names, err, looks, time.Since(begin))
	}
}

func (w *Watch) begin() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.looking, w.nudged = true, false
	if w.sick.IsZero() {
		w.sick = now
	}
	return now
}

// note records the result of a poll, and sets the time of the next one.
//
// A pause is at least as long as the poll before it took, unless that hung for long, which does not
// predict the duration of others. A failed poll is repeated soon, even if polls have become rare,
// so that a temporary error is not mistaken for an unresponsive file system. The pauses grow with
// the time since the first failure; the time for which that poll hung does not count.
func (w *Watch) note(names []string, err error, looks int, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.looking, w.err, w.looked = false, err, now
	took = min(took, w.pace.Steady, w.brisk.Steady)
	w.rested = now.Add(took)
	if err != nil {
		if w.failing.IsZero() {
			w.failing = now
		}
		w.due = now.Add(w.brisk.next(now.Sub(w.failing), 0, w.dir.via.Jitter()))
		w.dir.via.Meter.retry()
		return
	}
	w.due = now.Add(w.pace.next(now.Sub(w.began), took, w.dir.via.Jitter()))
	w.sick, w.failing = time.Time{}, time.Time{}
	w.last = newListing(names, w.dir.size, looks, now)
	close(w.changed)
	w.changed = make(chan struct{})
}

// pause waits until the next poll is due and reports whether there is one.
func (w *Watch) pause(ctx context.Context, hints <-chan struct{}) bool {
	for ctx.Err() == nil {
		w.mu.Lock()
		left := time.Until(w.due)
		w.mu.Unlock()
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-w.nudge: // due has changed
		case <-hints:
			w.advance(time.Now())
		case <-timer.C:
		}
		timer.Stop()
	}
	return false
}

// advance moves the next poll to the given time if it was due later. After each poll there is a
// rest as long as the poll took: the arrival of a thousand nodes must not make the head list a
// thousand times.
func (w *Watch) advance(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at.Before(w.rested) {
		at = w.rested
	}
	if at.Before(w.due) {
		w.due = at
	}
	pause.Ring(w.nudge)
}

// Relax sets the maximum pause between two polls to steady, beginning with the present pause. It is
// for times in which no change is expected soon: the pauses continue as if a wait had lasted for a
// while already. If a change was notified that no poll has shown yet, the next poll still comes
// soon.
func (w *Watch) Relax(steady time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pace.Steady = steady
	if w.nudged {
		return
	}
	now := time.Now()
	w.began = now.Add(-relaxed * w.pace.Fast)
	took := max(0, w.rested.Sub(w.looked))
	w.due = now.Add(w.pace.next(now.Sub(w.began), took, w.dir.via.Jitter()))
	pause.Ring(w.nudge)
}

// relaxed is the assumed duration of the wait after Relax, in multiples of the shortest pause.
const relaxed = 40

// Nudge makes the next poll come at once, and the following ones soon, because a listing may be
// older than the notification. It never blocks.
func (w *Watch) Nudge() { w.NudgeWithin(0) }

// NudgeWithin makes the next poll come at a random time before most has passed, so that daemons
// that are notified at once do not all poll at the same time.
func (w *Watch) NudgeWithin(most time.Duration) {
	at := time.Now().Add(time.Duration(w.dir.via.Jitter() * float64(most)))
	w.mu.Lock()
	w.began, w.nudged = at, true
	w.mu.Unlock()
	w.advance(at)
}

// Wait waits for a listing for which until returns true, and returns it. It polls often at first.
// If ctx ends first, the error wraps its cause and reports a poll that has failed or not returned.
func (w *Watch) Wait(ctx context.Context, until func(Listing) bool) (Listing, error) {
	w.Quicken()
	return w.Follow(ctx, until)
}

// Await polls the subdirectory sub, at the pace of one of many nodes, until the function until
// returns true for a listing. It returns an error like that of Watch.Wait if ctx ends first.
func (d *Dir) Await(ctx context.Context, sub string, until func(Listing) bool) error {
	watching, stop := context.WithCancel(ctx)
	watch := d.Watch(sub, WorkerPace(d.size))
	var looking sync.WaitGroup
	defer looking.Wait()
	defer stop()
	looking.Go(func() { watch.Run(watching) })
	_, err := watch.Wait(ctx, until)
	return err
}

// Quicken makes the polls come as often as at the start of a wait.
func (w *Watch) Quicken() {
	w.mu.Lock()
	w.began = time.Now()
	soon := w.looked.Add(w.pace.next(0, 0, w.dir.via.Jitter()))
	w.mu.Unlock()
	w.advance(soon)
}

// Follow is like Wait, but keeps the present pace of the watch.
func (w *Watch) Follow(ctx context.Context, until func(Listing) bool) (Listing, error) {
	for {
		w.mu.Lock()
		last, changed := w.last, w.changed
		w.mu.Unlock()
		if last.Looks > 0 && until(last) {
			return last, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return last, w.gaveUp(ctx)
		}
	}
}

func (w *Watch) gaveUp(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	cause := context.Cause(ctx)
	switch {
	case w.looking && time.Since(w.sick) > w.pace.Steady:
		return fmt.Errorf("%w (the share has not answered a look at %s for %s)", cause, w.path, time.Since(w.sick).Round(time.Millisecond))
	case w.err != nil:
		return fmt.Errorf("%w (the last look at %s: %v)", cause, w.path, w.err)
	default:
		return cause
	}
}

// Silence returns the time since the start of the first poll that did not succeed, or 0 if the last
// poll has succeeded. For that time the file system is unresponsive, not the peers.
func (w *Watch) Silence() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sick.IsZero() {
		return 0
	}
	return time.Since(w.sick)
}

// Last returns the newest listing; it is empty before the first poll.
func (w *Watch) Last() Listing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}
