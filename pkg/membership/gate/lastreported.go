package gate

import (
	"github.com/bringupd/bringupd/pkg/eventlog"
)

// LastReported has, for each step, the last reason for waiting that a node's event log reports. A
// finished step has no reason.
type LastReported map[string]string

// RecordEvent updates the reasons from an event.
func (s *LastReported) RecordEvent(word eventlog.EventType, fields eventlog.Fields) {
	step, says := StepWorkers, fields.Seen // empty for a successful probe
	switch {
	case word == eventlog.ChecksWaiting, word == eventlog.ChecksDone:
		step, says = StepCheck, fields.Checks
	case word != eventlog.ProbeChanged:
		return
	case fields.Child == StepSandbox:
		step = StepSandbox
	}
	if *s == nil {
		*s = make(LastReported)
	}
	(*s)[step] = says
}
