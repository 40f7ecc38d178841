package launcher

// fluxStarter is flux run or flux submit: the shell of a Flux job. FLUX_URI and the job's id are
// the same for every process of the job, including those of nested launches.
var fluxStarter = rankStarter{
	displayName: "flux run", markVariable: "FLUX_TASK_RANK",
	variableNames: rankVariables{
		rank: []string{"FLUX_TASK_RANK"}, rankCount: []string{"FLUX_JOB_SIZE"},
		localRank: []string{"FLUX_TASK_LOCAL_ID"}, nodeCount: []string{"FLUX_JOB_NNODES"},
	},
	servesPMI: true, origin: starterOrigin{programs: []string{"flux-shell"}},
	privatePrefixes: []string{"FLUX_TASK_", "FLUX_JOB_SIZE", "FLUX_PMI_LIBRARY_PATH"},
}
