package launcher

import (
	"fmt"
	"strings"
)

// LauncherPALS is mpiexec or aprun of HPE's PALS, under PBS, as a launcher of daemons. Each launch
// has an id of its own, so a job can have several.
const LauncherPALS Launcher = "pals"

var palsLauncher = launcherSpec{
	name: LauncherPALS,
	traits: Traits{
		StarterProgram: "mpiexec", RankVariable: "PALS_RANKID", PrivatePrefixes: []string{"PALS_", "ALPS_"},
	},
	rankStarter: palsStarter,
	claimOf:     claimPALS, identifyDaemon: identifyPALS,
	commandHints: func(job string) CommandHints {
		words := pbsHints(job)
		words.StartOnNodes = func(n int) string { return fmt.Sprintf("mpiexec -n %d --ppn 1", n) }
		words.RunOnEachNode = "mpiexec --ppn 1 --line-buffer"
		return words
	},
}

// claimPALS ignores Slurm steps. Slurm's plugin for Cray's MPI sets the same variables, with an id
// of the job and the step (src/plugins/mpi/cray_shasta/apinfo.c).
func claimPALS(env Environment, _ Overrides) claimLevel {
	if inSlurmStep(env) && strings.HasPrefix(env.valueOf("PALS_APID"), env.valueOf("SLURM_JOB_ID")+".") {
		return claimNone
	}
	return claimIfBothSet(env, "PALS_RANKID", "PALS_APID")
}

func identifyPALS(env Environment, hostname string, want Overrides) (Identity, error) {
	r, err := palsStarter.variableNames.readRank(env)
	if err != nil {
		return Identity{}, environmentError(palsStarter.displayName, err)
	}
	if r.LocalRank > 0 || r.LocalCount > 1 {
		return Identity{}, crowdedNodeError(fmt.Sprintf("PALS_LOCAL_RANKID=%d, rank %d of %d on %s", r.LocalRank, r.Rank, r.RankCount, hostname), "mpiexec --ppn 1")
	}
	id := Identity{Launcher: LauncherPALS, NodeIndex: r.Rank, Size: r.RankCount, Host: hostname}
	// mpiexec passes its whole environment to all of its processes, or none of it.
	if id.Job = pbsJobName(env); id.Job == "" {
		id.Job = sanitizeRunName(env.valueOf("PALS_APID"))
	} else if want.JobID == "" {
		id.Step = sanitizeRunName(env.valueOf("PALS_APID"))
	}
	return completeIdentity(id, want, env.valueOf("PALS_APID"), env.valueOf("PBS_JOBID"))
}
