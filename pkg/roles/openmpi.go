package roles

// openMPI is mpirun of Open MPI, versions 4 and 5. Settings of users, such as OMPI_MCA_btl, are for
// every process.
var openMPI = starter{
	title: "Open MPI's mpirun", mark: "OMPI_COMM_WORLD_RANK",
	names: rankNames{
		rank: []string{"OMPI_COMM_WORLD_RANK"}, ranks: []string{"OMPI_COMM_WORLD_SIZE"},
		local: []string{"OMPI_COMM_WORLD_LOCAL_RANK"}, locals: []string{"OMPI_COMM_WORLD_LOCAL_SIZE"},
	},
	servesPMI: true,
	origin:    origin{programs: []string{"orted", "prted", "prte", "prterun", "orterun", "mpirun", "mpiexec"}},
	private: []string{
		"OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE", "OMPI_NUM_APP_CTX", "OMPI_FIRST_RANKS", "OMPI_APP_CTX_NUM_PROCS", "OMPI_COMMAND", "OMPI_ARGV",
		"OMPI_FILE_LOCATION", "OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir", "OMPI_MCA_mpi_oversubscribe", "ORTE_",
		"PRTE_LAUNCHED", "PRTE_MCA_ess", "PRTE_MCA_prte_", "PRTE_MCA_pmix",
	},
}
