package signal

import "time"

// pollSchedule decides when a [Watch] polls. It has no clock, lock or goroutine of its own: its
// methods get the present time.
//
// A pause is at least as long as the poll before it took, unless that hung for long, which does not
// predict the duration of others. The pauses grow with the time since the last event that made a
// change likely: a new wait, a notification or a failure.
type pollSchedule struct {
	pace    Pace
	initial Pace           // the pace at first, which [Watch.SlowDown] does not change
	jitter  func() float64 // as in [Access]

	next      time.Time // when the next poll is due
	earliest  time.Time // no poll comes earlier than this, even after a notification
	waitBegan time.Time // when the newest wait began; pauses grow from then on
	lastEnd   time.Time // when the newest poll ended
	// since the newest poll began
	notified    bool // a change was notified
	pollingOnce bool // one poll was requested, after which they may be rare
	// the same at the beginning of the newest poll
	answers, isOnce bool
	firstFailure    time.Time // of the polls since the last success; zero if that succeeded
}

type pollResult struct {
	took   time.Duration
	failed bool
	// showsMore reports that the poll shows more names than the one before.
	showsMore bool
	// allNotified reports whether each new name is notified at present.
	allNotified bool
}

func newPollSchedule(pace Pace, jitter func() float64, now time.Time) pollSchedule {
	s := pollSchedule{pace: pace, initial: pace, jitter: jitter, waitBegan: now, lastEnd: now}
	s.next = now.Add(s.pause(now, 0))
	return s
}

func (s *pollSchedule) pause(now time.Time, took time.Duration) time.Duration {
	return s.pace.nextPause(now.Sub(s.waitBegan), took, s.jitter())
}

func (s *pollSchedule) beginPoll() {
	s.answers, s.isOnce = s.notified, s.pollingOnce
	s.notified, s.pollingOnce = false, false
}

// endPoll records the result of a poll, and sets the time of the next one.
//
// A poll that answers a notification, by a new name, is not repeated soon: the next change will be
// notified, too. A failed poll is repeated soon, even if polls have become rare, so that a temporary
// error is not mistaken for an unresponsive file system. The pauses then grow with the time since
// the first failure; the time for which that poll hung does not count.
func (s *pollSchedule) endPoll(now time.Time, result pollResult) {
	took := min(result.took, s.pace.MaxPause, s.initial.MaxPause)
	s.lastEnd, s.earliest = now, now.Add(took)
	if result.failed {
		if s.firstFailure.IsZero() {
			s.firstFailure = now
		}
		s.next = now.Add(s.initial.nextPause(now.Sub(s.firstFailure), 0, s.jitter()))
		return
	}
	s.firstFailure = time.Time{}
	hasAnswer := s.answers && result.showsMore && result.allNotified
	if !s.notified && (s.isOnce || hasAnswer) {
		s.lengthenPauses(now)
	}
	s.next = now.Add(s.pause(now, took))
}

// advance moves the next poll to the given time if it was due later. After each poll there is a
// rest as long as the poll took: the arrival of a thousand nodes must not make the head list a
// thousand times.
func (s *pollSchedule) advance(at time.Time) {
	if at.Before(s.earliest) {
		at = s.earliest
	}
	if at.Before(s.next) {
		s.next = at
	}
}

// notify records a notified change, which is to be polled at the given time.
func (s *pollSchedule) notify(at time.Time, once bool) {
	s.waitBegan, s.notified = at, true
	s.pollingOnce = s.pollingOnce || once
	s.advance(at)
}

// speedUp makes the polls come as often as at the start of a wait.
func (s *pollSchedule) speedUp(now time.Time) {
	s.waitBegan = now
	s.advance(s.lastEnd.Add(s.pause(now, 0)))
}

// relax lengthens the pauses, beginning with the present one, as if a wait had lasted for a while
// already. If a change was notified that no poll has shown yet, the next poll still comes soon.
func (s *pollSchedule) relax(now time.Time) {
	if s.notified {
		return
	}
	s.waitBegan = now
	s.lengthenPauses(now)
	s.next = now.Add(s.pause(now, max(0, s.earliest.Sub(s.lastEnd))))
}

// relaxedPauses is the assumed duration of a wait after relax, in multiples of the shortest pause.
const relaxedPauses = 40

// lengthenPauses makes the pauses as long as if a wait had lasted for a while already.
func (s *pollSchedule) lengthenPauses(now time.Time) {
	if began := now.Add(-relaxedPauses * s.pace.MinPause); began.Before(s.waitBegan) {
		s.waitBegan = began
	}
}
