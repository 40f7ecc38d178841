package launcher

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// lsfLauncher is blaunch of IBM's Spectrum LSF.
//
// blaunch numbers its tasks from 1 (LSF_PM_TASKID; PRRTE's ess/lsf subtracts one) and starts one
// for each slot of the job, unless it is given hosts (see its manual). LSB_MCPU_HOSTS has each host
// and its slots, LSB_HOSTS one host for each slot. LSB_RESTART reports that the job was started
// again, without a count.
var lsfLauncher = launcherSpec{
	name:  LauncherLSF,
	query: lsfQuery,
	traits: Traits{
		NamesNodes: true, StarterProgram: "blaunch",
		PrivatePrefixes: []string{
			"LSB_HOSTS", "LSB_MCPU_HOSTS", "LSB_DJOB_", "LSB_JOBPID", "LSB_JOBRES_", "LSF_PM_", "LS_JOBPID",
			"LS_EXEC_T", "JSM_",
		},
		JobVariable: "LSB_JOBID", JobNameVariable: "LSB_JOBNAME", SubmitDirVariable: "LS_SUBCWD",
	},
	// LSF sends INT, TERM and KILL.
	facts: Facts{
		KillDelay: 10 * time.Second, KillSetting: "JOB_TERMINATE_INTERVAL", TermIsFinal: true, MayRelaunch: true,
	},
	formatJob: formatLSFJob,
	hints: CommandHints{
		Title:        "LSF",
		StartOnNodes: `blaunch, in a job of bsub -n {n} -R "span[ptile=1]"`,
		ExcludeNodes: `bsub -R "select[hname!='{hosts:' && hname!='}']" …`,
		MoreMemory:   `bsub -R "rusage[mem=…]" -M …`, AllMemory: "bsub -x without -M",
		MoreTime:      "bsub -W …",
		WhyEnded:      "the run limit, a preemption or bkill: bhist -l {job}",
		MemoryUsed:    "bjobs -l {job}",
		ShowNode:      "bhosts -l {hosts: }",
		RunOnEachNode: "blaunch",
		DrainNode:     `badmin hclose -C "{reason}" {host}`,
		NoRequeueReason: "it is a job of LSF's, which is requeued by hand (brequeue {job}) " +
			"or by exit codes of its queue (REQUEUE_EXIT_VALUES)",
	},
	claim:    claimBy([]string{"LSB_JOBID", "LSF_PM_TASKID"}, "LSB_JOBID"),
	identify: identifyLSF,
}

// formatLSFJob writes a job for a shell: an element of an array is in quotes.
func formatLSFJob(job string) string {
	if element := bracketElement(job); element != job {
		return `"` + element + `"`
	}
	return job
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

func identifyLSF(env Environment, hostname string, want Overrides) (Identity, error) {
	slots, err := lsfSlots(env, want)
	if err != nil {
		return Identity{}, environmentError("LSF", err)
	}
	hosts := uniqueHosts(slots)
	hostList := shortenText(strings.Join(hosts, " "))
	start := `blaunch -z "` + hostList + `"`
	id := Identity{
		Launcher: LauncherLSF, NodeIndex: hostIndex(hostname, hosts), Size: len(hosts),
		Host: hostname, Hosts: hosts, Job: lsfJobName(env),
	}
	isTask := env.valueOf("LSF_PM_TASKID") != ""
	task, err := env.parseNumber(1, "LSF_PM_TASKID")
	isRepeated := task > len(hosts) || task > 0 && id.NodeIndex >= 0 &&
		slots[task-1] == hosts[id.NodeIndex] && hostIndex(slots[task-1], slots) < task-1
	switch {
	case !isTask && len(hosts) > 1:
		return Identity{}, shellError("the shell of job "+id.Job, "no blaunch", start+" bringupd …")
	case isTask && err != nil:
		return Identity{}, environmentError("LSF", err)
	case isRepeated:
		seen := fmt.Sprintf("task %d, in a job of %d slots on %d hosts: blaunch starts one for each slot",
			task, len(slots), len(hosts))
		return Identity{}, crowdedNodeError(seen, start, false)
	case id.NodeIndex < 0 && task > 0 && len(slots) == len(hosts):
		id.NodeIndex = task - 1 // the node has another name of its own
	case id.NodeIndex < 0:
		err := fmt.Errorf("%s is none of the job's hosts (%s)", hostname, hostList)
		return Identity{}, environmentError("LSF", err)
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
		return nil, errors.New("LSB_MCPU_HOSTS, LSB_HOSTS and LSB_DJOB_HOSTFILE are not set")
	}
	text, err := want.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("LSB_DJOB_HOSTFILE cannot be read: %v", err)
	}
	return parseHostColumn(string(text))
}

// parseLSFCounts parses "hosta 2 hostb 1".
func parseLSFCounts(words []string) (slots []string, err error) {
	for i := 0; i < len(words); i += 2 {
		n := 0
		if i+1 < len(words) {
			n, err = parseWhole("LSB_MCPU_HOSTS", words[i+1], 1)
		}
		if err != nil || n == 0 || !IsHostName(words[i]) || len(slots)+n > maxNodes {
			return nil, fmt.Errorf("LSB_MCPU_HOSTS should be hosts, each with its number of slots, "+
				"and is %q at %q", shortenText(strings.Join(words, " ")), shortenText(words[i]))
		}
		for range n {
			slots = append(slots, words[i])
		}
	}
	return slots, nil
}
