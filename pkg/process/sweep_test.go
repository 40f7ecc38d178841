package process

import (
	"testing"
	"time"
)

func TestRest(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name        string
		pause, took time.Duration
		empty       int
		want        time.Duration
	}{
		{"a short look", 16 * ms, ms, 0, 16 * ms},
		{"a look at thousands", 4 * ms, 30 * ms, 0, 120 * ms},
		{"a look on a machine that is busy", 4 * ms, 700 * ms, 0, maxSlowPause},
		{"before the last look", 4 * ms, 30 * ms, 1, 4 * ms},
		{"before the last look, on a machine that is busy", 64 * ms, 700 * ms, 1, 64 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := pauseAfterScan(tc.pause, tc.took, tc.empty); got != tc.want {
				t.Errorf("the next look comes after %s, want %s", got, tc.want)
			}
		})
	}
}
