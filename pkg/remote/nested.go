package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/mpi"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
)

// srun is what Slurm's launcher is called, and what it calls the process that it forks once its step has begun.
const srun = "srun"

// stepless are the sruns among processes that have no step: those without such a child, which are none themselves.
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

// Wait is what a process seems to wait for without an end.
type Wait struct {
	Key   int // tells it from others: the PID of the process, or 0 if it is reported once for all
	Words func(waited time.Duration) string
}

const (
	// nestedPace lies between two looks for as long as nestedEarly, and nestedRest afterwards: what a driver starts an hour
	// later waits, too, and a look costs some milliseconds.
	nestedPace  = 2 * time.Second
	nestedEarly = time.Minute
	nestedRest  = 30 * time.Second
)

// WatchWaits reports, once each, the waits that two looks one after the other have found, until ctx ends.
func WatchWaits(ctx context.Context, look func() []Wait, tell func(words string)) {
	began := time.Now()
	seen, told := make(map[int]time.Time), make(map[int]bool)
	for pace := nestedPace; pause.For(ctx, pace); {
		if time.Since(began) > nestedEarly {
			pace = nestedRest
		}
		// A process whose memory is locked by a file system that hangs is no reason to wait at the end.
		found, err := pause.Bounded(ctx, 0, func() ([]Wait, error) { return look(), nil })
		if err != nil {
			return
		}
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

// The mends of an srun that waits.
const (
	overlap     = "give --overlap to that srun (SLURM_OVERLAP=1), or to the one that starts bringupd; "
	mendDriver  = overlap + "an mpirun needs no srun with --mpirun=auto"
	MendOfRanks = overlap + "leave out an mpirun: ranks are served MPI without it, and start more by MPI_Comm_spawn"
)

// Sruns are the sruns among all that have no step, and that one of these processes has started, which are
// named by their PIDs.
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

// DriverWaits returns a look at what a driver may wait for: in a step of Slurm's an srun, and if it is
// alone on several nodes, what its MPI spawns.
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

// singleton is the wait of a process that has an MPI and that no launcher of it has started: it knows no
// nodes, and what it spawns has no place to run.
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
