package mpidetect

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/process"
)

// CheckPool returns an error if a command, run by each rank of a world, is a pool of mpi4py without
// workers. ranks is the number of ranks, 0 if unknown.
func CheckPool(argv []string, ranks int) error {
	if at := slices.Index(argv, "mpi4py.futures"); at < 1 || argv[at-1] != "-m" || ranks != 1 {
		return nil
	}
	return errors.New("cannot run mpi4py.futures with 1 rank: its workers are the other ranks; use " +
		"--ranks-per-node=N, " +
		"or run the script without -m mpi4py.futures: then its MPIPoolExecutor spawns workers on all nodes")
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
