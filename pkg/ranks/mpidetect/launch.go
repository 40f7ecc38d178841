package mpidetect

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

var launchers = []string{"mpirun", "mpiexec", "orterun", "prterun"}

// IsLauncher reports whether a command is an MPI's launcher. It also recognises names such as
// Debian's mpirun.openmpi and Intel's mpiexec.hydra.
func IsLauncher(argv []string) bool {
	if len(argv) == 0 {
		return false
	}
	name, _, _ := strings.Cut(filepath.Base(argv[0]), ".")
	return slices.Contains(launchers, name)
}

// CheckRankCommand returns an error if a command is not suitable to be run by each rank of a world.
// The error suggests a correction. ranks is the number of ranks, 0 if unknown.
func CheckRankCommand(argv []string, ranks int) error {
	if IsLauncher(argv) {
		return fmt.Errorf("cannot run %s in each rank: each would start a separate world; leave it out, "+
			"because bringupd starts MPI ranks itself, or leave out --ranks and --ranks-per-node to run it "+
			"once, as the driver",
			filepath.Base(argv[0]))
	}
	if at := slices.Index(argv, "mpi4py.futures"); at > 0 && argv[at-1] == "-m" && ranks == 1 {
		return fmt.Errorf("cannot run mpi4py.futures with 1 rank: its workers are the other ranks; use " +
			"--ranks-per-node=N, " +
			"or run the script without -m mpi4py.futures: then its MPIPoolExecutor spawns workers on all nodes")
	}
	return nil
}

// The interval of checks begins with firstCheckInterval and doubles up to maxCheckInterval. Checks
// continue, because the driver may load an MPI an hour later. They are rare, because a check takes
// some milliseconds.
const (
	firstCheckInterval = time.Second
	maxCheckInterval   = 30 * time.Second
)

// WatchDriver reports once if a driver on several nodes has loaded an MPI for some seconds without a
// launcher, until ctx ends. Such a process knows no nodes, so it has no place for spawned processes.
// find examines the driver with [DetectLoaded].
func WatchDriver(ctx context.Context, find func() *LoadedMPI, nodes int, report func(words string)) {
	isSeen := false
	for interval := firstCheckInterval; ctxutil.SleepContext(ctx, interval); {
		interval = min(2*interval, maxCheckInterval)
		// Do not wait for the check at the end of ctx: it blocks while the memory of a process is locked
		// because a file system is unresponsive.
		loaded, err := ctxutil.CallBounded(ctx, 0, func() (*LoadedMPI, error) { return find(), nil })
		if err != nil {
			return
		}
		wasSeen := isSeen
		if isSeen = loaded != nil && !loaded.IsLaunched(); !isSeen || !wasSeen {
			continue
		}
		library, err := loaded.IdentifyLibrary()
		if err != nil {
			library.Kind = "an MPI"
		}
		report(fmt.Sprintf("the driver (process %d) has loaded %s, but no MPI launcher started it: it is a "+
			"world of 1 rank, "+
			"and MPI_Comm_spawn or MPIPoolExecutor may hang; with --ranks=1 it can spawn ranks on all %d nodes",
			loaded.PID, library, nodes))
		return
	}
}
