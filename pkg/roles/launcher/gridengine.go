package launcher

import (
	"cmp"
	"fmt"
	"path"
)

// gridEngineLauncher is qrsh -inherit of Sun's Grid Engine and its successors, within a parallel
// environment.
//
// A task gets only the job: PE_HOSTFILE, with the hosts, is for the job's script and exists only on
// its host (exec_job.c: "forward PE_HOSTFILE only to master task"). So the script gives each daemon
// its --rank and --nnodes. A job that was started again has RESTARTED=1, without a count.
var gridEngineLauncher = launcherSpec{
	name: LauncherGridEngine,
	// JOB_ID is too common a name to identify a process's job, or to be removed from the environment
	// of services.
	traits: Traits{
		NamesNodes: true, StarterProgram: "qrsh -inherit",
		PrivatePrefixes:   []string{"PE_HOSTFILE", "SGE_JOB_SPOOL_DIR", "SGE_TASK_"},
		SubmitDirVariable: "SGE_O_WORKDIR",
	},
	facts:     Facts{MayRelaunch: true},
	formatJob: beforeDash,
	hints: CommandHints{
		Title: "Grid Engine", StartOnNodes: "qrsh -inherit, in a job of {n} hosts",
		ExcludeNodes: "qsub -l 'h=!({hosts:|})' …",
		MoreMemory:   "qsub -l h_vmem=…", AllMemory: "qsub -l exclusive=true",
		MoreTime:   "qsub -l h_rt=…",
		WhyEnded:   "h_rt, a limit or qdel: qacct -j {job}",
		MemoryUsed: "qacct -j {job}",
		ShowNode:   "qhost -q -h {hosts:,}",
		DrainNode:  "qmod -d '*@{host}'",
		NoRequeueReason: "Grid Engine lets only its managers rerun a job (qmod -rj), " +
			"or the job itself where its script ends with code 99",
	},
	claim:    claimGridEngine,
	starter:  gridEngineStarter,
	identify: identifyGridEngine,
}

// gridEngineStarter is the starter of an execution daemon's tasks.
var gridEngineStarter = rankStarter{
	displayName: "qrsh", origin: starterOrigin{programs: []string{"sge_shepherd"}},
}

func claimGridEngine(env Environment, want Overrides) claimLevel {
	switch {
	case env.valueOf("JOB_ID") == "" || env.valueOf("SGE_TASK_ID") == "":
		return claimNone
	case want.NodeIndex != nil && want.Size != nil:
		return claimGiven
	default:
		return claimHinted
	}
}

// isStartedByQrsh reports whether qrsh -inherit has started this process: the directory of its task
// is within the job's, active_jobs/17.1. Such a task on a host other than the first has one host
// and one slot in its environment (NHOSTS=1), regardless of the job.
func isStartedByQrsh(env Environment) bool {
	dir := env.valueOf("SGE_JOB_SPOOL_DIR")
	return dir != "" && path.Base(path.Dir(dir)) != "active_jobs"
}

func identifyGridEngine(env Environment, hostname string, want Overrides) (Identity, error) {
	job := env.valueOf("JOB_ID")
	if index := env.valueOf("SGE_TASK_ID"); isDecimal(index) { // an element of an array
		job += "-" + index
	}
	id := Identity{Launcher: LauncherGridEngine, Host: hostname, Job: sanitizeRunName(job)}
	if want.NodeIndex != nil && want.Size != nil {
		id.NodeIndex, id.Size = *want.NodeIndex, *want.Size
		return completeIdentity(id, want)
	}
	isBare := want.NodeIndex == nil && want.Size == nil
	hosts, err := env.parseNumber(1, "NHOSTS")
	if err == nil && hosts == 1 && isBare && !isStartedByQrsh(env) { // a job with one host needs no qrsh
		id.Size = 1
		return completeIdentity(id, want)
	}
	return Identity{}, &LaunchError{
		Problem: fmt.Sprintf("cannot tell which of the %s hosts of job %s this is: "+
			"Grid Engine gives its tasks no rank",
			cmp.Or(shortenText(env.valueOf("NHOSTS")), "job's"), shortenText(id.Job)),
		Fix: "start it with: qrsh -inherit HOST bringupd --rank=I --nnodes=N …, " +
			"for the I-th host of PE_HOSTFILE from 0 (deploy/gridengine/generic.sge does so)",
		InShell: isBare,
	}
}
