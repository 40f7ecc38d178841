package gate

import (
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// Said is what a node's events say last of what it waits for, by the step; of a
// step that is over, nothing.
type Said map[string]string

// Hear takes in an event.
func (s *Said) Hear(word trail.Word, fields trail.Fields) {
	step, says := Workers, fields.Seen // of a probe that is answered, nothing
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
