package launcher

// openMPIStarter is mpirun of Open MPI, versions 4 and 5. Settings of users, such as OMPI_MCA_btl,
// are for every process.
var openMPIStarter = rankStarter{
	displayName: "Open MPI's mpirun", markVariable: "OMPI_COMM_WORLD_RANK",
	variableNames: rankVariables{
		rank: []string{"OMPI_COMM_WORLD_RANK"}, rankCount: []string{"OMPI_COMM_WORLD_SIZE"},
		localRank: []string{"OMPI_COMM_WORLD_LOCAL_RANK"}, localCount: []string{"OMPI_COMM_WORLD_LOCAL_SIZE"},
	},
	servesPMI: true,
	origin:    starterOrigin{programs: []string{"orted", "prted", "prte", "prterun", "orterun", "mpirun", "mpiexec"}},
	privatePrefixes: []string{
		"OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE", "OMPI_NUM_APP_CTX", "OMPI_FIRST_RANKS", "OMPI_APP_CTX_NUM_PROCS", "OMPI_COMMAND", "OMPI_ARGV",
		"OMPI_FILE_LOCATION", "OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir", "OMPI_MCA_mpi_oversubscribe", "ORTE_",
		"PRTE_LAUNCHED", "PRTE_MCA_ess", "PRTE_MCA_prte_", "PRTE_MCA_pmix",
	},
}
