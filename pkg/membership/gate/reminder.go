package gate

import (
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// ReminderSchedule decides when the head logs a line about a long wait. It is not safe for
// concurrent use.
type ReminderSchedule struct {
	firstStep record.Phase
	since     time.Time
	lineCount int // number of lines for this step
}

// CheckDue reports whether a line about the first missing step is due, and how long the wait has
// lasted. Without missing steps none is due.
func (v *ReminderSchedule) CheckDue(lacks []UnmetStep, now time.Time) (waited time.Duration, due bool) {
	step := record.Phase("")
	if len(lacks) > 0 {
		step = lacks[0].Step
		if len(lacks[0].Nodes) == 0 {
			step += ", of no node" // the framework's list of nodes differs from the services that are up
		}
	}
	if step != v.firstStep {
		*v = ReminderSchedule{firstStep: step, since: now}
	}
	waited = now.Sub(v.since)
	if step == "" || waited < reminderAfter(v.lineCount) {
		return waited, false
	}
	for waited >= reminderAfter(v.lineCount) { // missed lines are skipped
		v.lineCount++
	}
	return waited, true
}

// reminderAfter returns the duration of a step at which its nth line is due: soon while a user may
// be watching, rarely when it takes long. A log that is read the next day has a dozen lines an
// hour.
func reminderAfter(n int) time.Duration {
	if soon := []time.Duration{15 * time.Second, 30 * time.Second, time.Minute}; n < len(soon) {
		return soon[n]
	}
	return time.Duration(n-2) * 5 * time.Minute
}
