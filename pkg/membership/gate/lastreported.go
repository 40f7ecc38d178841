package gate

import (
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// LastReported has, for each step, the last reason for waiting that a node's event log reports. A
// finished step has no reason.
type LastReported map[record.Phase]string

// RecordEvent updates the reasons from an event.
func (s *LastReported) RecordEvent(word eventlog.EventType, fields eventlog.Fields) {
	step, says := record.PhaseWorkers, fields.Seen // empty for a successful probe
	switch {
	case word == eventlog.ChecksWaiting, word == eventlog.ChecksDone:
		step, says = record.PhaseCheck, fields.Checks
	case word != eventlog.ProbeChanged:
		return
	case record.Phase(fields.Child) == record.PhaseSandbox:
		step = record.PhaseSandbox
	}
	if *s == nil {
		*s = make(LastReported)
	}
	(*s)[step] = says
}
