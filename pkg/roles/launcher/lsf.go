package launcher

import (
	"fmt"
	"strings"
)

// LauncherLSF is blaunch of IBM's Spectrum LSF, and jsrun under it.
//
// blaunch numbers its tasks from 1 (LSF_PM_TASKID; PRRTE's ess/lsf subtracts one) and starts one
// for each slot of the job, unless it is given hosts (see its manual). LSB_MCPU_HOSTS has each host
// and its slots, LSB_HOSTS one host for each slot. LSB_RESTART reports that the job was started
// again, without a count.
const LauncherLSF Launcher = "lsf"

// LauncherJSM is jsrun of IBM's job step manager, under LSF.
const LauncherJSM Launcher = "jsrun"

var lsfLauncher = launcherSpec{
	name: LauncherLSF,
	traits: Traits{
		NamesNodes: true, StarterProgram: "blaunch", PrivatePrefixes: []string{"LSB_HOSTS", "LSB_MCPU_HOSTS", "LSB_DJOB_", "LSB_JOBPID", "LSB_JOBRES_", "LSF_PM_", "LS_JOBPID", "LS_EXEC_T"},
		JobVariable: "LSB_JOBID", JobNameVariable: "LSB_JOBNAME", SubmitDirVariable: "LS_SUBCWD",
	},
	claimOf: func(env Environment, _ Overrides) claimLevel {
		switch {
		case env.valueOf("LSB_JOBID") == "":
			return claimNone
		case env.valueOf("LSF_PM_TASKID") != "":
			return claimStarted
		default:
			return claimHinted
		}
	},
	identifyDaemon: identifyLSF, commandHints: lsfHints,
}

var jsrunLauncher = launcherSpec{
	name: LauncherJSM,
	traits: Traits{
		NamesNodes: true, StarterProgram: "jsrun", RankVariable: "JSM_NAMESPACE_RANK", PrivatePrefixes: []string{"JSM_"},
	},
	rankStarter: jsrunStarter,
	claimOf: func(env Environment, _ Overrides) claimLevel {
		if env.valueOf("LSB_JOBID") == "" {
			return claimNone
		}
		return claimIfBothSet(env, "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE")
	},
	identifyDaemon: identifyJSM,
	commandHints: func(job string) CommandHints {
		words := lsfHints(job)
		words.StartOnNodes = func(n int) string { return fmt.Sprintf("jsrun --nrs %d --rs_per_host 1 --tasks_per_rs 1", n) }
		words.RunOnEachNode = "jsrun --rs_per_host 1 --tasks_per_rs 1"
		return words
	},
}

func lsfHints(job string) CommandHints {
	if job, index, array := strings.Cut(job, "-"); array {
		return lsfHints(job + "[" + index + "]")
	}
	quoted := job
	if strings.Contains(job, "[") {
		quoted = `"` + job + `"`
	}
	return CommandHints{
		Title: "LSF", StartOnNodes: func(n int) string { return fmt.Sprintf(`blaunch, in a job of bsub -n %d -R "span[ptile=1]"`, n) }, NestedAdvice: nestedNameAdvice,
		ExcludeNodes: func(nodes string) string {
			var parts []string
			for host := range strings.FieldsSeq(spaceSeparated(nodes)) {
				parts = append(parts, "hname!='"+host+"'")
			}
			return `bsub -R "select[` + strings.Join(parts, " && ") + `]" …`
		},
		MoreMemory: `bsub -R "rusage[mem=…]" -M …`, AllMemory: "bsub -x without -M", MoreTime: "bsub -W …",
		WhyEnded:        "the run limit, a preemption or bkill: bhist -l " + quoted,
		MemoryUsed:      "bjobs -l " + quoted,
		ShowNode:        func(nodes string) string { return "bhosts -l " + spaceSeparated(nodes) },
		RunOnEachNode:   "blaunch",
		DrainNode:       func(host, reason string) string { return fmt.Sprintf(`badmin hclose -C "%s" %s`, reason, host) },
		JobGoneSign:     "once bjobs shows no such job",
		NoRequeueReason: "it is a job of LSF's, which is requeued by hand (brequeue " + quoted + ") or by exit codes of its queue (REQUEUE_EXIT_VALUES)",
	}
}

// lsfJobName returns the job's number, with its index in an array. LSB_JOBINDEX is 0 for a job
// without an array.
func lsfJobName(env Environment) string {
	job := env.valueOf("LSB_JOBID")
	if index := env.valueOf("LSB_JOBINDEX"); job != "" && index != "" && index != "0" {
		job += "-" + index
	}
	return sanitizeRunName(job)
}

func identifyJSM(env Environment, hostname string, want Overrides) (Identity, error) {
	r, err := jsrunStarter.variableNames.readRank(env)
	if err != nil {
		return Identity{}, environmentError("jsrun", err)
	}
	if r.LocalRank > 0 || r.LocalCount > 1 {
		return Identity{}, crowdedNodeError(fmt.Sprintf("JSM_NAMESPACE_LOCAL_RANK=%d, rank %d of %d on %s", r.LocalRank, r.Rank, r.RankCount, hostname), "jsrun --rs_per_host 1 --tasks_per_rs 1")
	}
	return completeIdentity(Identity{Launcher: LauncherJSM, NodeIndex: r.Rank, Size: r.RankCount, Host: hostname, Job: lsfJobName(env)}, want)
}

func identifyLSF(env Environment, hostname string, want Overrides) (Identity, error) {
	slots, err := lsfSlots(env, want)
	if err != nil {
		return Identity{}, environmentError("LSF", err)
	}
	hosts := uniqueHosts(slots)
	id := Identity{Launcher: LauncherLSF, NodeIndex: hostIndex(hostname, hosts), Size: len(hosts), Host: hostname, Hosts: hosts, Job: lsfJobName(env)}
	task, err := env.parseNumber(1, "LSF_PM_TASKID")
	switch {
	case env.valueOf("LSF_PM_TASKID") == "" && len(hosts) > 1:
		return Identity{}, &LaunchError{
			Problem:  fmt.Sprintf("cannot start in the shell of job %s: no blaunch has started this process, and bringupd runs once on each of %d hosts", id.Job, len(hosts)),
			Fix:      `start it with: blaunch -z "` + shortenText(strings.Join(hosts, " ")) + `" bringupd …`,
			LocalFix: "or on this node alone with: bringupd local --nodes=N …",
			InShell:  true,
		}
	case env.valueOf("LSF_PM_TASKID") != "" && err != nil:
		return Identity{}, environmentError("LSF", err)
	case task > len(hosts) || task > 0 && id.NodeIndex >= 0 && slots[task-1] == hosts[id.NodeIndex] && hostIndex(slots[task-1], slots) < task-1:
		return Identity{}, crowdedNodeError(fmt.Sprintf("task %d, in a job of %d slots on %d hosts: blaunch starts one for each slot", task, len(slots), len(hosts)),
			`blaunch -z "`+shortenText(strings.Join(hosts, " "))+`"`)
	case id.NodeIndex < 0 && task > 0 && len(slots) == len(hosts):
		id.NodeIndex = task - 1 // the node has another name of its own
	case id.NodeIndex < 0:
		return Identity{}, environmentError("LSF", fmt.Errorf("%s is none of the job's hosts (%s)", hostname, shortenText(strings.Join(hosts, " "))))
	}
	id.Host = hosts[id.NodeIndex]
	return completeIdentity(id, want)
}

// lsfSlots returns a host for each slot of the job. LSB_HOSTS is not set if it would be too long,
// or if LSF lists the hosts in a file (LSB_DJOB_HOSTFILE). The file is read last, because it may
// exist on one host only.
func lsfSlots(env Environment, want Overrides) ([]string, error) {
	if list := env.valueOf("LSB_MCPU_HOSTS"); list != "" {
		return parseLSFCounts(strings.Fields(list))
	}
	if list := env.valueOf("LSB_HOSTS"); list != "" {
		return parseHostColumn(strings.Join(strings.Fields(list), "\n"))
	}
	path := env.valueOf("LSB_DJOB_HOSTFILE")
	if path == "" {
		return nil, fmt.Errorf("LSB_MCPU_HOSTS, LSB_HOSTS and LSB_DJOB_HOSTFILE are not set")
	}
	text, err := want.readLauncherFile(path)
	if err != nil {
		return nil, fmt.Errorf("LSB_DJOB_HOSTFILE can't be read: %v", err)
	}
	return parseHostColumn(text)
}

// parseLSFCounts parses "hosta 2 hostb 1".
func parseLSFCounts(words []string) (slots []string, err error) {
	for i := 0; i < len(words); i += 2 {
		n := 0
		if i+1 < len(words) {
			n, err = EnvironmentOf([]string{"LSB_MCPU_HOSTS=" + words[i+1]}).parseNumber(1, "LSB_MCPU_HOSTS")
		}
		if err != nil || n == 0 || !isHostName(words[i]) || len(slots)+n > maxNodes {
			return nil, fmt.Errorf("LSB_MCPU_HOSTS should be hosts, each with its number of slots, and is %q at %q", shortenText(strings.Join(words, " ")), shortenText(words[i]))
		}
		for range n {
			slots = append(slots, words[i])
		}
	}
	return slots, nil
}
