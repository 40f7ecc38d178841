package roles

import (
	"cmp"
	"fmt"
	"path"
	"strings"
)

// GridEngine is qrsh -inherit of Sun's Grid Engine and its successors, within a parallel
// environment.
//
// A task gets only the job: PE_HOSTFILE, with the hosts, is for the job's script and exists only on
// its host (exec_job.c: "forward PE_HOSTFILE only to master task"). So the script gives each daemon
// its --rank and --nnodes. A job that was started again has RESTARTED=1, without a count.
const GridEngine Launcher = "gridengine"

var gridEngine = launcher{
	name: GridEngine,
	// JOB_ID is too common a name to identify a process's job, or to be removed from the environment
	// of services.
	traits: Traits{
		NamesNodes: true, Relaunches: true, Starter: "qrsh -inherit", Private: []string{"PE_HOSTFILE", "SGE_JOB_SPOOL_DIR", "SGE_TASK_"},
		SubmitDir: "SGE_O_WORKDIR",
	},
	tasks: gridEngineTasks,
	claim: func(env Environment, want Want) claim {
		switch {
		case env.get("JOB_ID") == "" || env.get("SGE_TASK_ID") == "":
			return unclaimed
		case want.Rank != nil && want.Size != nil:
			return told
		default:
			return hinted
		}
	},
	identify: identifyGridEngine, words: gridEngineWords,
}

// gridEngineTasks is the starter of an execution daemon's tasks.
var gridEngineTasks = starter{title: "qrsh", origin: origin{programs: []string{"sge_shepherd"}}}

func gridEngineWords(job string) Words {
	number, index, array := strings.Cut(job, "-")
	if array {
		job = number + "." + index
	}
	return Words{
		Title: "Grid Engine", Nodes: func(n int) string { return fmt.Sprintf("qrsh -inherit, in a job of %d hosts", n) }, Nested: anotherName,
		Exclude: func(nodes string) string {
			return "qsub -l 'h=!(" + strings.ReplaceAll(spaced(nodes), " ", "|") + ")' …"
		},
		Memory: "qsub -l h_vmem=…", AllMemory: "qsub -l exclusive=true", Time: "qsub -l h_rt=…",
		WhyEnded:   "h_rt, a limit or qdel: qacct -j " + number,
		MemoryUsed: "qacct -j " + number,
		ShowNode:   func(nodes string) string { return "qhost -q -h " + strings.ReplaceAll(spaced(nodes), " ", ",") },
		Drain:      func(host, _ string) string { return "qmod -d '*@" + host + "'" },
		Gone:       "once qstat shows no such job",
		NoRequeue:  "Grid Engine lets its managers alone have a job run again (qmod -rj " + job + "), or the job itself where its script ends with code 99",
	}
}

// gridEngineJob returns the job's number, with its index in an array.
func gridEngineJob(env Environment) string {
	job := env.get("JOB_ID")
	if index := env.get("SGE_TASK_ID"); isDecimal(index) {
		job += "-" + index
	}
	return named(job)
}

// ofQrsh reports whether qrsh -inherit has started this process: the directory of its task is
// within the job's, active_jobs/17.1. Such a task on a host other than the first has one host and
// one slot in its environment (NHOSTS=1), regardless of the job.
func ofQrsh(env Environment) bool {
	dir := env.get("SGE_JOB_SPOOL_DIR")
	return dir != "" && path.Base(path.Dir(dir)) != "active_jobs"
}

func identifyGridEngine(env Environment, hostname string, want Want) (Identity, error) {
	id := Identity{Launcher: GridEngine, Host: hostname, Job: gridEngineJob(env)}
	if want.Rank != nil && want.Size != nil {
		id.Rank, id.Size = *want.Rank, *want.Size
		return settle(id, want)
	}
	// A job with one host needs no qrsh.
	if hosts, err := env.number(1, "NHOSTS"); err == nil && hosts == 1 && !ofQrsh(env) && want.Rank == nil && want.Size == nil {
		id.Size = 1
		return settle(id, want)
	}
	return Identity{}, &LaunchError{
		Problem: fmt.Sprintf("cannot tell which of the %s hosts of job %s this is: Grid Engine tells its tasks no rank", cmp.Or(clip(env.get("NHOSTS")), "job's"), clip(id.Job)),
		Mend:    "start it with: qrsh -inherit HOST bringupd --rank=I --nnodes=N …, for the I-th host of PE_HOSTFILE from 0 (deploy/gridengine/generic.sge does so)",
		Alone:   want.Rank == nil && want.Size == nil,
	}
}
