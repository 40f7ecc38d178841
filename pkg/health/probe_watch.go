package health

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// Tolerance states when a process that has been ready fails its probe. A busy process answers late, so
// that a try without an answer is a miss, and goes on: its answer counts whenever it comes.
type Tolerance struct {
	Try    time.Duration // a try is a miss each time when it has had no answer for so long
	Misses int           // number of misses in a row with which the probe fails
	// After is how long the misses must have lasted, from the beginning of the first of these tries.
	After time.Duration
	// FailsIfRefused reports that the probe fails at once if the connection is refused.
	FailsIfRefused bool
}

// Streak is what is known of the tries of a probe since the last one that succeeded.
type Streak struct {
	Misses int
	Since  time.Time // when the first of these tries began
}

// Extend returns the streak with a further try, with its error, or an empty one after a success.
func (t Tolerance) Extend(s Streak, began time.Time, took time.Duration, err error) Streak {
	if err == nil {
		return Streak{}
	}
	if s.Misses == 0 {
		s.Since = began
	}
	s.Misses += max(1, int(took/t.Try))
	if t.FailsIfRefused && errors.Is(err, syscall.ECONNREFUSED) {
		s.Misses = max(s.Misses, t.Misses)
	}
	return s
}

// IsOver reports whether the probe has failed.
func (t Tolerance) IsOver(s Streak, now time.Time) bool {
	return s.Misses >= t.Misses && now.Sub(s.Since) >= t.After
}

// Limit returns how long the next try may last: until the probe has failed by it, but not so long that a
// single request which the process has lost would decide alone for more than that.
func (t Tolerance) Limit(s Streak, now time.Time) time.Duration {
	if s.Misses < t.Misses {
		return time.Duration(t.Misses-s.Misses) * t.Try
	}
	limit := time.Duration(t.Misses) * t.Try
	if left := s.Since.Add(t.After).Sub(now); left > 0 {
		limit = min(limit, max(left, t.Try))
	}
	return limit
}

// Watch repeats the probe of a process that is ready until ctx ends, first after the given time and then
// with a pause between two tries. It calls judge after each try, with its error and whether the probe has
// failed.
func (p Probe) Watch(ctx context.Context, t Tolerance, first, pause time.Duration,
	judge func(err error, hasFailed bool)) {
	var streak Streak
	for wait := first; ctxutil.SleepContext(ctx, wait); wait = pause {
		began := time.Now()
		err := p.WithTry(t.Limit(streak, began)).Try(ctx)
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		streak = t.Extend(streak, began, now.Sub(began), err)
		judge(err, err != nil && t.IsOver(streak, now))
	}
}
