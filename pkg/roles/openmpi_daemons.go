package roles

import (
	"fmt"
	"strconv"
)

// OpenMPI is mpirun of Open MPI, versions 4 and 5, as a launcher of daemons.
//
// Its processes share only the namespace of the launch, which PMIx provides to each of them. The
// batch system's variables reach only those on nodes where it has started mpirun's daemon. So the
// run is named after the namespace, which consists of the host and the PID of mpirun, and may occur
// again.
const OpenMPI Launcher = "openmpi"

var openMPIDaemons = launcher{
	name: OpenMPI,
	traits: Traits{
		Relaunches: true, Starter: "mpirun", Rank: "OMPI_COMM_WORLD_RANK",
		Private: []string{"PMIX", "OMPI_", "ORTE_", "PRTE_"},
	},
	tasks: openMPI,
	claim: func(env Environment, _ Want) claim {
		// Flux's plugin for Spectrum MPI sets only the rank (src/shell/lua.d/mpi/spectrum.lua).
		return bothOf(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
	},
	identify: identifyOpenMPI,
	words: func(string) Words {
		return mpirunWords("Open MPI", func(n int) string { return fmt.Sprintf("mpirun -n %d --map-by ppr:1:node", n) })
	},
}

// bothOf returns the claim of a launcher that sets the index and the number of daemons.
func bothOf(env Environment, rank, size string) claim {
	if env.get(rank) != "" && env.get(size) != "" {
		return started
	}
	return unclaimed
}

func mpirunWords(title string, nodes func(n int) string) Words {
	return Words{
		Title: title, Nodes: nodes, Nested: anotherName, Gone: "once its mpirun runs no more",
		NoRequeue: "an mpirun started it, which starts no job anew",
	}
}

func identifyOpenMPI(env Environment, hostname string, want Want) (Identity, error) {
	r, err := openMPI.names.read(env)
	if err != nil {
		return Identity{}, torn(openMPI.title, err)
	}
	if r.Local > 0 || r.Locals > 1 {
		return Identity{}, crowded(fmt.Sprintf("OMPI_COMM_WORLD_LOCAL_RANK=%d, rank %d of %d on %s", r.Local, r.Rank, r.Ranks, hostname), "mpirun --map-by ppr:1:node")
	}
	_, namespace := env.first("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
	id := Identity{Launcher: OpenMPI, Rank: r.Rank, Size: r.Ranks, Host: hostname}
	if want.JobID == "" {
		if id.Job = named(namespace); id.Job == "" {
			return Identity{}, nameless(openMPI.title, "")
		}
		if _, err := strconv.Atoi(id.Job); err == nil {
			id.Job = "mpirun-" + id.Job // in Open MPI 4 it is only a number, which looks like that of a batch job
		}
	}
	return settle(id, want, namespace)
}
