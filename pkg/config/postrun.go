package config

import (
	"time"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// PostRun configures what happens after the driver has ended, and after a failure.
type PostRun struct {
	Restarts int // maximum number of restarts within the launch
	Rules    RestartRules
	Requeue  RequeueConfig
	Clean    CleanupPolicy // the zero value means CleanAll
	// Look is how long services stay up after the driver with CleanNone.
	Look time.Duration
	// OnEnd is run by /bin/sh on the head at the end of the run; empty: nothing.
	OnEnd string
}

// EndCommandTimeout is the maximum duration of PostRun.OnEnd. It is shorter than the 30 s after which
// some sites' Slurm kills the head, counted from the end of the first task (WaitTime) or from TERM
// (KillWait).
const EndCommandTimeout = 20 * time.Second

// MaxDelay returns the maximum time by which the end of a job is delayed after its result is written.
func (a PostRun) MaxDelay() time.Duration {
	if a.OnEnd == "" {
		return a.Requeue.maxDelay()
	}
	return a.Requeue.maxDelay() + EndCommandTimeout
}

// RestartRules decide which failures lead to a restart within the launch.
type RestartRules struct {
	On      RestartTrigger // the zero value means RestartOnNode
	NoCodes []int          // exit codes after which there is no restart, besides those of mistakes
}

// RestartTrigger selects the failures that lead to a restart. The end of a driver, and any failure
// that another attempt cannot fix, are only included where that is stated.
type RestartTrigger string

// The values of --restart-on.
const (
	RestartOnNode    RestartTrigger = "node"    // a node was lost or failed a check
	RestartOnService RestartTrigger = "service" // also a service or sandbox that dies while the driver runs
	RestartOnRank    RestartTrigger = "rank"    // also a rank that fails or aborts the job
	RestartOnAny     RestartTrigger = "any"     // all of these, and a driver that fails
)

// RestartTriggers are the values that a user can give.
var RestartTriggers = []string{
	string(RestartOnNode), string(RestartOnService), string(RestartOnRank), string(RestartOnAny),
}

// RestartsRanks reports whether a rank that fails leads to a restart.
func (r RestartRules) RestartsRanks() bool { return r.On == RestartOnRank || r.On == RestartOnAny }

// CleanupPolicy selects what is ended and removed after the driver has ended. The values are those
// of cleanPodPolicy in Kubeflow's mpi-operator.
type CleanupPolicy string

// The values of --clean.
const (
	// end all processes and remove the nodes' temporary directories
	CleanAll     CleanupPolicy = "all"
	CleanRunning CleanupPolicy = "running" // end all processes; keep the directories
	// keep services, sandboxes and the directories, for inspection
	CleanNone CleanupPolicy = "none"
)

// CleanupPolicies are the values that a user can give.
var CleanupPolicies = []string{string(CleanAll), string(CleanRunning), string(CleanNone)}

// KeepsDirectories reports whether a node's temporary directory is kept.
func (c CleanupPolicy) KeepsDirectories() bool { return c == CleanRunning || c == CleanNone }

// DefaultInspectionTime is the default time for which services stay up with CleanNone.
const DefaultInspectionTime = 10 * time.Minute

// MaxBackoff is the maximum pause before another attempt.
const MaxBackoff = time.Minute

// RequeueConfig configures whether a failed job is requeued.
type RequeueConfig struct {
	OnFailure bool // if the failure justifies it
	Most      int  // maximum number of requeues of the job
	// By requeues the job. It is nil if the launcher cannot.
	By launcher.Requeuer `digest:"-"`
}

// maxDelay returns the maximum time by which a requeue delays the end of a job.
func (r RequeueConfig) maxDelay() time.Duration {
	if !r.OnFailure {
		return 0
	}
	return 2 * launcher.RequeueTimeout
}
