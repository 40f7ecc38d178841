package signal

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Watch looks at one directory again and again and serves every wait for what
// it shows: one listing answers them all. Polling is the truth; nudges only
// make the next look come sooner.
type Watch struct {
	dir   *Dir
	path  string
	nudge chan struct{} // buffered by one: "look now"

	mu      sync.Mutex
	pace    Pace          // guarded by mu
	last    Listing       // guarded by mu
	err     error         // of the newest look, guarded by mu
	began   time.Time     // when the newest wait began, guarded by mu
	looking time.Time     // when the look under way began, zero between looks, guarded by mu
	lookEnd time.Time     // when a look last succeeded, guarded by mu
	changed chan struct{} // closed and replaced by every look that succeeds, guarded by mu
}

// Watch returns a watch over the subdirectory sub. Its Run must run for its
// waits to end.
func (d *Dir) Watch(sub string, pace Pace) *Watch {
	now := time.Now()
	return &Watch{
		dir: d, path: d.path + "/" + sub, pace: pace,
		nudge: make(chan struct{}, 1), changed: make(chan struct{}),
		began: now, lookEnd: now,
	}
}

// Run looks until ctx ends, and returns only then. A look that fails is tried
// again: the waits tell of it at their deadline.
func (w *Watch) Run(ctx context.Context) {
	hints, stop := hint(ctx, w.path, w.dir.kind.local)
	defer stop()
	for looks := 1; ; looks++ {
		begin := w.begin()
		names, err := guarded(ctx, "list", w.path, func() ([]string, error) { return w.dir.fs.list(w.path, nil) })
		if ctx.Err() != nil {
			return
		}
		w.note(names, err, looks)
		if !w.pause(ctx, hints, time.Since(begin)) {
			return
		}
	}
}

func (w *Watch) begin() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looking = time.Now()
	return w.looking
}

func (w *Watch) note(names []string, err error, looks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looking, w.err = time.Time{}, err
	if err != nil {
		return
	}
	w.lookEnd = time.Now()
	w.last = newListing(names, looks, w.lookEnd)
	close(w.changed)
	w.changed = make(chan struct{})
}

// pause waits until the next look is due and tells whether there is one. A
// nudge shortens it, though not under the time that a look takes: the arrival
// of a thousand nodes must not make the head list a thousand times. A look that
// hung for long earns no pause as long.
func (w *Watch) pause(ctx context.Context, hints <-chan struct{}, look time.Duration) bool {
	w.mu.Lock()
	pace := w.pace
	w.mu.Unlock()
	look = min(look, pace.Steady)
	if !sleep(ctx, look) {
		return false
	}
	timer := time.NewTimer(w.nextPause(look) - look)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-w.nudge:
	case <-hints:
	case <-timer.C:
	}
	return true
}

func (w *Watch) nextPause(look time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pace.next(time.Since(w.began), look)
}

// Relax makes steady the longest pause between two looks from now on.
func (w *Watch) Relax(steady time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pace.Steady = steady
}

// Nudge makes the next look come at once. It never blocks.
func (w *Watch) Nudge() {
	select {
	case w.nudge <- struct{}{}:
	default:
	}
}

// Wait returns the first listing for which until is true. It looks often at
// first. When ctx ends before, the error wraps its cause and tells of a look
// that failed or has not come back.
func (w *Watch) Wait(ctx context.Context, until func(Listing) bool) (Listing, error) {
	w.mu.Lock()
	w.began = time.Now()
	w.mu.Unlock()
	w.Nudge()
	return w.Follow(ctx, until)
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
	switch under := time.Since(w.looking); {
	case !w.looking.IsZero() && under > w.pace.Steady:
		return fmt.Errorf("%w (the look at %s has not come back for %s)", cause, w.path, under.Round(time.Millisecond))
	case w.err != nil:
		return fmt.Errorf("%w (the last look at %s: %v)", cause, w.path, w.err)
	default:
		return cause
	}
}

// Silence returns for how long no look has succeeded: the age of what the
// watch knows, which is the share's silence and not the peers'.
func (w *Watch) Silence() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.lookEnd)
}

// Last returns the newest listing; it shows nothing before the first look.
func (w *Watch) Last() Listing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}
