// Package advice describes how a job has ended and what to do next, in sentences with the terms of
// the job's launcher and framework.
package advice

import (
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Summary has all data for the final message and the advice.
type Summary struct {
	*record.Result
	ID       launcher.Identity // identity of the reporting node
	RunDir   string            // path of the run directory; empty if there is none
	LogDir   string
	Driver   string // first word of its command line; empty if there is no driver
	HasRanks bool   // the driver runs as ranks, each of which has a log
	// HostNames has the host of each node, if the launcher or the result provides it.
	HostNames []string
	// Consequences are all failures except the cause. The result may not have room for all.
	Consequences  []record.Failure
	LeftProcesses []string // processes on this node that could not be ended
	Timeouts      Timeouts
	// DriverGrace is how long the driver had to save its work, of GivenGrace.
	DriverGrace, GivenGrace time.Duration
	// DriverEnd describes how this node's driver ended, and DriverLines are its last lines, nil if it
	// printed nothing.
	DriverEnd   record.ChildExit
	DriverLines []string
	Framework   framework.Traits
}

// Timeouts are those of flags: of the join phase, and of each part of the start of a node.
type Timeouts struct{ Join, Start time.Duration }
