package roles

import (
	"fmt"
	"strings"
)

// PALS is mpiexec or aprun of HPE's PALS, under PBS, as a launcher of daemons. Each launch has an
// id of its own, so a job can have several.
const PALS Launcher = "pals"

var palsDaemons = launcher{
	name: PALS,
	traits: Traits{
		Starter: "mpiexec", Rank: "PALS_RANKID", Private: []string{"PALS_", "ALPS_"},
	},
	tasks: pals,
	claim: claimPALS, identify: identifyPALS,
	words: func(job string) Words {
		words := pbsWords(job)
		words.Nodes = func(n int) string { return fmt.Sprintf("mpiexec -n %d --ppn 1", n) }
		words.OnEach = "mpiexec --ppn 1 --line-buffer"
		return words
	},
}

// claimPALS ignores Slurm steps. Slurm's plugin for Cray's MPI sets the same variables, with an id
// of the job and the step (src/plugins/mpi/cray_shasta/apinfo.c).
func claimPALS(env Environment, _ Want) claim {
	if inSlurmStep(env) && strings.HasPrefix(env.get("PALS_APID"), env.get("SLURM_JOB_ID")+".") {
		return unclaimed
	}
	return bothOf(env, "PALS_RANKID", "PALS_APID")
}

func identifyPALS(env Environment, hostname string, want Want) (Identity, error) {
	r, err := pals.names.read(env)
	if err != nil {
		return Identity{}, torn(pals.title, err)
	}
	if r.Local > 0 || r.Locals > 1 {
		return Identity{}, crowded(fmt.Sprintf("PALS_LOCAL_RANKID=%d, rank %d of %d on %s", r.Local, r.Rank, r.Ranks, hostname), "mpiexec --ppn 1")
	}
	id := Identity{Launcher: PALS, Rank: r.Rank, Size: r.Ranks, Host: hostname}
	// mpiexec passes its whole environment to all of its processes, or none of it.
	if id.Job = pbsJob(env); id.Job == "" {
		id.Job = named(env.get("PALS_APID"))
	} else if want.JobID == "" {
		id.Step = named(env.get("PALS_APID"))
	}
	return settle(id, want, env.get("PALS_APID"), env.get("PBS_JOBID"))
}
