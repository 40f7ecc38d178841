package gate

import (
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// Said has, for each step, the last reason for waiting that a node's event log reports. A finished
// step has no reason.
type Said map[string]string

// Hear updates the reasons from an event.
func (s *Said) Hear(word trail.Word, fields trail.Fields) {
	step, says := Workers, fields.Seen // empty for a successful probe
	switch {
	case word == trail.Waits, word == trail.Checked:
		step, says = Check, fields.Checks
	case word != trail.Probe:
		return
	case fields.Child == signal.Sandbox:
		step = Sandbox
	}
	if *s == nil {
		*s = make(Said)
	}
	(*s)[step] = says
}
