package launcher

import "fmt"

// LauncherMPICH is hydra, mpiexec of MPICH, Intel MPI and MVAPICH, as a launcher of daemons. None
// of its variables names the launch, so the user must.
const LauncherMPICH Launcher = "mpich"

var hydraLauncher = launcherSpec{
	name: LauncherMPICH,
	traits: Traits{
		StarterProgram: "mpiexec", RankVariable: "PMI_RANK",
		PrivatePrefixes: []string{"PMI_", "PMI2_", "HYDRA_", "HYDI_", "MPIEXEC_", "I_MPI_HYDRA_", "I_MPI_PMI_", "MPI_LOCAL", "MV2_COMM_", "MVP_COMM_"},
	},
	rankStarter: hydraStarter,
	claimOf: func(env Environment, _ Overrides) claimLevel {
		if env.valueOf(hydraStarter.markVariable) == "" {
			return claimNone
		}
		return claimIfBothSet(env, "PMI_RANK", "PMI_SIZE")
	},
	identifyDaemon: identifyHydra,
	commandHints: func(string) CommandHints {
		return mpirunHints("MPICH", func(n int) string { return fmt.Sprintf("mpiexec -n %d -ppn 1", n) })
	},
}

func identifyHydra(env Environment, hostname string, want Overrides) (Identity, error) {
	r, err := hydraStarter.variableNames.readRank(env)
	switch {
	case err != nil:
		return Identity{}, environmentError(hydraStarter.displayName, err)
	case r.LocalRank > 0 || r.LocalCount > 1:
		return Identity{}, crowdedNodeError(fmt.Sprintf("MPI_LOCALNRANKS=%d, rank %d of %d on %s", r.LocalCount, r.Rank, r.RankCount, hostname), "mpiexec -ppn 1")
	case want.JobID == "":
		return Identity{}, unnamedRunError(hydraStarter.displayName, ", as in: mpiexec -ppn 1 bringupd --job-id=$SLURM_JOB_ID …")
	}
	return completeIdentity(Identity{Launcher: LauncherMPICH, NodeIndex: r.Rank, Size: r.RankCount, Host: hostname}, want)
}
