package roles

// fluxRun is flux run and flux submit: the shell of a job of Flux. Which instance the
// process is in, FLUX_URI and the job's id, is so for every process of it.
var fluxRun = starter{
	title: "flux run", mark: "FLUX_TASK_RANK",
	names: rankNames{
		rank: []string{"FLUX_TASK_RANK"}, ranks: []string{"FLUX_JOB_SIZE"},
		local: []string{"FLUX_TASK_LOCAL_ID"}, nodes: []string{"FLUX_JOB_NNODES"},
	},
	servesPMI: true, origin: origin{programs: []string{"flux-shell"}},
	private: []string{"FLUX_TASK_", "FLUX_JOB_SIZE", "FLUX_PMI_LIBRARY_PATH"},
}
