package launcher

import (
	"cmp"
	"fmt"
	"path"
	"strings"
)

// LauncherGridEngine is qrsh -inherit of Sun's Grid Engine and its successors, within a parallel
// environment.
//
// A task gets only the job: PE_HOSTFILE, with the hosts, is for the job's script and exists only on
// its host (exec_job.c: "forward PE_HOSTFILE only to master task"). So the script gives each daemon
// its --rank and --nnodes. A job that was started again has RESTARTED=1, without a count.
const LauncherGridEngine Launcher = "gridengine"

var gridEngineLauncher = launcherSpec{
	name: LauncherGridEngine,
	// JOB_ID is too common a name to identify a process's job, or to be removed from the environment
	// of services.
	traits: Traits{
		NamesNodes: true, StarterProgram: "qrsh -inherit", PrivatePrefixes: []string{"PE_HOSTFILE", "SGE_JOB_SPOOL_DIR", "SGE_TASK_"},
		SubmitDirVariable: "SGE_O_WORKDIR",
	},
	rankStarter: gridEngineStarter,
	claimOf: func(env Environment, want Overrides) claimLevel {
		switch {
		case env.valueOf("JOB_ID") == "" || env.valueOf("SGE_TASK_ID") == "":
			return claimNone
		case want.NodeIndex != nil && want.Size != nil:
			return claimGiven
		default:
			return claimHinted
		}
	},
	identifyDaemon: identifyGridEngine, commandHints: gridEngineHints,
}

// gridEngineStarter is the starter of an execution daemon's tasks.
var gridEngineStarter = rankStarter{displayName: "qrsh", origin: starterOrigin{programs: []string{"sge_shepherd"}}}

func gridEngineHints(job string) CommandHints {
	number, index, array := strings.Cut(job, "-")
	if array {
		job = number + "." + index
	}
	return CommandHints{
		Title: "Grid Engine", StartOnNodes: func(n int) string { return fmt.Sprintf("qrsh -inherit, in a job of %d hosts", n) }, NestedAdvice: nestedNameAdvice,
		ExcludeNodes: func(nodes string) string {
			return "qsub -l 'h=!(" + strings.ReplaceAll(spaceSeparated(nodes), " ", "|") + ")' …"
		},
		MoreMemory: "qsub -l h_vmem=…", AllMemory: "qsub -l exclusive=true", MoreTime: "qsub -l h_rt=…",
		WhyEnded:        "h_rt, a limit or qdel: qacct -j " + number,
		MemoryUsed:      "qacct -j " + number,
		ShowNode:        func(nodes string) string { return "qhost -q -h " + strings.ReplaceAll(spaceSeparated(nodes), " ", ",") },
		DrainNode:       func(host, _ string) string { return "qmod -d '*@" + host + "'" },
		JobGoneSign:     "once qstat shows no such job",
		NoRequeueReason: "Grid Engine lets only its managers rerun a job (qmod -rj " + job + "), or the job itself where its script ends with code 99",
	}
}

// gridEngineJobName returns the job's number, with its index in an array.
func gridEngineJobName(env Environment) string {
	job := env.valueOf("JOB_ID")
	if index := env.valueOf("SGE_TASK_ID"); isDecimal(index) {
		job += "-" + index
	}
	return sanitizeRunName(job)
}

// isStartedByQrsh reports whether qrsh -inherit has started this process: the directory of its task
// is within the job's, active_jobs/17.1. Such a task on a host other than the first has one host
// and one slot in its environment (NHOSTS=1), regardless of the job.
func isStartedByQrsh(env Environment) bool {
	dir := env.valueOf("SGE_JOB_SPOOL_DIR")
	return dir != "" && path.Base(path.Dir(dir)) != "active_jobs"
}

func identifyGridEngine(env Environment, hostname string, want Overrides) (Identity, error) {
	id := Identity{Launcher: LauncherGridEngine, Host: hostname, Job: gridEngineJobName(env)}
	if want.NodeIndex != nil && want.Size != nil {
		id.NodeIndex, id.Size = *want.NodeIndex, *want.Size
		return completeIdentity(id, want)
	}
	// A job with one host needs no qrsh.
	if hosts, err := env.parseNumber(1, "NHOSTS"); err == nil && hosts == 1 && !isStartedByQrsh(env) && want.NodeIndex == nil && want.Size == nil {
		id.Size = 1
		return completeIdentity(id, want)
	}
	return Identity{}, &LaunchError{
		Problem: fmt.Sprintf("cannot tell which of the %s hosts of job %s this is: Grid Engine gives its tasks no rank", cmp.Or(shortenText(env.valueOf("NHOSTS")), "job's"), shortenText(id.Job)),
		Fix:     "start it with: qrsh -inherit HOST bringupd --rank=I --nnodes=N …, for the I-th host of PE_HOSTFILE from 0 (deploy/gridengine/generic.sge does so)",
		InShell: want.NodeIndex == nil && want.Size == nil,
	}
}
