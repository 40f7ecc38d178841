package roles

// fluxRun is flux run or flux submit: the shell of a Flux job. FLUX_URI and the job's id are the
// same for every process of the job, including those of nested launches.
var fluxRun = starter{
	title: "flux run", mark: "FLUX_TASK_RANK",
	names: rankNames{
		rank: []string{"FLUX_TASK_RANK"}, ranks: []string{"FLUX_JOB_SIZE"},
		local: []string{"FLUX_TASK_LOCAL_ID"}, nodes: []string{"FLUX_JOB_NNODES"},
	},
	servesPMI: true, origin: origin{programs: []string{"flux-shell"}},
	private: []string{"FLUX_TASK_", "FLUX_JOB_SIZE", "FLUX_PMI_LIBRARY_PATH"},
}
