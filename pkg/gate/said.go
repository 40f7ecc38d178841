package gate

import (
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// LastReported has, for each step, the last reason for waiting that a node's event log reports. A
// finished step has no reason.
type LastReported map[string]string

// RecordEvent updates the reasons from an event.
func (s *LastReported) RecordEvent(word trail.EventType, fields trail.Fields) {
	step, says := StepWorkers, fields.Seen // empty for a successful probe
	switch {
	case word == trail.ChecksWaiting, word == trail.ChecksDone:
		step, says = StepCheck, fields.Checks
	case word != trail.ProbeChanged:
		return
	case fields.Child == signal.StateSandboxReady:
		step = StepSandbox
	}
	if *s == nil {
		*s = make(LastReported)
	}
	(*s)[step] = says
}
