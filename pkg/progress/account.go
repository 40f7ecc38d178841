package progress

import (
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// ratePoints is the number of steps from which a rate is computed.
const ratePoints = 16

// Series has the newest steps of one program. The zero value is ready for use.
type Series struct{ points []point }

// point is a step and the time at which it was reported.
type point struct {
	at   time.Duration
	step float64
}

// Add adds a step. Times must not decrease. A repeated step is ignored, so that its time remains
// that of the first report. A step that is lower than the one before begins the series anew.
func (s *Series) Add(at time.Duration, step float64) {
	switch last, any := s.Last(); {
	case any && step == last:
		return
	case any && step < last:
		s.points = s.points[:0]
	case len(s.points) == ratePoints:
		s.points = append(s.points[:0], s.points[1:]...)
	}
	s.points = append(s.points, point{at, step})
}

// Last returns the newest step. any is false if there is none.
func (s *Series) Last() (step float64, any bool) {
	if len(s.points) == 0 {
		return 0, false
	}
	return s.points[len(s.points)-1].step, true
}

// Rate returns the number of steps per second, over the newest ones, or 0 if it is unknown.
func (s *Series) Rate() float64 {
	if len(s.points) < 2 {
		return 0
	}
	first, last := s.points[0], s.points[len(s.points)-1]
	took := (last.at - first.at).Seconds()
	if took <= 0 {
		return 0
	}
	return (last.step - first.step) / took
}

// Account computes the progress of a job over its attempts.
type Account struct {
	attempt int
	series  Series
	total   record.Progress
	last    point
	// hasRestarted reports that a program has been started again within the attempt. AddRestart has
	// then added what was lost.
	hasRestarted bool
}

// NewAccount returns the account of an attempt. before is the progress up to the previous one; it
// has the zero value in the first.
func NewAccount(before record.Progress, attempt int) *Account {
	a := &Account{attempt: attempt, total: before}
	a.total.Step, a.total.Rate, a.total.Slowest, a.total.Gained = 0, 0, nil, false
	return a
}

// Add adds a step of the job, reported at the given time since the start of the attempt. Times must
// not decrease.
//
// The time between two reports counts as productive as far as the step advanced in it beyond the
// maximum that was reached before, in any attempt. The time until the first report of an attempt is
// not productive, because the program starts, loads its data or repeats steps in it.
func (a *Account) Add(at time.Duration, step float64) {
	before, any := a.series.Last()
	if any && step == before {
		return
	}
	reached := a.total.MaxStep
	switch {
	case !any && a.total.Reports > 0 && !a.hasRestarted:
		a.addLoss(a.total.MaxStep, step, false)
	case any && step > before:
		a.total.Stride = step - before
		share := max(0, step-max(before, reached)) / (step - before)
		a.total.Productive += time.Duration(share * float64(at-a.last.at))
	}
	if step > reached || a.total.Reports == 0 {
		a.total.MaxStep, a.total.Gained = max(step, reached), true
	}
	a.total.Reports++
	a.series.Add(at, step)
	a.last = point{at, step}
}

// ResetGained begins to determine anew whether the job gains a step: its program starts again.
func (a *Account) ResetGained() { a.total.Gained = false }

// AddRestart adds the steps that a program of the job repeats that was started again within the
// attempt: it had reached a step, and first is the first one that it reports. The time until the next
// step is not productive.
func (a *Account) AddRestart(reached, first float64) {
	a.addLoss(reached, first, true)
	a.series, a.hasRestarted = Series{}, true
}

// addLoss adds the steps that a program repeats after a restart, of which first is the first one that
// it reports. It has resumed before that, by the usual distance between two reports.
func (a *Account) addLoss(reached, first float64, inAttempt bool) {
	stride := a.total.Stride
	if stride == 0 {
		stride = 1
	}
	a.total.Lost = append(a.total.Lost, record.LostSteps{
		Attempt: a.attempt, InAttempt: inAttempt, Reached: reached, Resumed: first,
		Steps: max(0, reached-max(0, first-stride)),
	})
}

// Summary returns the progress of the job. elapsed is the time since its start, including earlier
// attempts and the time between them.
func (a *Account) Summary(elapsed time.Duration) record.Progress {
	p := a.total
	p.Step, _ = a.series.Last()
	p.Rate, p.Elapsed = a.series.Rate(), elapsed
	if elapsed > 0 {
		p.Goodput = min(1, p.Productive.Seconds()/elapsed.Seconds())
	}
	return p
}
