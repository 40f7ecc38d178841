package config

import (
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/requeue"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/prune"
)

// After configures what happens after the driver has ended, and after a failure.
type After struct {
	Restarts int           // maximum number of restarts within the launch
	Backoff  time.Duration // before the first restart; it doubles with each one
	Requeue  Requeue
	Clean    Clean // the zero value means CleanAll
	// Look is how long services stay up after the driver with CleanNone.
	Look time.Duration
	Keep prune.Keep // the earlier runs of the log directory that are kept
}

// Clean selects what is ended and removed after the driver has ended. The values are those of
// cleanPodPolicy in Kubeflow's mpi-operator.
type Clean string

// The values of --clean.
const (
	CleanAll     Clean = "all"     // end all processes and remove the nodes' temporary directories
	CleanRunning Clean = "running" // end all processes; keep the directories
	CleanNone    Clean = "none"    // keep services, sandboxes and the directories, for inspection
)

// Cleans are the values that a user can give.
var Cleans = []string{string(CleanAll), string(CleanRunning), string(CleanNone)}

// Keeps reports whether a node's temporary directory is kept.
func (c Clean) Keeps() bool { return c == CleanRunning || c == CleanNone }

// DefaultLook is the default time for which services stay up with CleanNone.
const DefaultLook = 10 * time.Minute

// mostBackoff is the maximum pause before another attempt.
const mostBackoff = time.Minute

func (a After) validate() error {
	if a.Backoff < 0 || a.Backoff > mostBackoff {
		return fmt.Errorf("cannot use --restart-backoff=%s: give 0s to %s", a.Backoff, mostBackoff)
	}
	if a.Look < 0 {
		return fmt.Errorf("cannot use --clean-after=%s: give at least 0s", a.Look)
	}
	return nil
}

// Requeue configures whether a failed job is requeued.
type Requeue struct {
	OnFailure bool // if the failure justifies it
	Most      int  // maximum number of requeues of the job
	// By requeues the job. It is nil if the launcher cannot.
	By roles.Requeuer `digest:"-"`
}

// Longest returns the maximum time by which a requeue delays the end of a job.
func (r Requeue) Longest() time.Duration {
	if !r.OnFailure {
		return 0
	}
	return 2 * requeue.Time
}
