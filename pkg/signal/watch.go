package signal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Watch looks at one directory again and again and serves every wait for what
// it shows: one listing answers them all. Polling is the truth; nudges only
// make the next look come sooner.
type Watch struct {
	dir   *Dir
	path  string
	nudge chan struct{} // buffered by one: "look now"
	brisk Pace          // the pace at the start, which Relax does not change

	mu      sync.Mutex // guards all that follows
	pace    Pace
	last    Listing
	began   time.Time     // when the newest wait began
	due     time.Time     // when the next look is
	rested  time.Time     // no look comes earlier than this, not even for a nudge
	looked  time.Time     // when the newest look ended
	nudged  bool          // since the newest look began
	changed chan struct{} // closed and replaced by every look that succeeds
	trouble
}

// trouble is what is wrong with the looks of a Watch.
type trouble struct {
	err     error     // of the newest look
	looking bool      // a look is under way
	sick    time.Time // when the first of the looks began that have not succeeded; zero: the newest has
	failing time.Time // when the first of them failed
}

// Watch returns a watch over the subdirectory sub. Its Run must run for its
// waits to end.
func (d *Dir) Watch(sub string, pace Pace) *Watch {
	now := time.Now()
	return &Watch{
		dir: d, path: d.path + "/" + sub, pace: pace, brisk: pace,
		nudge: make(chan struct{}, 1), changed: make(chan struct{}),
		began: now, looked: now, due: now.Add(pace.next(0, 0, d.via.Jitter())),
	}
}

// Run looks until ctx ends, and returns only then. A look that fails is tried
// again: the waits tell of it at their deadline.
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

// note takes in what a look has shown, and sets the time of the next one.
//
// A pause is at least as long as the look before it took, but not where that hung
// for long: it says little of how long others take. A look that failed is made
// again soon, however rare the looks are by now, so that a passing error is not
// taken for a share that does not answer. The pauses grow with the time since the
// first failure; how long that look hung does not count.
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

// pause waits until the next look is due and tells whether there is one.
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

// advance makes the next look come at that time if it was due later. After each
// look there is a rest as long as the look took: the arrival of a thousand nodes
// must not make the head list a thousand times.
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

// Relax makes steady the longest pause between two looks, from the pause under way
// on. It is for a time in which nothing is expected soon: the pauses go on as if a
// wait had lasted for a while already. What a nudge has told of, and no look has
// shown yet, is still looked for soon.
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

// relaxed is how long that wait had lasted, in shortest pauses.
const relaxed = 40

// Nudge makes the next look come at once, and the ones after it soon: a listing
// may be older than what we are nudged for. It never blocks.
func (w *Watch) Nudge() { w.NudgeWithin(0) }

// NudgeWithin makes the next look come at a random time before most has passed, so
// that daemons that are nudged at once do not all look in the same moment.
func (w *Watch) NudgeWithin(most time.Duration) {
	at := time.Now().Add(time.Duration(w.dir.via.Jitter() * float64(most)))
	w.mu.Lock()
	w.began, w.nudged = at, true
	w.mu.Unlock()
	w.advance(at)
}

// Wait returns the first listing for which until is true. It looks often at
// first. When ctx ends before, the error wraps its cause and tells of a look
// that failed or has not come back.
func (w *Watch) Wait(ctx context.Context, until func(Listing) bool) (Listing, error) {
	w.Quicken()
	return w.Follow(ctx, until)
}

// Await watches the subdirectory sub, at the pace of one of many, until a listing
// is shown for which until is true. Its error is that of a Wait.
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

// Quicken makes the looks come as often as at the start of a wait.
func (w *Watch) Quicken() {
	w.mu.Lock()
	w.began = time.Now()
	soon := w.looked.Add(w.pace.next(0, 0, w.dir.via.Jitter()))
	w.mu.Unlock()
	w.advance(soon)
}

// Follow is Wait at the pace that the watch has by now.
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

// Silence returns for how long no look has succeeded, from the start of the first
// that did not: it is the share that is silent then, not the peers. 0 while all is
// well.
func (w *Watch) Silence() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sick.IsZero() {
		return 0
	}
	return time.Since(w.sick)
}

// Last returns the newest listing; it shows nothing before the first look.
func (w *Watch) Last() Listing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}
