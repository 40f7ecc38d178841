package instances

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// maxEventLines is the number of last lines of a log in an event.
const maxEventLines = 10

// logExit writes an event about the exit of an instance on a node, and what follows from it.
func (h *Head) logExit(state *instanceState, rec *record.InstanceExit, node int, effect exitEffect) {
	h.mu.Lock()
	follows := ""
	switch {
	case effect == exitRestarts, effect == exitSuperseded:
		follows = "it is started again"
	case effect == exitIsLoss && h.lacks(state.role):
		follows = "the run ends"
	case effect == exitIsLoss:
		follows = "the role goes on without it"
	}
	h.mu.Unlock()
	h.cfg.Events.WriteEvent(eventlog.InstanceExited, eventlog.Fields{
		ObjectFields: eventlog.ObjectFields{Child: fmt.Sprintf("%s.%d", state.role.Name, state.instance.Index)},
		FailureFields: eventlog.FailureFields{Subject: &node, Kind: rec.Kind, What: rec.Message,
			Lines: rec.Lines[max(0, len(rec.Lines)-maxEventLines):]},
		LinkFields: eventlog.LinkFields{Reason: follows},
	})
}
