package stackdump

import (
	"testing"
	"time"
)

func TestIdle(t *testing.T) {
	// A story describes one sample every two seconds for a minute; it returns the CPU time and output
	// of two ranks.
	type story func(second int) (one, other Usage)
	constant := func(int) (Usage, Usage) { return Usage{time.Hour, 7}, Usage{0, 0} }
	share := func(perSecond time.Duration) story {
		return func(s int) (Usage, Usage) { return Usage{CPUTime: time.Duration(s) * perSecond}, Usage{} }
	}
	for _, tc := range []struct {
		name string
		tell story
		idle time.Duration // at the end
	}{
		{"nothing at all", constant, 60 * time.Second},
		{"a heartbeat's half percent", share(5 * time.Millisecond), 60 * time.Second},
		{"three percent are work", share(30 * time.Millisecond), 0},
		{"it works until the 20th second", func(s int) (Usage, Usage) {
			return Usage{CPUTime: time.Duration(min(s, 20)) * time.Second}, Usage{}
		}, 40 * time.Second},
		{"one line in the 31st second", func(s int) (Usage, Usage) {
			return Usage{}, Usage{Printed: int64(min(max(s-30, 0), 1))}
		}, 28 * time.Second},
		{"the other rank works alone", func(s int) (Usage, Usage) {
			return Usage{}, Usage{CPUTime: time.Duration(s) * time.Second}
		}, 0},
		{"a process of it has ended in the 40th second", func(s int) (Usage, Usage) {
			if s >= 40 {
				return Usage{}, Usage{}
			}
			return Usage{CPUTime: time.Hour}, Usage{}
		}, 20 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			idle, began := IdleTracker{}, time.Now()
			var since time.Time
			for second := 0; second <= 60; second += 2 {
				one, other := tc.tell(second)
				since = idle.AddSample(began.Add(time.Duration(second)*time.Second), Sample{Ranks: map[int]Usage{3: one, 4: other}})
			}
			if got := began.Add(time.Minute).Sub(since); got != tc.idle {
				t.Errorf("idle for %s, want %s", got, tc.idle)
			}
		})
	}
}

// TestIdleChanges verifies that ranks that begin or end count as active, and that nothing is
// assumed about a period without samples.
func TestIdleChanges(t *testing.T) {
	began := time.Now()
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	one, two := map[int]Usage{0: {}}, map[int]Usage{0: {}, 1: {}}
	for _, tc := range []struct {
		name          string
		before, after map[int]Usage
		second        int // of the second sample
		idle          bool
	}{
		{"the same", one, one, 11, true},
		{"a rank has begun", one, two, 11, false},
		{"a rank has ended", two, one, 11, false},
		{"another rank", one, map[int]Usage{1: {}}, 11, false},
		{"all have ended", one, nil, 11, false},
		{"none, still", nil, nil, 11, true},
		{"after a suspension", one, one, 3600, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var idle IdleTracker
			idle.AddSample(at(0), Sample{Ranks: tc.before})
			if since := idle.AddSample(at(tc.second), Sample{Ranks: tc.after}); since.Equal(at(0)) != tc.idle {
				t.Errorf("idle since second %v", since.Sub(began).Seconds())
			}
		})
	}
}

// TestIdleWithoutSteps verifies since when no step has changed, and the minimum timeout that follows from the
// pauses between steps.
func TestIdleWithoutSteps(t *testing.T) {
	began := time.Now()
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	steps := func(seconds ...int) func(second int) int64 {
		return func(second int) (changes int64) {
			for _, s := range seconds {
				if s <= second {
					changes++
				}
			}
			return changes
		}
	}
	for _, tc := range []struct {
		name       string
		count      func(second int) int64
		since      int // at the end, in the 120th second
		minTimeout time.Duration
	}{
		{"no step yet", steps(), 120, 0},
		{"one step", steps(30), 30, time.Minute},
		{"two steps: the startup no longer counts", steps(30, 34), 34, 8 * time.Second},
		{"a long pause, then short ones", steps(30, 80, 82, 84), 84, 100 * time.Second},
		{"steady steps", steps(2, 20, 40, 60, 80, 100, 120), 120, 40 * time.Second},
		{"several steps at once", steps(30, 30, 30), 30, 0},
		{"steps from the beginning", steps(0, 4, 8), 8, 8 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			idle := IdleTracker{}
			var since time.Time
			for second := 0; second <= 120; second += 2 {
				// The rank spins and prints, which does not count.
				ranks := map[int]Usage{0: {CPUTime: time.Duration(second) * time.Second, Printed: int64(second)}}
				since = idle.AddSample(at(second), Sample{ranks, tc.count(second)})
			}
			if !since.Equal(at(tc.since)) || idle.MinTimeout() != tc.minTimeout {
				t.Errorf("no step since second %v, minimum timeout %s", since.Sub(began).Seconds(), idle.MinTimeout())
			}
		})
	}
}
