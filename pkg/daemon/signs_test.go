package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
)

func TestSigns(t *testing.T) {
	const beat = time.Second
	run := func(s *signs, d time.Duration) {
		for range 2 * d / beat {
			time.Sleep(beat / 2)
			s.tick(time.Now())
		}
	}
	for _, tc := range []struct {
		name  string
		story func(*signs)
		quiet time.Duration // -1: it can't be heard
		well  bool
	}{
		{"never connected", func(s *signs) { run(s, beat) }, -1, false},
		{"just connected", func(s *signs) { s.connect(1) }, 0, true},
		{"a beat late", func(s *signs) { s.connect(1); run(s, beat) }, beat, true},
		{"long silent", func(s *signs) { s.connect(1); run(s, 5*beat) }, 5 * beat, false},
		{"heard again", func(s *signs) { s.connect(1); run(s, 5*beat); s.hear(1, false); run(s, beat) }, beat, true},
		{"its share hangs", func(s *signs) { s.connect(1); run(s, 3*beat); s.hear(1, true) }, 3 * beat, false},
		{"gone", func(s *signs) { s.connect(1); run(s, beat); s.part(1, lifeline.Broken) }, -1, false},
		{"back", func(s *signs) { s.connect(1); s.part(1, lifeline.Broken); run(s, 3*beat); s.connect(1) }, 0, true},
		{"we did not run", func(s *signs) { s.connect(1); time.Sleep(9 * beat) }, 0, false},
		{"we run again", func(s *signs) { s.connect(1); time.Sleep(9 * beat); s.tick(time.Now()); run(s, beat) }, beat, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSigns(beat)
				tc.story(s)
				at, heard := s.last(1, time.Now())
				quiet := time.Since(at)
				if !heard {
					quiet = -1
				}
				if quiet != tc.quiet {
					t.Errorf("it is quiet for %s, want %s", quiet, tc.quiet)
				}
				if got := s.well(1, time.Now()); got != tc.well {
					t.Errorf("well: %t, want %t", got, tc.well)
				}
				if s.well(2, time.Now()) {
					t.Error("two are well where one was ever heard of")
				}
			})
		})
	}
}

// The head's own mount is back a moment before those of the others, of which one
// has left by then.
func TestTheHeadCouldNotLook(t *testing.T) {
	const peer = 10 * time.Second
	tempo := health.HeadTempo(peer, 3)
	for _, tc := range []struct {
		name  string
		blind bool
		sick  bool
		lost  int
	}{
		{"all hung", true, true, 0},
		{"the others hung", false, true, 2},
		{"the others said nothing", true, false, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &head{lines: &lines{signs: newSigns(tempo.Beat)}}
				daemons, alive := health.NewLiveness(tempo), map[int]int64{1: 1, 2: 1}
				h.lines.connect(1)
				h.lines.connect(2)
				for began := time.Now(); time.Since(began) < peer; time.Sleep(tempo.Look) {
					h.lines.tick(time.Now())
					hangs := time.Since(began) > tempo.Look
					if hangs && tc.sick {
						h.lines.hear(1, true)
						h.lines.hear(2, true)
					}
					if !hangs || !tc.blind {
						daemons.Look(alive, time.Now())
						h.listen(daemons, alive, time.Now())
					}
				}
				h.lines.part(2, lifeline.Left)
				daemons.Look(alive, time.Now())
				h.listen(daemons, alive, time.Now())
				if got := daemons.Silent(); len(got) != tc.lost {
					t.Errorf("the head takes %v for lost, want %d", got, tc.lost)
				}
			})
		})
	}
}
