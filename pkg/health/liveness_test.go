package health

import (
	"slices"
	"testing"
	"time"
)

var tempo = HeadTempo(16*time.Second, 1) // beat 2s, silent 10s, look 1.6s

func TestTempo(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
		for _, size := range []int{1, 5, 8, 16, 70, 256, 4096} {
			head, worker := HeadTempo(timeout, size), WorkerTempo(timeout, size)
			// A death is seen by the head within the time: by the latest beat
			// and one look that comes late.
			if worst := head.Silent + 2*head.Look; worst > timeout {
				t.Errorf("%d nodes: within %s a death may take the head %s to see", size, timeout, worst)
			}
			if head.Silent < 2*worker.Beat || worker.Silent < 5*head.Beat {
				t.Errorf("%d nodes: one late beat makes a peer lost: %v, %v", size, head, worker)
			}
			few := size <= 8
			if worst := head.Silent + 2*head.Look + worker.Look; few && worst > timeout {
				t.Errorf("%d nodes: within %s a death may take %s to end all", size, timeout, worst)
			}
			// A look is up to a quarter sooner.
			calls := 1/worker.Beat.Seconds() + 3/(0.875*worker.Look.Seconds())
			if most := 0.5 * 10 / timeout.Seconds(); size >= 70 && calls > most {
				t.Errorf("%d nodes: each makes %.2f calls a second, want %.2f", size, calls, most)
			}
		}
	}
}

// seen is one look, after a pause.
type seen struct {
	after time.Duration
	beats map[int]int64
}

func TestLiveness(t *testing.T) {
	type beats = map[int]int64
	steady := func(looks int, b beats) (all []seen) {
		for range looks {
			all = append(all, seen{time.Second, b})
		}
		return all
	}
	for _, tc := range []struct {
		name   string
		looks  []seen
		silent []int
		quiet  time.Duration // of rank 1
	}{
		{"no look yet", nil, nil, 0},
		{"a first look", steady(1, beats{1: 1}), nil, 0},
		{"first beats count from when they are seen", steady(1, beats{1: 99999}), nil, 0},
		{"nearly silent", steady(10, beats{1: 1}), nil, 9 * time.Second},
		{"silent", steady(11, beats{1: 1}), []int{1}, 10 * time.Second},
		{"joined, and never a beat", steady(11, beats{1: 0}), []int{1}, 10 * time.Second},
		{"two silent, in order", steady(11, beats{7: 1, 1: 4}), []int{1, 7}, 10 * time.Second},
		{"one of two", slices.Concat(steady(6, beats{1: 1, 2: 1}), steady(6, beats{1: 1, 2: 2})), []int{1}, 11 * time.Second},
		{"recovered in time", slices.Concat(steady(10, beats{1: 1}), steady(10, beats{1: 2})), nil, 9 * time.Second},
		{"recovered late", slices.Concat(steady(15, beats{1: 1}), steady(1, beats{1: 2})), nil, 0},
		{"several beats between two looks", slices.Concat(steady(5, beats{1: 1}), steady(5, beats{1: 4})), nil, 4 * time.Second},
		{"not expected any more", slices.Concat(steady(15, beats{1: 1}), steady(1, beats{})), nil, 0},
		{"expected again", slices.Concat(steady(15, beats{1: 1}), steady(1, beats{}), steady(3, beats{1: 1})), nil, 2 * time.Second},
		{"a peer that comes late", slices.Concat(steady(5, beats{2: 1}), steady(8, beats{1: 1, 2: 2})), nil, 7 * time.Second},
		{"an older listing is no sign of life", slices.Concat(
			steady(5, beats{1: 4}), steady(1, beats{1: 3}), steady(2, beats{1: 4}), steady(1, beats{1: 0}), steady(2, beats{1: 4})), []int{1}, 10 * time.Second},
		{"we did not look for long", slices.Concat(steady(5, beats{1: 1}), []seen{{time.Hour, beats{1: 1}}}), nil, 4*time.Second + tempo.Look},
		{"we did not look for long, and then it stays silent", slices.Concat(
			steady(5, beats{1: 1}), []seen{{time.Hour, beats{1: 1}}}, steady(5, beats{1: 1})), []int{1}, 9*time.Second + tempo.Look},
		{"a look that came a little late", slices.Concat(steady(5, beats{1: 1}), []seen{{2 * tempo.Look, beats{1: 1}}}), nil, 4*time.Second + 2*tempo.Look},
		{"a look that came later than that", slices.Concat(steady(5, beats{1: 1}), []seen{{5 * tempo.Look / 2, beats{1: 1}}}), nil, 4*time.Second + tempo.Look},
		{"every look is slow: few are no proof", slices.Repeat([]seen{{10 * time.Second, beats{1: 1}}}, 7), nil, 6 * tempo.Look},
		{"every look is slow: many are", slices.Repeat([]seen{{10 * time.Second, beats{1: 1}}}, 8), []int{1}, 7 * tempo.Look},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, now := NewLiveness(tempo), time.Now()
			for _, look := range tc.looks {
				now = now.Add(look.after)
				l.Look(look.beats, now)
			}
			if got := l.Silent(); !slices.Equal(got, tc.silent) {
				t.Errorf("silent: %v, want %v", got, tc.silent)
			}
			if got := l.Quiet(1); got != tc.quiet {
				t.Errorf("rank 1 is quiet for %s, want %s", got, tc.quiet)
			}
			if got := l.Quiet(99); got != 0 {
				t.Errorf("a peer that nobody knows is quiet for %s", got)
			}
		})
	}
}

func TestHear(t *testing.T) {
	tempo := Tempo{Beat: 2 * time.Second, Silent: 10 * time.Second, Look: time.Second}
	for _, tc := range []struct {
		name   string
		rank   int
		heard  time.Duration // after the first look
		silent []int
	}{
		{"lately", 1, 5 * time.Second, nil},
		{"long ago", 1, time.Second, []int{1}},
		{"before its beat was seen", 1, -time.Hour, []int{1}},
		{"after the look", 1, time.Hour, nil},
		{"of a peer that nobody expects", 7, 5 * time.Second, []int{1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, began := NewLiveness(tempo), time.Now()
			for second := range 12 {
				l.Look(map[int]int64{1: 1}, began.Add(time.Duration(second)*time.Second))
				l.Hear(tc.rank, began.Add(tc.heard))
			}
			if got := l.Silent(); !slices.Equal(got, tc.silent) {
				t.Errorf("silent: %v, want %v", got, tc.silent)
			}
			if l.Quiet(1) < 0 || l.Quiet(7) != 0 {
				t.Errorf("quiet: %s and %s", l.Quiet(1), l.Quiet(7))
			}
		})
	}
}

// Who is heard is looked at seldom: what lies between two looks counts.
func TestHeardIsNotExcused(t *testing.T) {
	tempo := Tempo{Beat: 2 * time.Second, Silent: 10 * time.Second, Look: time.Second}
	l, now := NewLiveness(tempo), time.Now()
	last := now.Add(35 * time.Second)
	l.Look(map[int]int64{1: 1, 2: 1}, now)
	l.Hear(1, now)
	l.Look(map[int]int64{1: 1, 2: 1}, now.Add(40*time.Second))
	l.Hear(1, last)
	if got := l.Quiet(1); got != 5*time.Second {
		t.Errorf("who was heard 5 s ago is quiet for %s", got)
	}
	if got := l.Quiet(2); got != tempo.Look {
		t.Errorf("who can't be heard is quiet for %s after a long time without looks", got)
	}
}

// A share that hangs for all is back for one before the others: of the time in
// which we could not look we hold nothing against who says that it can't, once.
func TestSickWhileWeAreBlind(t *testing.T) {
	tempo := Tempo{Beat: 2 * time.Second, Silent: 10 * time.Second, Look: time.Second}
	for _, tc := range []struct {
		name   string
		gap    time.Duration // before the last look but one
		after  time.Duration // before the last
		excuse bool
		quiet  time.Duration
		silent []int
	}{
		{"we were blind, and it says why", 15 * time.Second, time.Second, true, 2 * time.Second, nil},
		{"we were blind, and it says nothing", 15 * time.Second, time.Second, false, 16 * time.Second, []int{1}},
		{"we were blind, and it stays sick", 15 * time.Second, 10 * time.Second, true, 11 * time.Second, []int{1}},
		{"we could look", tempo.Look, time.Second, true, time.Second + tempo.Look, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, now := NewLiveness(tempo), time.Now()
			heard := now.Add(time.Second)
			look := func(gap time.Duration, excuse bool) {
				now = now.Add(gap)
				l.Look(map[int]int64{1: 1}, now)
				l.Hear(1, heard)
				if excuse {
					l.Excuse(1)
					l.Excuse(1)
					l.Excuse(7)
				}
			}
			look(0, false)
			look(time.Second, false)
			look(tc.gap, tc.excuse)
			for range tc.after / tempo.Look {
				look(tempo.Look, tc.excuse)
			}
			if got := l.Quiet(1); got != tc.quiet {
				t.Errorf("it is quiet for %s, want %s", got, tc.quiet)
			}
			if got := l.Silent(); !slices.Equal(got, tc.silent) {
				t.Errorf("silent: %v, want %v", got, tc.silent)
			}
		})
	}
}
