package launcher

import (
	"fmt"
	"strconv"
)

// LauncherOpenMPI is mpirun of Open MPI, versions 4 and 5, as a launcher of daemons.
//
// Its processes share only the namespace of the launch, which PMIx provides to each of them. The
// batch system's variables reach only those on nodes where it has started mpirun's daemon. So the
// run is named after the namespace, which consists of the host and the PID of mpirun, and may occur
// again.
const LauncherOpenMPI Launcher = "openmpi"

var openMPILauncher = launcherSpec{
	name: LauncherOpenMPI,
	traits: Traits{
		StarterProgram: "mpirun", RankVariable: "OMPI_COMM_WORLD_RANK",
		PrivatePrefixes: []string{"PMIX", "OMPI_", "ORTE_", "PRTE_"},
	},
	rankStarter: openMPIStarter,
	claimOf: func(env Environment, _ Overrides) claimLevel {
		// Flux's plugin for Spectrum MPI sets only the rank (src/shell/lua.d/mpi/spectrum.lua).
		return claimIfBothSet(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
	},
	identifyDaemon: identifyOpenMPI,
	commandHints: func(string) CommandHints {
		return mpirunHints("Open MPI", func(n int) string { return fmt.Sprintf("mpirun -n %d --map-by ppr:1:node", n) })
	},
}

// claimIfBothSet returns the claim of a launcher that sets the index and the number of daemons.
func claimIfBothSet(env Environment, rank, size string) claimLevel {
	if env.valueOf(rank) != "" && env.valueOf(size) != "" {
		return claimStarted
	}
	return claimNone
}

func mpirunHints(title string, nodes func(n int) string) CommandHints {
	return CommandHints{
		Title: title, StartOnNodes: nodes, NestedAdvice: nestedNameAdvice, JobGoneSign: "once its mpirun has ended",
		NoRequeueReason: "an mpirun started it, which cannot restart jobs",
	}
}

func identifyOpenMPI(env Environment, hostname string, want Overrides) (Identity, error) {
	r, err := openMPIStarter.variableNames.readRank(env)
	if err != nil {
		return Identity{}, environmentError(openMPIStarter.displayName, err)
	}
	if r.LocalRank > 0 || r.LocalCount > 1 {
		return Identity{}, crowdedNodeError(fmt.Sprintf("OMPI_COMM_WORLD_LOCAL_RANK=%d, rank %d of %d on %s", r.LocalRank, r.Rank, r.RankCount, hostname), "mpirun --map-by ppr:1:node")
	}
	_, namespace := env.firstSet("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
	id := Identity{Launcher: LauncherOpenMPI, NodeIndex: r.Rank, Size: r.RankCount, Host: hostname}
	if want.JobID == "" {
		if id.Job = sanitizeRunName(namespace); id.Job == "" {
			return Identity{}, unnamedRunError(openMPIStarter.displayName, "")
		}
		if _, err := strconv.Atoi(id.Job); err == nil {
			// in Open MPI 4 it is only a number, which looks like that of a batch job
			id.Job = "mpirun-" + id.Job
		}
	}
	return completeIdentity(id, want, namespace)
}
