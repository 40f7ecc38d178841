package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/mpi"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
)

// srun is the process name of Slurm's launcher. Once its step has begun, it forks a child process
// of the same name.
const srun = "srun"

// stepless returns the srun processes among all that have no step: an srun with a step has a child
// process named srun, which is not counted itself.
func stepless(all []process.Relative) (waiting []process.Relative) {
	sruns := make(map[int]bool)
	for _, p := range all {
		sruns[p.PID] = p.Name == srun
	}
	begun := make(map[int]bool)
	for _, p := range all {
		begun[p.Parent] = begun[p.Parent] || p.Name == srun
	}
	for _, p := range all {
		if p.Name == srun && !begun[p.PID] && !sruns[p.Parent] {
			waiting = append(waiting, p)
		}
	}
	return waiting
}

// Wait describes a process that seems to wait forever.
type Wait struct {
	Key   int // PID of the process, or 0 if only one such wait should be reported
	Words func(waited time.Duration) string
}

const (
	// nestedPace is the interval of checks during the first nestedEarly, and nestedRest the interval
	// afterwards. Checks continue, because a process that the driver starts an hour later waits, too.
	// They are rare, because a check takes some milliseconds.
	nestedPace  = 2 * time.Second
	nestedEarly = time.Minute
	nestedRest  = 30 * time.Second
)

// WatchWaits calls look at intervals until ctx ends. If two consecutive calls return the same wait,
// it passes the message of the wait to tell. It reports each wait only once.
func WatchWaits(ctx context.Context, look func() []Wait, tell func(words string)) {
	began := time.Now()
	seen, told := make(map[int]time.Time), make(map[int]bool)
	for pace := nestedPace; pause.For(ctx, pace); {
		if time.Since(began) > nestedEarly {
			pace = nestedRest
		}
		// Do not wait for the check at the end of ctx: it blocks while the memory of a process is locked
		// because a file system is unresponsive.
		found, err := pause.Bounded(ctx, 0, func() ([]Wait, error) { return look(), nil })
		if err != nil {
			return
		}
		// Report the waits that the previous check has also found.
		before := seen
		seen = make(map[int]time.Time)
		for _, wait := range found {
			since, again := before[wait.Key]
			if !again {
				since = time.Now()
			}
			seen[wait.Key] = since
			if again && !told[wait.Key] {
				told[wait.Key] = true
				tell(wait.Words(time.Since(since)))
			}
		}
	}
}

// Advice for an srun that waits.
const (
	overlap     = "give --overlap to that srun (SLURM_OVERLAP=1), or to the one that starts bringupd; "
	mendDriver  = overlap + "an mpirun needs no srun with --mpirun=auto"
	MendOfRanks = overlap + "leave out an mpirun: ranks are served MPI without it, and start more by MPI_Comm_spawn"
)

// Sruns returns a [Wait] for each srun process among all that has no step and is a descendant of an
// owner. owners has the names of the owners by PID. mend is advice for the message.
func Sruns(all []process.Relative, owners map[int]string, mend string) (waits []Wait) {
	parents := make(map[int]int)
	for _, p := range all {
		parents[p.PID] = p.Parent
	}
	for _, p := range stepless(all) {
		at := p.PID
		for owners[at] == "" && parents[at] != 0 {
			at = parents[at]
		}
		if owner := owners[at]; owner != "" {
			waits = append(waits, Wait{p.PID, func(waited time.Duration) string {
				return fmt.Sprintf("%s waits for an srun that has had no step for %s (process %d): this run's own step has what it asks for, "+
					"and nothing comes free before the run ends; %s", owner, waited.Round(time.Second), p.PID, mend)
			}})
		}
	}
	return waits
}

// DriverWaits returns a function for [WatchWaits] that finds what a driver may wait for. If inStep
// is true, it looks for an srun without a step, because the driver runs within a Slurm step. If
// alone is true, the driver runs on several nodes without ranks, and the function looks for an MPI
// that may spawn processes.
func DriverWaits(driver, nodes int, alone, inStep bool) func() []Wait {
	return func() (waits []Wait) {
		if inStep {
			waits = Sruns(process.Tree(driver), map[int]string{driver: "the driver"}, mendDriver)
		}
		if alone {
			waits = append(waits, singleton(mpi.Look(driver), nodes)...)
		}
		return waits
	}
}

// singleton returns the wait of a process that has loaded an MPI and was not started by a launcher
// of it: such a process knows no nodes, so it has no place for spawned processes.
func singleton(loaded *mpi.Loaded, nodes int) []Wait {
	if loaded == nil || loaded.IsLaunched() {
		return nil
	}
	return []Wait{{0, func(time.Duration) string {
		library, err := loaded.Library()
		if err != nil {
			library.Kind = "an MPI"
		}
		return fmt.Sprintf("the driver (process %d) has %s loaded, and no launcher of it has started that process: it is a world of 1, "+
			"whose MPI_Comm_spawn or MPIPoolExecutor may wait without an end; with --ranks=1 it spawns ranks on all %d nodes", loaded.PID, library, nodes)
	}}}
}
