package signal

import (
	"testing"
	"time"
)

// TestPollSchedule verifies when the next poll is due. Before each case an hour has passed in a wait,
// and the newest poll has ended a moment ago.
func TestPollSchedule(t *testing.T) {
	const (
		soon    = 10 * time.Millisecond // the shortest pause
		relaxed = relaxedPauses * soon / 2
		rare    = time.Second
		moment  = 100 * time.Millisecond
	)
	poll := func(took time.Duration, result pollResult) func(*pollSchedule, time.Time) time.Time {
		return func(s *pollSchedule, now time.Time) time.Time {
			s.beginPoll()
			result.took = took
			s.endPoll(now.Add(took), result)
			return now.Add(took)
		}
	}
	event := func(change func(*pollSchedule, time.Time)) func(*pollSchedule, time.Time) time.Time {
		return func(s *pollSchedule, now time.Time) time.Time {
			change(s, now)
			return now
		}
	}
	type step = func(*pollSchedule, time.Time) time.Time
	notify := event(func(s *pollSchedule, now time.Time) { s.notify(now, false) })
	once := event(func(s *pollSchedule, now time.Time) { s.notify(now, true) })
	relax := event(func(s *pollSchedule, now time.Time) { s.relax(now) })
	slow := event(func(s *pollSchedule, now time.Time) { s.pace.MaxPause = time.Minute; s.relax(now) })
	speedUp := event(func(s *pollSchedule, now time.Time) { s.speedUp(now) })
	old, answer := poll(0, pollResult{}), pollResult{showsMore: true, allNotified: true}
	failed := poll(0, pollResult{failed: true})
	for _, tc := range []struct {
		name  string
		steps []step
		want  time.Duration // until the next poll
	}{
		{"nothing has happened", nil, rare - moment},
		{"a notification", []step{notify}, 0},
		{"an old listing after it", []step{notify, old}, soon},
		{"an answer to it", []step{notify, poll(0, answer)}, relaxed},
		{"an answer to one of several", []step{notify, poll(0, pollResult{showsMore: true})}, soon},
		{"another one during the poll", []step{
			notify, event(func(s *pollSchedule, _ time.Time) { s.beginPoll() }), notify,
			event(func(s *pollSchedule, now time.Time) { s.endPoll(now, answer) }),
		}, soon},
		{"one poll is enough", []step{once, old}, relaxed},
		{"a new wait", []step{speedUp}, soon - moment},
		{"a new wait after a poll", []step{speedUp, old}, soon},
		{"relaxed", []step{relax}, relaxed},
		{"a faster pace ends the pause", []step{slow, speedUp}, soon - moment},
		{"relaxed after a notification", []step{notify, relax}, 0},
		{"slowed down after a notification", []step{notify, slow}, 0},
		{"a failed poll", []step{failed}, soon},
		{"a failed poll of a slow watch", []step{slow, failed}, soon},
		{"a poll that hung and failed", []step{poll(time.Minute, pollResult{failed: true})}, soon},
		{"a failure after a second of failures", []step{
			failed, func(_ *pollSchedule, now time.Time) time.Time { return now.Add(time.Second) }, failed,
		}, time.Second / 2},
		{"a notification after a long poll", []step{poll(4*moment, pollResult{}), notify}, 4 * moment},
		{"a poll that hung", []step{poll(time.Minute, pollResult{})}, rare},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			s := newPollSchedule(Pace{soon, rare, 2}, func() float64 { return 0 }, now)
			if first := s.next.Sub(now); first != soon {
				t.Errorf("the first poll is due after %s", first)
			}
			now = old(&s, now.Add(time.Hour)).Add(moment)
			for _, do := range tc.steps {
				now = do(&s, now)
			}
			if got := s.next.Sub(now); got != tc.want {
				t.Errorf("the next poll is due after %s, want %s", got, tc.want)
			}
		})
	}
}
