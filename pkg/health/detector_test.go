package health

import (
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/peerlink"
)

var tempo = HeadHeartbeatTiming(16*time.Second, 1) // heartbeat 2s, silence 10s, poll 1.6s

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
		{"one of two", slices.Concat(steady(6, beats{1: 1, 2: 1}), steady(6, beats{1: 1, 2: 2})),
			[]int{1}, 11 * time.Second},
		{"recovered in time", slices.Concat(steady(10, beats{1: 1}), steady(10, beats{1: 2})), nil, 9 * time.Second},
		{"recovered late", slices.Concat(steady(15, beats{1: 1}), steady(1, beats{1: 2})), nil, 0},
		{"several beats between two looks", slices.Concat(steady(5, beats{1: 1}),
			steady(5, beats{1: 4})), nil, 4 * time.Second},
		{"not expected any more", slices.Concat(steady(15, beats{1: 1}), steady(1, beats{})), nil, 0},
		{"expected again", slices.Concat(steady(15, beats{1: 1}), steady(1, beats{}),
			steady(3, beats{1: 1})), nil, 2 * time.Second},
		{"a peer that comes late", slices.Concat(steady(5, beats{2: 1}),
			steady(8, beats{1: 1, 2: 2})), nil, 7 * time.Second},
		{"an older listing is no sign of life", slices.Concat(
			steady(5, beats{1: 4}), steady(1, beats{1: 3}), steady(2, beats{1: 4}),
			steady(1, beats{1: 0}), steady(2, beats{1: 4})), []int{1}, 10 * time.Second},
		{"we did not look for long", slices.Concat(steady(5, beats{1: 1}),
			[]seen{{time.Hour, beats{1: 1}}}), nil, 4*time.Second + tempo.MaxPollInterval},
		{"we did not look for long, and then it stays silent", slices.Concat(
			steady(5, beats{1: 1}), []seen{{time.Hour, beats{1: 1}}}, steady(5, beats{1: 1})),
			[]int{1}, 9*time.Second + tempo.MaxPollInterval},
		{"a look that came a little late", slices.Concat(steady(5, beats{1: 1}),
			[]seen{{2 * tempo.MaxPollInterval, beats{1: 1}}}), nil, 4*time.Second + 2*tempo.MaxPollInterval},
		{"a look that came later than that", slices.Concat(steady(5, beats{1: 1}),
			[]seen{{5 * tempo.MaxPollInterval / 2, beats{1: 1}}}), nil, 4*time.Second + tempo.MaxPollInterval},
		{"every look is slow: few are no proof",
			slices.Repeat([]seen{{10 * time.Second, beats{1: 1}}}, 7), nil, 6 * tempo.MaxPollInterval},
		{"every look is slow: many are", slices.Repeat([]seen{{10 * time.Second, beats{1: 1}}}, 8),
			[]int{1}, 7 * tempo.MaxPollInterval},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, now := NewDetector(tempo, nil), time.Now()
			var got []int
			for _, look := range tc.looks {
				now = now.Add(look.after)
				got = l.RecordPoll(look.beats, now)
			}
			if !slices.Equal(got, tc.silent) {
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
	tempo := HeartbeatTiming{HeartbeatInterval: 2 * time.Second, SilenceTimeout: 10 * time.Second,
		MaxPollInterval: time.Second}
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
			began := time.Now()
			links := NewLinks(LinksConfig{Interval: time.Second}, began)
			l := NewDetector(tempo, links)
			links.SetConnected(tc.rank, began.Add(tc.heard))
			var got []int
			for second := range 12 {
				now := began.Add(time.Duration(second) * time.Second)
				links.RecordTick(now)
				got = l.RecordPoll(map[int]int64{1: 1}, now)
			}
			if !slices.Equal(got, tc.silent) {
				t.Errorf("silent: %v, want %v", got, tc.silent)
			}
			if l.SilenceOf(1) < 0 || l.SilenceOf(7) != 0 {
				t.Errorf("quiet: %s and %s", l.SilenceOf(1), l.SilenceOf(7))
			}
		})
	}
}

// runTo records that this daemon runs until the given time.
func runTo(links *Links, from, to time.Time) {
	for ; !from.After(to); from = from.Add(links.Interval / 2) {
		links.RecordTick(from)
	}
}

// TestTheHeadCouldNotLook simulates hanging mounts. The head's own mount recovers a moment before
// those of the others, one of which has left by then.
func TestTheHeadCouldNotLook(t *testing.T) {
	const peer = 10 * time.Second
	tempo := HeadHeartbeatTiming(peer, 3)
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
			began := time.Now()
			links, alive, now := NewLinks(LinksConfig{Interval: tempo.HeartbeatInterval}, began),
				map[int]int64{1: 1, 2: 1}, began
			l := NewDetector(tempo, links)
			links.SetConnected(1, began)
			links.SetConnected(2, began)
			for ; now.Sub(began) < peer; now = now.Add(tempo.MaxPollInterval) {
				links.RecordTick(now)
				hangs := now.Sub(began) > tempo.MaxPollInterval
				if hangs && tc.sick {
					links.RecordHeartbeat(1, true, now)
					links.RecordHeartbeat(2, true, now)
				}
				if !hangs || !tc.blind {
					l.RecordPoll(alive, now)
				}
			}
			links.SetDisconnected(2, peerlink.Goodbye)
			if got := l.RecordPoll(alive, now); len(got) != tc.lost {
				t.Errorf("the head takes %v for lost, want %d", got, tc.lost)
			}
		})
	}
}
