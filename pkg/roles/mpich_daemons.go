package roles

import "fmt"

// MPICH is hydra, mpiexec of MPICH, Intel MPI and MVAPICH, as a launcher of daemons. None of its
// variables names the launch, so the user must.
const MPICH Launcher = "mpich"

var hydraDaemons = launcher{
	name: MPICH,
	traits: Traits{
		Relaunches: true, Starter: "mpiexec", Rank: "PMI_RANK",
		Private: []string{"PMI_", "PMI2_", "HYDRA_", "HYDI_", "MPIEXEC_", "I_MPI_HYDRA_", "I_MPI_PMI_", "MPI_LOCAL", "MV2_COMM_", "MVP_COMM_"},
	},
	tasks: hydra,
	claim: func(env Environment, _ Want) claim {
		if env.get(hydra.mark) == "" {
			return unclaimed
		}
		return bothOf(env, "PMI_RANK", "PMI_SIZE")
	},
	identify: identifyHydra,
	words: func(string) Words {
		return mpirunWords("MPICH", func(n int) string { return fmt.Sprintf("mpiexec -n %d -ppn 1", n) })
	},
}

func identifyHydra(env Environment, hostname string, want Want) (Identity, error) {
	r, err := hydra.names.read(env)
	switch {
	case err != nil:
		return Identity{}, torn(hydra.title, err)
	case r.Local > 0 || r.Locals > 1:
		return Identity{}, crowded(fmt.Sprintf("MPI_LOCALNRANKS=%d, rank %d of %d on %s", r.Locals, r.Rank, r.Ranks, hostname), "mpiexec -ppn 1")
	case want.JobID == "":
		return Identity{}, nameless(hydra.title, ", as in: mpiexec -ppn 1 bringupd --job-id=$SLURM_JOB_ID …")
	}
	return settle(Identity{Launcher: MPICH, Rank: r.Rank, Size: r.Ranks, Host: hostname}, want)
}
