package launcher

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

func pbsFacts(mayRelaunch bool) Facts {
	return Facts{
		KillDelay: 10 * time.Second, KillSetting: "kill_delay of the queue", TermIsFinal: true,
		MayRelaunch: mayRelaunch,
	}
}

// pbsHints are the words of PBS for a launcher that starts daemons with these commands.
func pbsHints(start, onEach string) CommandHints {
	return CommandHints{
		Title: "PBS", StartOnNodes: start,
		MoreCPUs:   "qsub -l select=…:ncpus={n}",
		MoreMemory: "qsub -l select=…:mem=…", AllMemory: "-l place=scatter:excl without mem=",
		MoreTime:      "qsub -l walltime=…",
		WhyEnded:      "the walltime, a preemption or qdel: qstat -xf {job}",
		MemoryUsed:    "qstat -xf {job}",
		ShowNode:      "pbsnodes {hosts: }",
		RunOnEachNode: onEach,
		DrainNode:     `pbsnodes -C "{reason}" -o {host}`,
		NoRequeueReason: "PBS lets only its operators rerun a job (qrerun {job}), " +
			"or does so itself after a node failure",
	}
}

// pbsdshCommand is the command that starts one daemon on each of {n} hosts.
const pbsdshCommand = "pbsdsh, in a job of -l select={n}:mpiprocs=1 -l place=scatter"

var pbsLauncherHints = pbsHints(pbsdshCommand, "pbsdsh --")

// pbsLauncher is pbsdsh or pbs_tmrsh of OpenPBS and PBS Professional: the job's task manager
// starts the tasks.
//
// A task gets the job, and the index of its host among the job's hosts (PBS_NODENUM: ji_nodeid in
// OpenPBS's src/resmom/start_exec.c), but not the number of hosts. PBS_NODEFILE has a line for each
// process slot of the job. Tasks on the first host do not get that variable, although the file
// exists: see pbsNodeFile. If PBS makes the file only on the first host (before December 2020, or
// with $gen_nodefile_on_sister_mom 0), --nnodes must be given. The number of restarts is not
// available.
var pbsLauncher = launcherSpec{
	name:  LauncherPBS,
	query: pbsQuery,
	traits: Traits{
		NamesNodes: true, StarterProgram: "pbsdsh", MergesErrors: true,
		PrivatePrefixes: []string{
			"PBS_NODEFILE", "PBS_ENVIRONMENT", "PBS_NODENUM", "PBS_TASKNUM", "PBS_VNODENUM", "PBS_MOMPORT",
			"PBS_JOBCOOKIE",
		},
		JobVariable: "PBS_JOBID", JobNameVariable: "PBS_JOBNAME", RankVariable: "PBS_NODENUM",
		SubmitDirVariable: "PBS_O_WORKDIR",
	},
	facts:       pbsFacts(true),
	formatJob:   bracketElement,
	hints:       pbsLauncherHints,
	claim:       claimPBS,
	starter:     pbsStarter,
	completeJob: pbsArrayVariables,
	identify:    identifyPBS,
}

// pbsArrayVariables returns the variables by which a script of a job array finds its element. OpenPBS
// gives them to the job's script, but not to the tasks of pbsdsh and pbs_tmrsh (23.06).
func pbsArrayVariables(env Environment) map[string]string {
	array, rest, isElement := strings.Cut(env.valueOf("PBS_JOBID"), "[")
	index, server, isClosed := strings.Cut(rest, "]")
	set := make(map[string]string)
	if isElement && isClosed && isDecimal(index) {
		for name, value := range map[string]string{
			"PBS_ARRAY_INDEX": index, "PBS_ARRAY_ID": array + "[]" + server,
		} {
			if env.valueOf(name) == "" {
				set[name] = value
			}
		}
	}
	return set
}

var pbsStarter = rankStarter{
	displayName: "pbsdsh", origin: starterOrigin{programs: []string{"pbs_mom"}},
}

// palsLauncher is mpiexec or aprun of HPE's PALS, under PBS, as a launcher of daemons. Each launch
// has an id of its own, so a job can have several.
var palsLauncher = launcherSpec{
	name: LauncherPALS,
	traits: Traits{
		StarterProgram: "mpiexec", MergesErrors: true, RankVariable: "PALS_RANKID",
		PrivatePrefixes: []string{"PALS_", "ALPS_"},
	},
	facts:     pbsFacts(false),
	formatJob: bracketElement,
	hints:     pbsHints("mpiexec -n {n} --ppn 1", "mpiexec --ppn 1 --line-buffer"),
	oneEach:   "mpiexec --ppn 1",
	claim:     claimPALS,
	starter:   palsStarter,
	nameJob: func(env Environment, _ Overrides) (job, step string, facts []string) {
		launch := env.valueOf("PALS_APID")
		// mpiexec passes its whole environment to all of its processes, or none of it.
		if job, step = pbsJobName(env), sanitizeRunName(launch); job == "" {
			job, step = step, ""
		}
		return job, step, []string{launch, env.valueOf("PBS_JOBID")}
	},
}

// claimPALS ignores Slurm steps. Slurm's plugin for Cray's MPI sets the same variables, with an id
// of the job and the step (src/plugins/mpi/cray_shasta/apinfo.c).
func claimPALS(env Environment, want Overrides) claimLevel {
	job := env.valueOf("SLURM_JOB_ID") + "."
	if inSlurmStep(env) && strings.HasPrefix(env.valueOf("PALS_APID"), job) {
		return claimNone
	}
	return claimBy([]string{"PALS_RANKID", "PALS_APID"})(env, want)
}

// palsStarter is mpiexec or aprun of HPE's PALS, also under PBS. Only PMI's variable has the number
// of ranks, and PALS_PMI=pmix does not set it.
var palsStarter = rankStarter{
	displayName: "PALS", markVariable: "PALS_RANKID",
	variableNames: rankVariables{
		rank: []string{"PALS_RANKID"}, rankCount: []string{"PMI_SIZE"},
		localRank:  []string{"PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"},
		localCount: []string{"PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"},
		nodeIndex:  []string{"PALS_NODEID"},
	},
	countRanks:      countPALSRanks,
	privatePrefixes: []string{"PALS_", "ALPS_APP_"},
}

// countPALSRanks counts the processes of a launch on all hosts of the job, or on the given number, with
// as many on each host. It returns an error if this process shows that its host has fewer.
func countPALSRanks(env Environment, want Overrides) (int, error) {
	rank, errRank := env.parseNumber(0, "PALS_RANKID")
	node, errNode := env.parseNumber(0, "PALS_NODEID")
	local, errLocal := env.parseNumber(0, "PALS_LOCAL_RANKID")
	perNode, errCount := env.parseNumber(1, "PALS_LOCAL_SIZE")
	if err := cmp.Or(errRank, errNode, errLocal, errCount); err != nil {
		return 0, err
	}
	if rank != node*perNode+local {
		return 0, fmt.Errorf("rank %d is number %d of %d on node %d, so that other nodes have another number",
			rank, local, perNode, node)
	}
	if want.Size != nil {
		return *want.Size * perNode, nil
	}
	lines, err := readPBSNodeFile(env, want)
	if err != nil {
		return 0, fmt.Errorf("the job's PBS_NODEFILE (%q) cannot be read: %v", pbsNodeFile(env), err)
	}
	return len(uniqueHosts(lines)) * perNode, nil
}

func claimPBS(env Environment, want Overrides) claimLevel {
	level := claimBy([]string{"PBS_JOBID", "PBS_NODENUM", "PBS_TASKNUM"}, "PBS_JOBID")(env, want)
	if inPBSShell(env) {
		return min(level, claimHinted)
	}
	return level
}

// inPBSShell reports whether this is the job's script or its shell: the task manager's first task,
// on the first host.
func inPBSShell(env Environment) bool {
	return env.valueOf("PBS_NODENUM") == "0" &&
		strings.TrimLeft(env.valueOf("PBS_TASKNUM"), "0") == "1"
}

// pbsJobName returns the job's number, with its index in an array: "17[4].server" is "17-4".
// Another server is another cluster.
func pbsJobName(env Environment) string {
	job, _, _ := strings.Cut(env.valueOf("PBS_JOBID"), ".")
	return sanitizeRunName(strings.ReplaceAll(job, "[]", ""))
}

func identifyPBS(env Environment, hostname string, want Overrides) (Identity, error) {
	node, err := env.parseNumber(0, "PBS_NODENUM")
	if err != nil {
		return Identity{}, environmentError("PBS", err)
	}
	lines, err := readPBSNodeFile(env, want)
	hosts := uniqueHosts(lines)
	// Chunks with mpiprocs=0 have a PBS_NODENUM, but no line.
	if at := hostIndex(hostname, hosts); at >= 0 {
		node = at
	}
	id := Identity{
		Launcher: LauncherPBS, NodeIndex: node, Size: len(hosts), Host: hostname, Job: pbsJobName(env),
	}
	repeats := len(lines) > len(hosts) && want.Size == nil && !inPBSShell(env)
	switch {
	case err != nil && want.Size == nil:
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot tell how many nodes the job has: "+
				"its PBS_NODEFILE (%q) cannot be read on %s: %v",
				shortenText(pbsNodeFile(env)), hostname, err),
			Fix: "give --nnodes, as in: " +
				"pbsdsh -- bringupd --nnodes=$(sort -u $PBS_NODEFILE | wc -l) …",
		}
	case inPBSShell(env) && (len(hosts) > 1 || want.Size != nil && *want.Size > 1):
		return Identity{}, shellError("the shell of job "+id.Job, "neither pbsdsh nor pbs_tmrsh",
			"pbsdsh -- bringupd …, or as deploy/pbs/generic.pbs does")
	case err != nil:
		id.Size = *want.Size
	case repeats:
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot run several daemons on one node: PBS_NODEFILE has %d lines for "+
				"%d hosts, and pbsdsh starts a process for each line", len(lines), len(hosts)),
			Fix: fmt.Sprintf("start it with: %s; or, started once a host (pbs_tmrsh HOST), "+
				"with --nnodes=%d", pbsLauncherHints.StartOn(len(hosts)), len(hosts)),
		}
	case node < len(hosts) && IsSameHost(hostname, hosts[node]):
		id.Host, id.Hosts = hosts[node], hosts
	}
	return completeIdentity(id, want, env.valueOf("PBS_JOBID"))
}

// readPBSNodeFile returns the lines of the job's PBS_NODEFILE.
func readPBSNodeFile(env Environment, want Overrides) (lines []string, err error) {
	text, err := want.ReadFile(pbsNodeFile(env))
	if err != nil {
		return nil, err
	}
	return parseHostColumn(string(text))
}

// pbsNodeFile returns the path of the job's PBS_NODEFILE. If the variable is not set, it returns the
// path at which the MoM of every host writes the file, in the default PBS_HOME.
func pbsNodeFile(env Environment) string {
	home := cmp.Or(env.valueOf("PBS_HOME"), "/var/spool/pbs")
	return cmp.Or(env.valueOf("PBS_NODEFILE"), filepath.Join(home, "aux", env.valueOf("PBS_JOBID")))
}
