package launcher

// hydraStarter is mpiexec of MPICH and of Intel MPI. PMI_RANK alone does not prove it, because
// Slurm, Flux and PALS set it, too.
var hydraStarter = rankStarter{
	displayName: "MPICH's mpiexec", markVariable: "MPI_LOCALRANKID",
	variableNames: rankVariables{
		rank: []string{"PMI_RANK"}, rankCount: []string{"PMI_SIZE"},
		localRank: []string{"MPI_LOCALRANKID"}, localCount: []string{"MPI_LOCALNRANKS"},
	},
	servesPMI: true, origin: starterOrigin{programs: []string{"hydra_pmi_proxy"}},
	privatePrefixes: []string{"MPI_LOCAL", "HYDRA_", "HYDI_", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "I_MPI_HYDRA_", "I_MPI_PMI_"},
}

// mvapichStarter is mpirun_rsh of MVAPICH.
var mvapichStarter = rankStarter{
	displayName: "MVAPICH's mpirun", markVariable: "MV2_COMM_WORLD_RANK",
	variableNames: rankVariables{
		rank: []string{"MV2_COMM_WORLD_RANK"}, rankCount: []string{"MV2_COMM_WORLD_SIZE"},
		localRank: []string{"MV2_COMM_WORLD_LOCAL_RANK"}, localCount: []string{"MV2_COMM_WORLD_LOCAL_SIZE"},
	},
	servesPMI: true, origin: starterOrigin{programs: []string{"mpispawn", "hydra_pmi_proxy"}},
	privatePrefixes: []string{"MV2_COMM_", "MVP_COMM_"},
}
