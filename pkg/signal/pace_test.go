package signal

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestPaceNext(t *testing.T) {
	pace := Pace{MinPause: 2 * time.Millisecond, MaxPause: time.Second, Divisor: 2}
	for _, tc := range []struct {
		name         string
		waited, look time.Duration
		most         time.Duration // three quarters of it are the minimum
	}{
		{"the first look", 0, 0, 2 * time.Millisecond},
		{"a wait that has hardly begun", 4 * time.Millisecond, 0, 2 * time.Millisecond},
		{"half of the wait", 100 * time.Millisecond, 0, 50 * time.Millisecond},
		{"a slow share", 0, 100 * time.Millisecond, 100 * time.Millisecond},
		{"a slow share, a long wait", time.Second, 10 * time.Millisecond, 500 * time.Millisecond},
		{"a long wait", time.Hour, 0, time.Second},
		{"a look as long as the steady pause", 0, time.Second, time.Second},
		{"a look that hung", 0, time.Minute, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := make(map[time.Duration]bool)
			for range 1000 {
				got := pace.nextPause(tc.waited, tc.look, rand.Float64())
				if got > tc.most || got < tc.most*3/4-1 {
					t.Fatalf("next(%s, %s) = %s, want %s or up to a quarter less", tc.waited, tc.look, got, tc.most)
				}
				seen[got] = true
			}
			if len(seen) < 100 {
				t.Errorf("1000 daemons would look at %d moments only", len(seen))
			}
		})
	}
}

// TestPaceCostOfAWait verifies that a wait of any length needs few polls, and that a change is
// detected after a delay proportional to the time waited so far.
func TestPaceCostOfAWait(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pace  Pace
		wait  time.Duration
		looks int
	}{
		{"a worker of few, ten milliseconds", WorkerPace(8), 10 * time.Millisecond, 4},
		{"a worker of few, a second", WorkerPace(8), time.Second, 17},
		{"a worker of few, a minute", WorkerPace(8), time.Minute, 96},
		{"a worker of many, a second", WorkerPace(4096), time.Second, 2},
		{"a worker of many, a minute", WorkerPace(4096), time.Minute, 24},
		{"the head, a second", HeadPace, time.Second, 45},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var now time.Duration
			looks := 0
			for now < tc.wait {
				now += tc.pace.nextPause(now, 0, rand.Float64())
				looks++
			}
			if looks > tc.looks {
				t.Errorf("%d looks in %s, want %d at most", looks, tc.wait, tc.looks)
			}
			if late := now - tc.wait; late > max(tc.wait/time.Duration(tc.pace.Divisor), tc.pace.MinPause) {
				t.Errorf("a change after %s is seen %s late", tc.wait, late)
			}
		})
	}
}

func TestWorkerPace(t *testing.T) {
	for _, size := range []int{1, 8, 256, 4096, 100_000} {
		pace := WorkerPace(size)
		if pace.MinPause < minPause || pace.MaxPause < maxPause || pace.MaxPause < pace.MinPause {
			t.Errorf("%d nodes: %v", size, pace)
		}
		if first, later := float64(size)/pace.MinPause.Seconds(),
			float64(size)/pace.MaxPause.Seconds(); size > 100 && (first > 4001 || later > 1001) {
			t.Errorf("%d nodes look %.0f times a second at first, and %.0f later", size, first, later)
		}
	}
	if WorkerPace(8) != WorkerPace(1) {
		t.Errorf("8 nodes: %v, want the pace of one", WorkerPace(8))
	}
}
