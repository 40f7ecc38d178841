package config

import (
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/requeue"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/prune"
)

// After is what comes after the driver's end, and after a failure.
type After struct {
	Restarts int           // how often the run may be begun anew within its launch
	Backoff  time.Duration // before the first of these; it doubles each time
	Requeue  Requeue
	Clean    Clean // the zero value: CleanAll
	// Look is how long services stay after the driver with CleanNone.
	Look time.Duration
	Keep prune.Keep // which earlier runs of the log directory stay
}

// Clean is what goes when the driver has ended. The words are those of Kubeflow's mpi-operator for
// its pods (cleanPodPolicy).
type Clean string

// The words of --clean.
const (
	CleanAll     Clean = "all"     // what runs, and the nodes' temporary directories
	CleanRunning Clean = "running" // what runs; the directories stay
	CleanNone    Clean = "none"    // services and sandboxes stay for a look, and the directories for good
)

// Cleans are what a user may ask for.
var Cleans = []string{string(CleanAll), string(CleanRunning), string(CleanNone)}

// Keeps tells whether a node's temporary directory stays.
func (c Clean) Keeps() bool { return c == CleanRunning || c == CleanNone }

// DefaultLook is how long services stay for a look where nothing is told.
const DefaultLook = 10 * time.Minute

// mostBackoff is the longest pause before another attempt.
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

// Requeue says whether a job that has failed is tried again.
type Requeue struct {
	OnFailure bool // where the failure deserves it
	Most      int  // how often the job may be started anew
	// By is who can do it; nil where the launcher can't.
	By roles.Requeuer `digest:"-"`
}

// Longest is by how much the end of a job may come later for its requeue.
func (r Requeue) Longest() time.Duration {
	if !r.OnFailure {
		return 0
	}
	return 2 * requeue.Time
}
