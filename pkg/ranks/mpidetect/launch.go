package mpidetect

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// launchers are programs of MPI libraries that start ranks.
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
		return fmt.Errorf("cannot run %s in each rank: each would start a separate world; leave it out, because bringupd starts MPI ranks itself, "+
			"or leave out --ranks and --ranks-per-node to run it once, as the driver", filepath.Base(argv[0]))
	}
	if at := slices.Index(argv, "mpi4py.futures"); at > 0 && argv[at-1] == "-m" && ranks == 1 {
		return fmt.Errorf("cannot run mpi4py.futures with 1 rank: its workers are the other ranks; use --ranks-per-node=N, " +
			"or run the script without -m mpi4py.futures: then its MPIPoolExecutor spawns workers on all nodes")
	}
	return nil
}
