package mpidetect

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
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

// LookForLone returns a function that finds a driver on several nodes that has loaded an MPI without
// a launcher. Such a process knows no nodes, so it has no place for spawned processes. find examines
// the driver with [DetectLoaded].
func LookForLone(find func() *LoadedMPI, nodes int) process.Look {
	return func([]process.TreeProcess) string {
		loaded := find()
		if loaded == nil || loaded.IsLaunched() {
			return ""
		}
		library, err := loaded.IdentifyLibrary()
		if err != nil {
			library.Kind = "an MPI"
		}
		return fmt.Sprintf("the driver (process %d) has loaded %s, but no MPI launcher started it: it is a "+
			"world of 1 rank, "+
			"and MPI_Comm_spawn or MPIPoolExecutor may hang; with --ranks=1 it can spawn ranks on all %d nodes",
			loaded.PID, library, nodes)
	}
}
