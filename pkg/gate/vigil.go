package gate

import "time"

// Vigil knows when the next line of a long wait is due. Who tells owns it.
type Vigil struct {
	step  string
	since time.Time
	told  int // lines, of this step
}

// Due tells whether a line is due about what has to end first, and how long that
// has gone on. Where nothing is waited for none is.
func (v *Vigil) Due(lacks []Lack, now time.Time) (waited time.Duration, due bool) {
	step := ""
	if len(lacks) > 0 {
		step = lacks[0].Step
		if len(lacks[0].Ranks) == 0 {
			step += ", of no node" // the framework's count is not the services
		}
	}
	if step != v.step {
		*v = Vigil{step: step, since: now}
	}
	waited = now.Sub(v.since)
	if step == "" || waited < lineAfter(v.told) {
		return waited, false
	}
	for waited >= lineAfter(v.told) { // those that were missed are not made up for
		v.told++
	}
	return waited, true
}

// lineAfter is how long a step has gone on when its nth line is due: soon while
// somebody may be looking, seldom when it takes long. A log that is read the
// next day has a dozen lines an hour.
func lineAfter(n int) time.Duration {
	if soon := []time.Duration{15 * time.Second, 30 * time.Second, time.Minute}; n < len(soon) {
		return soon[n]
	}
	return time.Duration(n-2) * 5 * time.Minute
}
