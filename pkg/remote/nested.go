package remote

import (
	"context"
	"fmt"
	"time"

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

const (
	// nestedPace lies between two looks for as long as nestedEarly, and nestedRest afterwards: what a driver starts an hour
	// later waits, too, and a look costs some milliseconds.
	nestedPace  = 2 * time.Second
	nestedEarly = time.Minute
	nestedRest  = 30 * time.Second
)

// WatchSruns tells, once of each, of the sruns of a driver that two looks one after the other have found without a step,
// until ctx ends. look returns the driver and what is below it.
func WatchSruns(ctx context.Context, look func() []process.Relative, tell func(words string)) {
	began := time.Now()
	seen, told := make(map[int]time.Time), make(map[int]bool)
	for pace := nestedPace; pause.For(ctx, pace); {
		if time.Since(began) > nestedEarly {
			pace = nestedRest
		}
		before := seen
		seen = make(map[int]time.Time)
		for _, p := range stepless(look()) {
			since, again := before[p.PID]
			if !again {
				since = time.Now()
			}
			seen[p.PID] = since
			if again && !told[p.PID] {
				told[p.PID] = true
				tell(nestedWords(p.PID, time.Since(since)))
			}
		}
	}
}

// nestedWords says what the driver waits for, and what mends it.
func nestedWords(pid int, waited time.Duration) string {
	return fmt.Sprintf("the driver waits for an srun that has had no step for %s (process %d): this run's own step has what it asks for, "+
		"and nothing comes free before the run ends; give --overlap to that srun (SLURM_OVERLAP=1), or to the one that starts bringupd; "+
		"an mpirun needs no srun with --mpirun=auto", waited.Round(time.Second), pid)
}
