package launcher

import (
	"fmt"
	"strings"
)

// LauncherFlux is flux run or flux submit as a launcher of daemons. Flux does not requeue jobs, and
// gives processes no host names: only the program flux hostlist does.
const LauncherFlux Launcher = "flux"

var fluxLauncher = launcherSpec{
	name: LauncherFlux,
	traits: Traits{
		NamesNodes: true, StarterProgram: "flux run", JobVariable: "FLUX_JOB_ID", RankVariable: "FLUX_TASK_RANK", PrivatePrefixes: []string{"FLUX_TASK_", "FLUX_JOB_ID", "FLUX_JOB_SIZE", "FLUX_PMI_"},
	},
	rankStarter: fluxStarter,
	claimOf: func(env Environment, _ Overrides) claimLevel {
		switch {
		case env.valueOf(fluxStarter.markVariable) != "":
			return claimStarted
		case env.valueOf("FLUX_JOB_ID") != "" || env.valueOf("FLUX_ENCLOSING_ID") != "":
			return claimHinted
		default:
			return claimNone
		}
	},
	identifyDaemon: identifyFlux, commandHints: fluxHints,
}

const fluxCommandFormat = "flux run -N%d --tasks-per-node=1"

func fluxHints(job string) CommandHints {
	// A nested instance has ended with its job, so only the outermost job can be looked up.
	job, _, _ = strings.Cut(job, "-")
	return CommandHints{
		Title: "Flux", StartOnNodes: func(n int) string { return fmt.Sprintf(fluxCommandFormat, n) }, NestedAdvice: nestedNameAdvice,
		ExcludeNodes:  func(nodes string) string { return "flux run --requires=-host:" + nodes + " …" },
		MoreTime:      "flux batch --time-limit=…",
		WhyEnded:      "the time limit, an exception or flux cancel: flux job eventlog " + job,
		ShowNode:      func(nodes string) string { return "flux resource status --include=" + nodes },
		RunOnEachNode: "flux run --label-io --tasks-per-node=1 -N…",
		DrainNode:     func(host, reason string) string { return fmt.Sprintf(`flux resource drain %s "%s"`, host, reason) },
		JobGoneSign:   "once flux jobs shows no such job", NoRequeueReason: "Flux does not requeue jobs",
	}
}

func identifyFlux(env Environment, hostname string, want Overrides) (Identity, error) {
	if env.valueOf(fluxStarter.markVariable) == "" {
		return Identity{}, &LaunchError{
			Problem: "cannot start in the shell of a Flux instance: no flux run has started this process (FLUX_TASK_RANK is not set), and bringupd runs once on every node",
			Fix:     "start it with: flux run -N$(flux resource list -no {nnodes}) --tasks-per-node=1 bringupd …",
			InShell: true,
		}
	}
	r, err := fluxStarter.variableNames.readRank(env)
	switch {
	case err != nil:
		return Identity{}, environmentError("Flux", err)
	case r.NodeCount == 0:
		return Identity{}, environmentError("Flux", fmt.Errorf("FLUX_JOB_NNODES is not set"))
	case r.LocalRank > 0 || r.RankCount > r.NodeCount:
		return Identity{}, crowdedNodeError(fmt.Sprintf("the job has %d tasks on %d nodes", r.RankCount, r.NodeCount), fmt.Sprintf(fluxCommandFormat, r.NodeCount))
	}
	return completeIdentity(Identity{Launcher: LauncherFlux, NodeIndex: r.Rank, Size: r.RankCount, Host: hostname, Job: fluxJobName(env)}, want)
}

// fluxJobName returns the path of the job among nested instances, because the ids of each instance
// start from the beginning. Base 58 has no dash, and the first letter of an id may be outside ASCII
// (RFC 19).
func fluxJobName(env Environment) string {
	_, path := env.firstSet("FLUX_JOB_ID_PATH", "FLUX_JOB_ID")
	return sanitizeRunName(strings.ReplaceAll(path, "ƒ", "f"))
}
