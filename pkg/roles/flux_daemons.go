package roles

import (
	"fmt"
	"strings"
)

// Flux is flux run or flux submit as a launcher of daemons. Flux does not requeue jobs, and gives
// processes no host names: only the program flux hostlist does.
const Flux Launcher = "flux"

var flux = launcher{
	name: Flux,
	traits: Traits{
		NamesNodes: true, Starter: "flux run", Job: "FLUX_JOB_ID", Rank: "FLUX_TASK_RANK", Private: []string{"FLUX_"},
	},
	tasks: fluxRun,
	claim: func(env Environment, _ Want) claim {
		switch {
		case env.get(fluxRun.mark) != "":
			return started
		case env.get("FLUX_JOB_ID") != "" || env.get("FLUX_ENCLOSING_ID") != "":
			return hinted
		default:
			return unclaimed
		}
	},
	identify: identifyFlux, words: fluxWords,
}

const fluxStart = "flux run -N%d --tasks-per-node=1"

func fluxWords(job string) Words {
	job = job[strings.LastIndexByte(job, '-')+1:]
	return Words{
		Title: "Flux", Nodes: func(n int) string { return fmt.Sprintf(fluxStart, n) }, Nested: anotherName,
		Exclude:  func(nodes string) string { return "flux run --requires=-host:" + nodes + " …" },
		Time:     "flux batch --time-limit=…",
		WhyEnded: "the time limit, an exception or flux cancel: flux job eventlog " + job,
		ShowNode: func(nodes string) string { return "flux resource status --include=" + nodes },
		OnEach:   "flux run --label-io --tasks-per-node=1 -N…",
		Drain:    func(host, reason string) string { return fmt.Sprintf(`flux resource drain %s "%s"`, host, reason) },
		Gone:     "once flux jobs shows no such job", NoRequeue: "it is a job of Flux's, which starts none anew",
	}
}

func identifyFlux(env Environment, hostname string, want Want) (Identity, error) {
	if env.get(fluxRun.mark) == "" {
		return Identity{}, &LaunchError{
			Problem: "cannot start in the shell of a Flux instance: no flux run has started this process (FLUX_TASK_RANK is not set), and bringupd runs once on every node",
			Mend:    "start it with: flux run -N$(flux resource list -no {nnodes}) --tasks-per-node=1 bringupd …",
			Alone:   true,
		}
	}
	r, err := fluxRun.names.read(env)
	switch {
	case err != nil:
		return Identity{}, torn("Flux", err)
	case r.Nodes == 0:
		return Identity{}, torn("Flux", fmt.Errorf("FLUX_JOB_NNODES is not set"))
	case r.Local > 0 || r.Ranks > r.Nodes:
		return Identity{}, crowded(fmt.Sprintf("the job has %d tasks on %d nodes", r.Ranks, r.Nodes), fmt.Sprintf(fluxStart, r.Nodes))
	}
	return settle(Identity{Launcher: Flux, Rank: r.Rank, Size: r.Ranks, Host: hostname, Job: fluxJob(env)}, want)
}

// fluxJob returns the path of the job among nested instances, because the ids of each instance
// start from the beginning. Base 58 has no dash, and the first letter of an id may be outside ASCII
// (RFC 19).
func fluxJob(env Environment) string {
	_, path := env.first("FLUX_JOB_ID_PATH", "FLUX_JOB_ID")
	return named(strings.ReplaceAll(path, "ƒ", "f"))
}
