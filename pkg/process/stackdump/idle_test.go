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
		name       string
		outputOnly bool
		tell       story
		idle       time.Duration // at the end
	}{
		{"nothing at all", false, constant, 60 * time.Second},
		{"a heartbeat's half percent", false, share(5 * time.Millisecond), 60 * time.Second},
		{"three percent are work", false, share(30 * time.Millisecond), 0},
		{"it spins, and only output counts", true, share(time.Second), 60 * time.Second},
		{"it works until the 20th second", false, func(s int) (Usage, Usage) {
			return Usage{CPUTime: time.Duration(min(s, 20)) * time.Second}, Usage{}
		}, 40 * time.Second},
		{"one line in the 31st second", false, func(s int) (Usage, Usage) {
			return Usage{}, Usage{Printed: int64(min(max(s-30, 0), 1))}
		}, 28 * time.Second},
		{"the same where only output counts", true, func(s int) (Usage, Usage) {
			return Usage{}, Usage{Printed: int64(min(max(s-30, 0), 1))}
		}, 28 * time.Second},
		{"the other rank works alone", false, func(s int) (Usage, Usage) {
			return Usage{}, Usage{CPUTime: time.Duration(s) * time.Second}
		}, 0},
		{"a process of it has ended in the 40th second", false, func(s int) (Usage, Usage) {
			if s >= 40 {
				return Usage{}, Usage{}
			}
			return Usage{CPUTime: time.Hour}, Usage{}
		}, 20 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			idle, began := IdleTracker{OutputOnly: tc.outputOnly}, time.Now()
			var since time.Time
			for second := 0; second <= 60; second += 2 {
				one, other := tc.tell(second)
				since = idle.AddSample(began.Add(time.Duration(second)*time.Second), map[int]Usage{3: one, 4: other})
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
			idle.AddSample(at(0), tc.before)
			if since := idle.AddSample(at(tc.second), tc.after); since.Equal(at(0)) != tc.idle {
				t.Errorf("idle since second %v", since.Sub(began).Seconds())
			}
		})
	}
}
