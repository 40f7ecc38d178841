package health

import (
	"slices"
	"testing"
	"time"
)

var tempo = HeadHeartbeatTiming(16*time.Second, 1) // heartbeat 2s, silence 10s, poll 1.6s

func TestTempo(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
		for _, size := range []int{1, 5, 8, 16, 70, 256, 4096} {
			head, worker := HeadHeartbeatTiming(timeout, size), WorkerHeartbeatTiming(timeout, size)
			// The head must detect a death within this time: the latest heartbeat and one late poll.
			if worst := head.SilenceTimeout + 2*head.MaxPollInterval; worst > timeout {
				t.Errorf("%d nodes: within %s a death may take the head %s to see", size, timeout, worst)
			}
			if head.SilenceTimeout < 2*worker.HeartbeatInterval || worker.SilenceTimeout < 5*head.HeartbeatInterval {
				t.Errorf("%d nodes: one late beat makes a peer lost: %v, %v", size, head, worker)
			}
			few := size <= 8
			if worst := head.SilenceTimeout + 2*head.MaxPollInterval + worker.MaxPollInterval; few && worst > timeout {
				t.Errorf("%d nodes: within %s a death may take %s to end all", size, timeout, worst)
			}
			// A poll comes up to a quarter earlier.
			calls := 1/worker.HeartbeatInterval.Seconds() + 3/(0.875*worker.MaxPollInterval.Seconds())
			if most := 0.5 * 10 / timeout.Seconds(); size >= 70 && calls > most {
				t.Errorf("%d nodes: each makes %.2f calls a second, want %.2f", size, calls, most)
			}
		}
	}
}

// seen is one poll and the pause before it.
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
		quiet  time.Duration // of node 1
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
		{"we did not look for long", slices.Concat(steady(5, beats{1: 1}), []seen{{time.Hour, beats{1: 1}}}), nil, 4*time.Second + tempo.MaxPollInterval},
		{"we did not look for long, and then it stays silent", slices.Concat(
			steady(5, beats{1: 1}), []seen{{time.Hour, beats{1: 1}}}, steady(5, beats{1: 1})), []int{1}, 9*time.Second + tempo.MaxPollInterval},
		{"a look that came a little late", slices.Concat(steady(5, beats{1: 1}), []seen{{2 * tempo.MaxPollInterval, beats{1: 1}}}), nil, 4*time.Second + 2*tempo.MaxPollInterval},
		{"a look that came later than that", slices.Concat(steady(5, beats{1: 1}), []seen{{5 * tempo.MaxPollInterval / 2, beats{1: 1}}}), nil, 4*time.Second + tempo.MaxPollInterval},
		{"every look is slow: few are no proof", slices.Repeat([]seen{{10 * time.Second, beats{1: 1}}}, 7), nil, 6 * tempo.MaxPollInterval},
		{"every look is slow: many are", slices.Repeat([]seen{{10 * time.Second, beats{1: 1}}}, 8), []int{1}, 7 * tempo.MaxPollInterval},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, now := NewLiveness(tempo), time.Now()
			for _, look := range tc.looks {
				now = now.Add(look.after)
				l.RecordPoll(look.beats, now)
			}
			if got := l.LostPeers(); !slices.Equal(got, tc.silent) {
				t.Errorf("silent: %v, want %v", got, tc.silent)
			}
			if got := l.SilenceOf(1); got != tc.quiet {
				t.Errorf("node 1 is quiet for %s, want %s", got, tc.quiet)
			}
			if got := l.SilenceOf(99); got != 0 {
				t.Errorf("a peer that nobody knows is quiet for %s", got)
			}
		})
	}
}

func TestHear(t *testing.T) {
	tempo := HeartbeatTiming{HeartbeatInterval: 2 * time.Second, SilenceTimeout: 10 * time.Second, MaxPollInterval: time.Second}
	for _, tc := range []struct {
		name   string
		rank   int
		heard  time.Duration // after the first poll
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
				l.RecordPoll(map[int]int64{1: 1}, began.Add(time.Duration(second)*time.Second))
				l.RecordSignOfLife(tc.rank, began.Add(tc.heard))
			}
			if got := l.LostPeers(); !slices.Equal(got, tc.silent) {
				t.Errorf("silent: %v, want %v", got, tc.silent)
			}
			if l.SilenceOf(1) < 0 || l.SilenceOf(7) != 0 {
				t.Errorf("quiet: %s and %s", l.SilenceOf(1), l.SilenceOf(7))
			}
		})
	}
}

// TestHeardIsNotExcused verifies that a peer that is observed by other means and rarely polled gets
// no excuse: signs of life between two polls count.
func TestHeardIsNotExcused(t *testing.T) {
	tempo := HeartbeatTiming{HeartbeatInterval: 2 * time.Second, SilenceTimeout: 10 * time.Second, MaxPollInterval: time.Second}
	l, now := NewLiveness(tempo), time.Now()
	last := now.Add(35 * time.Second)
	l.RecordPoll(map[int]int64{1: 1, 2: 1}, now)
	l.RecordSignOfLife(1, now)
	l.RecordPoll(map[int]int64{1: 1, 2: 1}, now.Add(40*time.Second))
	l.RecordSignOfLife(1, last)
	if got := l.SilenceOf(1); got != 5*time.Second {
		t.Errorf("who was heard 5 s ago is quiet for %s", got)
	}
	if got := l.SilenceOf(2); got != tempo.MaxPollInterval {
		t.Errorf("who can't be heard is quiet for %s after a long time without looks", got)
	}
}

// TestSickWhileWeAreBlind verifies the excuse after a hang of the shared file system for all nodes,
// if it ends for one node before the others: time in which this node could not poll does not count
// against a peer that reports a hang, once.
func TestSickWhileWeAreBlind(t *testing.T) {
	tempo := HeartbeatTiming{HeartbeatInterval: 2 * time.Second, SilenceTimeout: 10 * time.Second, MaxPollInterval: time.Second}
	for _, tc := range []struct {
		name   string
		gap    time.Duration // before the last poll but one
		after  time.Duration // before the last poll
		excuse bool
		quiet  time.Duration
		silent []int
	}{
		{"we were blind, and it says why", 15 * time.Second, time.Second, true, 2 * time.Second, nil},
		{"we were blind, and it says nothing", 15 * time.Second, time.Second, false, 16 * time.Second, []int{1}},
		{"we were blind, and it stays sick", 15 * time.Second, 10 * time.Second, true, 11 * time.Second, []int{1}},
		{"we could look", tempo.MaxPollInterval, time.Second, true, time.Second + tempo.MaxPollInterval, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, now := NewLiveness(tempo), time.Now()
			heard := now.Add(time.Second)
			look := func(gap time.Duration, excuse bool) {
				now = now.Add(gap)
				l.RecordPoll(map[int]int64{1: 1}, now)
				l.RecordSignOfLife(1, heard)
				if excuse {
					l.ExcuseStall(1)
					l.ExcuseStall(1)
					l.ExcuseStall(7)
				}
			}
			look(0, false)
			look(time.Second, false)
			look(tc.gap, tc.excuse)
			for range tc.after / tempo.MaxPollInterval {
				look(tempo.MaxPollInterval, tc.excuse)
			}
			if got := l.SilenceOf(1); got != tc.quiet {
				t.Errorf("it is quiet for %s, want %s", got, tc.quiet)
			}
			if got := l.LostPeers(); !slices.Equal(got, tc.silent) {
				t.Errorf("silent: %v, want %v", got, tc.silent)
			}
		})
	}
}
