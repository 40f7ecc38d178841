// Package advice tells people how a job has ended and what to do next: sentences
// made of data, in the words of the job's launcher and framework.
package advice

import (
	"time"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Account is all that the last words and the advice are made of.
type Account struct {
	*signal.Result
	ID     roles.Identity // who tells
	Path   string         // of the run directory; empty where there is none
	LogDir string
	Driver string // its first word; empty where there is none
	World  bool   // the driver runs in ranks, each of which has its log
	// Names has the host of each rank, where the launcher or the result tells it.
	Names []string
	// Consequences are all failures but the cause: the result may not bear all.
	Consequences []signal.FailedRecord
	Left         []string         // what would not die on this node
	Bounds       map[string]Bound // of the phases that can be given more time
	DriverGrace  time.Duration
	// DriverEnd is how this node's driver ended, and DriverSilent is set if it printed nothing.
	DriverEnd    signal.ChildEnd
	DriverSilent bool
	// OwnLogs is what people call the logs that the framework's services write
	// by themselves; empty where they write none.
	OwnLogs string
	// ProgramFlag is the flag that names the framework's program; empty if there is none.
	ProgramFlag string
}

// Bound is the flag that bounds a phase, and its value.
type Bound struct {
	Flag string
	Time time.Duration
}
