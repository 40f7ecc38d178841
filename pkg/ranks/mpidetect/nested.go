package mpidetect

import (
	"context"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/process"
)

// srunName is the process name of Slurm's launcher. Once its step has begun, it forks a child
// process of the same name.
const srunName = "srun"

// srunsWithoutStep returns the srun processes among all that have no step: an srun with a step has
// a child process named srun, which is not counted itself.
func srunsWithoutStep(all []process.TreeProcess) (waiting []process.TreeProcess) {
	sruns := make(map[int]bool)
	for _, p := range all {
		sruns[p.PID] = p.Name == srunName
	}
	begun := make(map[int]bool)
	for _, p := range all {
		begun[p.Parent] = begun[p.Parent] || p.Name == srunName
	}
	for _, p := range all {
		if p.Name == srunName && !begun[p.PID] && !sruns[p.Parent] {
			waiting = append(waiting, p)
		}
	}
	return waiting
}

// EndlessWait describes a process that seems to wait forever.
type EndlessWait struct {
	PID     int // PID of the process, or 0 if only one such wait should be reported
	Message func(waited time.Duration) string
}

const (
	// earlyCheckInterval is the interval of checks during the first earlyPeriod, and lateCheckInterval
	// the interval afterwards. Checks continue, because a process that the driver starts an hour later
	// waits, too. They are rare, because a check takes some milliseconds.
	earlyCheckInterval = 2 * time.Second
	earlyPeriod        = time.Minute
	lateCheckInterval  = 30 * time.Second
)

// ReportWaits calls look at intervals until ctx ends. If two consecutive calls return the same
// wait, it passes the message of the wait to tell. It reports each wait only once.
func ReportWaits(ctx context.Context, look func() []EndlessWait, tell func(words string)) {
	began := time.Now()
	seen, told := make(map[int]time.Time), make(map[int]bool)
	for pace := earlyCheckInterval; ctxutil.SleepContext(ctx, pace); {
		if time.Since(began) > earlyPeriod {
			pace = lateCheckInterval
		}
		// Do not wait for the check at the end of ctx: it blocks while the memory of a process is locked
		// because a file system is unresponsive.
		found, err := ctxutil.CallBounded(ctx, 0, func() ([]EndlessWait, error) { return look(), nil })
		if err != nil {
			return
		}
		// Report the waits that the previous check has also found.
		before := seen
		seen = make(map[int]time.Time)
		for _, wait := range found {
			since, again := before[wait.PID]
			if !again {
				since = time.Now()
			}
			seen[wait.PID] = since
			if again && !told[wait.PID] {
				told[wait.PID] = true
				tell(wait.Message(time.Since(since)))
			}
		}
	}
}

// Advice for an srun that waits.
const (
	overlapAdvice = "give --overlap to that srun (SLURM_OVERLAP=1), or to the one that starts bringupd; "
	driverAdvice  = overlapAdvice + "with --mpirun=auto, mpirun needs no srun"
	RankAdvice    = overlapAdvice + "leave out mpirun: bringupd starts MPI ranks itself, and ranks can start more with MPI_Comm_spawn"
)

// SrunWaits returns a [EndlessWait] for each srun process among all that has no step and is a
// descendant of an owner. owners has the names of the owners by PID. mend is advice for the
// message.
func SrunWaits(all []process.TreeProcess, owners map[int]string, mend string) (waits []EndlessWait) {
	parents := make(map[int]int)
	for _, p := range all {
		parents[p.PID] = p.Parent
	}
	for _, p := range srunsWithoutStep(all) {
		at := p.PID
		for owners[at] == "" && parents[at] != 0 {
			at = parents[at]
		}
		if owner := owners[at]; owner != "" {
			waits = append(waits, EndlessWait{p.PID, func(waited time.Duration) string {
				return fmt.Sprintf("%s waits for an srun that has waited for its step for %s (process %d): this run's own step holds the resources, "+
					"and releases them only when the run ends; %s", owner, waited.Round(time.Second), p.PID, mend)
			}})
		}
	}
	return waits
}

// NewDriverCheck returns a function for [ReportWaits] that finds what a driver may wait for. If
// inStep is true, it looks for an srun without a step, because the driver runs within a Slurm step.
// If alone is true, the driver runs on several nodes without ranks, and the function looks for an
// MPI that may spawn processes.
func NewDriverCheck(driver, nodes int, alone, inStep bool) func() []EndlessWait {
	return func() (waits []EndlessWait) {
		if inStep {
			waits = SrunWaits(process.ProcessTree(driver), map[int]string{driver: "the driver"}, driverAdvice)
		}
		if alone {
			waits = append(waits, singletonWait(DetectLoaded(driver), nodes)...)
		}
		return waits
	}
}

// singletonWait returns the wait of a process that has loaded an MPI and was not started by a
// launcher of it: such a process knows no nodes, so it has no place for spawned processes.
func singletonWait(loaded *LoadedMPI, nodes int) []EndlessWait {
	if loaded == nil || loaded.IsLaunched() {
		return nil
	}
	return []EndlessWait{{0, func(time.Duration) string {
		library, err := loaded.IdentifyLibrary()
		if err != nil {
			library.Kind = "an MPI"
		}
		return fmt.Sprintf("the driver (process %d) has loaded %s, but no MPI launcher started it: it is a world of 1 rank, "+
			"and MPI_Comm_spawn or MPIPoolExecutor may hang; with --ranks=1 it can spawn ranks on all %d nodes", loaded.PID, library, nodes)
	}}}
}
