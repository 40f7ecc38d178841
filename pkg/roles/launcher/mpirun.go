package launcher

import "strconv"

// openMPILauncher is mpirun of Open MPI, versions 4 and 5, as a launcher of daemons.
//
// Its processes share only the namespace of the launch, which PMIx provides to each of them. The
// batch system's variables reach only those on nodes where it has started mpirun's daemon. So the
// run is named after the namespace, which consists of the host and the PID of mpirun, and may occur
// again.
var openMPILauncher = launcherSpec{
	name: LauncherOpenMPI,
	traits: Traits{
		StarterProgram: "mpirun", MergesErrors: true, RankVariable: "OMPI_COMM_WORLD_RANK",
		PrivatePrefixes: []string{"PMIX", "OMPI_", "ORTE_", "PRTE_"},
	},
	facts: Facts{MayRelaunch: true},
	hints: CommandHints{
		Title: "Open MPI", StartOnNodes: "mpirun -n {n} --map-by ppr:1:node", NoRequeueReason: noMPIRunRequeue,
	},
	oneEach: "mpirun --map-by ppr:1:node",
	// Flux's plugin for Spectrum MPI sets only the rank (src/shell/lua.d/mpi/spectrum.lua).
	claim:   claimBy([]string{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}),
	starter: openMPIStarter,
	nameJob: func(env Environment, want Overrides) (job, step string, facts []string) {
		_, namespace := env.firstSet("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
		if want.JobID == "" {
			job = sanitizeRunName(namespace)
		}
		if _, err := strconv.Atoi(job); err == nil {
			// In Open MPI 4 it is only a number, which looks like that of a batch job.
			job = "mpirun-" + job
		}
		return job, "", []string{namespace}
	},
}

const noMPIRunRequeue = "an mpirun started it, which cannot restart jobs"

// openMPIStarter is mpirun of Open MPI, versions 4 and 5. Settings of users, such as OMPI_MCA_btl,
// are for every process.
var openMPIStarter = rankStarter{
	displayName: "Open MPI's mpirun", markVariable: "OMPI_COMM_WORLD_RANK",
	variableNames: rankVariables{
		rank: []string{"OMPI_COMM_WORLD_RANK"}, rankCount: []string{"OMPI_COMM_WORLD_SIZE"},
		localRank:  []string{"OMPI_COMM_WORLD_LOCAL_RANK"},
		localCount: []string{"OMPI_COMM_WORLD_LOCAL_SIZE"},
	},
	origin: starterOrigin{programs: []string{
		"orted", "prted", "prte", "prterun", "orterun", "mpirun", "mpiexec",
	}},
	privatePrefixes: []string{
		"OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE", "OMPI_NUM_APP_CTX", "OMPI_FIRST_RANKS",
		"OMPI_APP_CTX_NUM_PROCS", "OMPI_COMMAND", "OMPI_ARGV", "OMPI_FILE_LOCATION", "OMPI_MCA_orte_",
		"OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir", "OMPI_MCA_mpi_oversubscribe", "ORTE_",
		"PRTE_LAUNCHED", "PRTE_MCA_ess", "PRTE_MCA_prte_", "PRTE_MCA_pmix",
	},
}

// hydraLauncher is hydra, mpiexec of MPICH, Intel MPI and MVAPICH, as a launcher of daemons. None
// of its variables names the launch, so the user must.
var hydraLauncher = launcherSpec{
	name: LauncherMPICH,
	traits: Traits{
		StarterProgram: "mpiexec", MergesErrors: true, RankVariable: "PMI_RANK",
		PrivatePrefixes: []string{
			"PMI_", "PMI2_", "HYDRA_", "HYDI_", "MPIEXEC_", "I_MPI_HYDRA_", "I_MPI_PMI_", "MPI_LOCAL",
			"MV2_COMM_", "MVP_COMM_",
		},
	},
	facts: Facts{MayRelaunch: true},
	hints: CommandHints{
		Title: "MPICH", StartOnNodes: "mpiexec -n {n} -ppn 1", NoRequeueReason: noMPIRunRequeue,
	},
	oneEach: "mpiexec -ppn 1",
	claim:   claimBy([]string{"MPI_LOCALRANKID", "PMI_RANK", "PMI_SIZE"}),
	starter: hydraStarter,
}

// hydraStarter is mpiexec of MPICH and of Intel MPI. PMI_RANK alone does not prove it, because
// Slurm, Flux and PALS set it, too.
var hydraStarter = rankStarter{
	displayName: "MPICH's mpiexec", markVariable: "MPI_LOCALRANKID",
	variableNames: rankVariables{
		rank: []string{"PMI_RANK"}, rankCount: []string{"PMI_SIZE"},
		localRank: []string{"MPI_LOCALRANKID"}, localCount: []string{"MPI_LOCALNRANKS"},
	},
	origin: starterOrigin{programs: []string{"hydra_pmi_proxy"}},
	privatePrefixes: []string{
		"MPI_LOCAL", "HYDRA_", "HYDI_", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "I_MPI_HYDRA_", "I_MPI_PMI_",
	},
}
