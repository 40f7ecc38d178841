package launcher

import (
	"strings"
	"time"
)

// fluxLauncher is flux run or flux submit as a launcher of daemons. Flux does not requeue jobs, and
// gives processes no host names: only the program flux hostlist does.
var fluxLauncher = launcherSpec{
	name:  LauncherFlux,
	query: fluxQuery,
	traits: Traits{
		NamesNodes: true, StarterProgram: "flux run", JobVariable: "FLUX_JOB_ID",
		RankVariable: "FLUX_TASK_RANK", MergesErrors: true,
		PrivatePrefixes: []string{"FLUX_TASK_", "FLUX_JOB_ID", "FLUX_JOB_SIZE", "FLUX_PMI_"},
	},
	// The ids of an instance that is started by hand begin at its start, so they may repeat.
	facts: Facts{
		KillDelay: 5 * time.Second, KillSetting: "exec.kill-timeout", TermIsFinal: true, AlarmIsFinal: true,
		MayRelaunch: true,
	},
	// A nested instance has ended with its job, so only the outermost job can be looked up.
	formatJob: beforeDash,
	hints: CommandHints{
		Title: "Flux", StartOnNodes: "flux run -N{n} --tasks-per-node=1",
		MoreCPUs:        "flux run --cores-per-task={n}",
		ExcludeNodes:    "flux run --requires=-host:{nodes} …",
		MoreTime:        "flux batch --time-limit=…",
		WhyEnded:        "the time limit, an exception or flux cancel: flux job eventlog {job}",
		ShowNode:        "flux resource status --include={nodes}",
		RunOnEachNode:   "flux run --label-io --tasks-per-node=1 -N…",
		DrainNode:       `flux resource drain {host} "{reason}"`,
		NoRequeueReason: "Flux does not requeue jobs",
	},
	oneEach: "flux run --tasks-per-node=1",
	claim:   claimBy([]string{"FLUX_TASK_RANK"}, "FLUX_JOB_ID", "FLUX_ENCLOSING_ID"),
	starter: fluxStarter,
	// The job is its path among nested instances, because the ids of each instance start from the
	// beginning. Base 58 has no dash, and the first letter of an id may be outside ASCII (RFC 19).
	nameJob: func(env Environment, _ Overrides) (job, step string, facts []string) {
		_, path := env.firstSet("FLUX_JOB_ID_PATH", "FLUX_JOB_ID")
		return sanitizeRunName(strings.ReplaceAll(path, "ƒ", "f")), "", nil
	},
	inShell: shellError("the shell of a Flux instance (FLUX_TASK_RANK is not set)", "no flux run",
		"flux run -N$(flux resource list -no {nnodes}) --tasks-per-node=1 bringupd …"),
}

// fluxStarter is flux run or flux submit: the shell of a Flux job. FLUX_URI and the job's id are
// the same for every process of the job, including those of nested launches.
var fluxStarter = rankStarter{
	displayName: "flux run", markVariable: "FLUX_TASK_RANK",
	variableNames: rankVariables{
		rank: []string{"FLUX_TASK_RANK"}, rankCount: []string{"FLUX_JOB_SIZE"},
		localRank: []string{"FLUX_TASK_LOCAL_ID"}, nodeCount: []string{"FLUX_JOB_NNODES"},
	},
	origin:          starterOrigin{programs: []string{"flux-shell"}},
	privatePrefixes: []string{"FLUX_TASK_", "FLUX_JOB_SIZE", "FLUX_PMI_LIBRARY_PATH"},
}
