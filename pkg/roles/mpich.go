package roles

// hydra is mpiexec of MPICH and of Intel MPI. PMI_RANK alone does not prove it, because Slurm, Flux
// and PALS set it, too.
var hydra = starter{
	title: "MPICH's mpiexec", mark: "MPI_LOCALRANKID",
	names: rankNames{
		rank: []string{"PMI_RANK"}, ranks: []string{"PMI_SIZE"},
		local: []string{"MPI_LOCALRANKID"}, locals: []string{"MPI_LOCALNRANKS"},
	},
	servesPMI: true, origin: origin{programs: []string{"hydra_pmi_proxy"}},
	private: []string{"MPI_LOCAL", "HYDRA_", "HYDI_", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "I_MPI_HYDRA_", "I_MPI_PMI_"},
}

// mvapich is mpirun_rsh of MVAPICH.
var mvapich = starter{
	title: "MVAPICH's mpirun", mark: "MV2_COMM_WORLD_RANK",
	names: rankNames{
		rank: []string{"MV2_COMM_WORLD_RANK"}, ranks: []string{"MV2_COMM_WORLD_SIZE"},
		local: []string{"MV2_COMM_WORLD_LOCAL_RANK"}, locals: []string{"MV2_COMM_WORLD_LOCAL_SIZE"},
	},
	servesPMI: true, origin: origin{programs: []string{"mpispawn", "hydra_pmi_proxy"}},
	private: []string{"MV2_COMM_", "MVP_COMM_"},
}
