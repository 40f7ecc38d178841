package peerlink

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSigns(t *testing.T) {
	const beat = time.Second
	run := func(s *Liveness, d time.Duration) {
		for range 2 * d / beat {
			time.Sleep(beat / 2)
			s.RecordTick(time.Now())
		}
	}
	for _, tc := range []struct {
		name  string
		story func(*Liveness)
		quiet time.Duration // -1: it cannot be observed
		well  bool
	}{
		{"never connected", func(s *Liveness) { run(s, beat) }, -1, false},
		{"just connected", func(s *Liveness) { s.SetConnected(1) }, 0, true},
		{"a beat late", func(s *Liveness) { s.SetConnected(1); run(s, beat) }, beat, true},
		{"long silent", func(s *Liveness) { s.SetConnected(1); run(s, 5*beat) }, 5 * beat, false},
		{"heard again", func(s *Liveness) { s.SetConnected(1); run(s, 5*beat); s.RecordHeartbeat(1, false); run(s, beat) }, beat, true},
		{"its share hangs", func(s *Liveness) { s.SetConnected(1); run(s, 3*beat); s.RecordHeartbeat(1, true) }, 3 * beat, false},
		{"gone", func(s *Liveness) { s.SetConnected(1); run(s, beat); s.SetDisconnected(1, Broken) }, -1, false},
		{"back", func(s *Liveness) { s.SetConnected(1); s.SetDisconnected(1, Broken); run(s, 3*beat); s.SetConnected(1) }, 0, true},
		{"we did not run", func(s *Liveness) { s.SetConnected(1); time.Sleep(9 * beat) }, 0, false},
		{"we run again", func(s *Liveness) { s.SetConnected(1); time.Sleep(9 * beat); s.RecordTick(time.Now()); run(s, beat) }, beat, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewLiveness(beat)
				tc.story(s)
				at, heard := s.LastHeartbeat(1, time.Now())
				quiet := time.Since(at)
				if !heard {
					quiet = -1
				}
				if quiet != tc.quiet {
					t.Errorf("it is quiet for %s, want %s", quiet, tc.quiet)
				}
				if got := s.AllOnTime(1, time.Now()); got != tc.well {
					t.Errorf("well: %t, want %t", got, tc.well)
				}
				if s.AllOnTime(2, time.Now()) {
					t.Error("two are well where one was ever heard of")
				}
			})
		})
	}
}
