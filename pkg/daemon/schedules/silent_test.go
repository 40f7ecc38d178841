package schedules

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLifelinesFallSilent lets the network drop all messages after polls have become rare because
// the peer links were healthy: a daemon that receives nothing polls again, and every daemon follows
// the head's end, of whatever kind, in time.
func TestLifelinesFallSilent(t *testing.T) {
	const calm = 30 * time.Second // until the pauses have reached their maximum
	for _, tc := range []struct {
		name   string
		faults []fault
	}{
		{"and the head dies", []fault{{At: calm + time.Millisecond, What: crash}}},
		{"and the job is stopped", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			said, err := os.Create(filepath.Join(t.TempDir(), "said"))
			if err != nil {
				t.Fatal(err)
			}
			defer said.Close()
			stage := stage{t: t, tempDir: t.TempDir(), said: said}
			for seed := range uint64(8) {
				p := plan{
					Seed: seed, Size: 3, Needed: 3, Moods: make([]mood, 3),
					Weather: weather{Latency: 200 * time.Microsecond},
					Attempts: []attemptPlan{{
						Start: time.Millisecond, Late: make([]time.Duration, 3), End: endStop,
						After:  calm + 100*time.Millisecond,
						Faults: append([]fault{{At: calm, What: parted, For: time.Minute}}, tc.faults...),
					}},
				}
				for i := range p.Moods {
					p.Moods[i].Latency = 200 * time.Microsecond
				}
				if v := stage.play(p); v.bad() {
					t.Error(v)
				}
			}
		})
	}
}
