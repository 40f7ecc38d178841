package roles

import (
	"fmt"
	"strings"
)

// LSF is blaunch of IBM's Spectrum LSF, and jsrun under it.
//
// blaunch numbers its tasks from 1 (LSF_PM_TASKID; PRRTE's ess/lsf subtracts one) and starts one
// for each slot of the job, unless it is given hosts (see its manual). LSB_MCPU_HOSTS has each host
// and its slots, LSB_HOSTS one host for each slot. LSB_RESTART reports that the job was started
// again, without a count.
const LSF Launcher = "lsf"

// JSM is jsrun of IBM's job step manager, under LSF.
const JSM Launcher = "jsrun"

var lsf = launcher{
	name: LSF,
	traits: Traits{
		NamesNodes: true, Relaunches: true, Starter: "blaunch", Private: []string{"LSB_", "LSF_PM_", "LS_JOBPID", "LS_EXEC_T"},
		Job: "LSB_JOBID", SubmitDir: "LS_SUBCWD",
	},
	claim: func(env Environment, _ Want) claim {
		switch {
		case env.get("LSB_JOBID") == "":
			return unclaimed
		case env.get("LSF_PM_TASKID") != "":
			return started
		default:
			return hinted
		}
	},
	identify: identifyLSF, words: lsfWords,
}

var jsrunDaemons = launcher{
	name: JSM,
	traits: Traits{
		NamesNodes: true, Relaunches: true, Starter: "jsrun", Rank: "JSM_NAMESPACE_RANK", Private: []string{"JSM_"},
	},
	tasks: jsrun,
	claim: func(env Environment, _ Want) claim {
		if env.get("LSB_JOBID") == "" {
			return unclaimed
		}
		return bothOf(env, "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE")
	},
	identify: identifyJSM,
	words: func(job string) Words {
		words := lsfWords(job)
		words.Nodes = func(n int) string { return fmt.Sprintf("jsrun --nrs %d --rs_per_host 1 --tasks_per_rs 1", n) }
		words.OnEach = "jsrun --rs_per_host 1 --tasks_per_rs 1"
		return words
	},
}

func lsfWords(job string) Words {
	if job, index, array := strings.Cut(job, "-"); array {
		return lsfWords(job + "[" + index + "]")
	}
	quoted := job
	if strings.Contains(job, "[") {
		quoted = `"` + job + `"`
	}
	return Words{
		Title: "LSF", Nodes: func(n int) string { return fmt.Sprintf(`blaunch, in a job of bsub -n %d -R "span[ptile=1]"`, n) }, Nested: anotherName,
		Exclude: func(nodes string) string {
			var parts []string
			for host := range strings.FieldsSeq(spaced(nodes)) {
				parts = append(parts, "hname!='"+host+"'")
			}
			return `bsub -R "select[` + strings.Join(parts, " && ") + `]" …`
		},
		Memory: `bsub -R "rusage[mem=…]" -M …`, AllMemory: "bsub -x without -M", Time: "bsub -W …",
		WhyEnded:   "the run limit, a preemption or bkill: bhist -l " + quoted,
		MemoryUsed: "bjobs -l " + quoted,
		ShowNode:   func(nodes string) string { return "bhosts -l " + spaced(nodes) },
		OnEach:     "blaunch",
		Drain:      func(host, reason string) string { return fmt.Sprintf(`badmin hclose -C "%s" %s`, reason, host) },
		Gone:       "once bjobs shows no such job",
		NoRequeue:  "it is a job of LSF's, which is started anew by hand (brequeue " + quoted + ") or by exit codes of its queue (REQUEUE_EXIT_VALUES)",
	}
}

// lsfJob returns the job's number, with its index in an array. LSB_JOBINDEX is 0 for a job without
// an array.
func lsfJob(env Environment) string {
	job := env.get("LSB_JOBID")
	if index := env.get("LSB_JOBINDEX"); job != "" && index != "" && index != "0" {
		job += "-" + index
	}
	return named(job)
}

func identifyJSM(env Environment, hostname string, want Want) (Identity, error) {
	r, err := jsrun.names.read(env)
	if err != nil {
		return Identity{}, torn("jsrun", err)
	}
	if r.Local > 0 || r.Locals > 1 {
		return Identity{}, crowded(fmt.Sprintf("JSM_NAMESPACE_LOCAL_RANK=%d, rank %d of %d on %s", r.Local, r.Rank, r.Ranks, hostname), "jsrun --rs_per_host 1 --tasks_per_rs 1")
	}
	return settle(Identity{Launcher: JSM, Rank: r.Rank, Size: r.Ranks, Host: hostname, Job: lsfJob(env)}, want)
}

func identifyLSF(env Environment, hostname string, want Want) (Identity, error) {
	slots, err := lsfSlots(env, want)
	if err != nil {
		return Identity{}, torn("LSF", err)
	}
	hosts := each(slots)
	id := Identity{Launcher: LSF, Rank: placeOf(hostname, hosts), Size: len(hosts), Host: hostname, Hosts: hosts, Job: lsfJob(env)}
	task, err := env.number(1, "LSF_PM_TASKID")
	switch {
	case env.get("LSF_PM_TASKID") == "" && len(hosts) > 1:
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot start in the shell of job %s: no blaunch has started this process, and bringupd runs once on each of %d hosts", id.Job, len(hosts)),
			Mend:    `start it with: blaunch -z "` + clip(strings.Join(hosts, " ")) + `" bringupd …, or on this node alone with: bringupd local --nodes=N …`,
			Alone:   true,
		}
	case env.get("LSF_PM_TASKID") != "" && err != nil:
		return Identity{}, torn("LSF", err)
	case task > len(hosts) || task > 0 && id.Rank >= 0 && slots[task-1] == hosts[id.Rank] && placeOf(slots[task-1], slots) < task-1:
		return Identity{}, crowded(fmt.Sprintf("task %d, in a job of %d slots on %d hosts: blaunch starts one for each slot", task, len(slots), len(hosts)),
			`blaunch -z "`+clip(strings.Join(hosts, " "))+`"`)
	case id.Rank < 0 && task > 0 && len(slots) == len(hosts):
		id.Rank = task - 1 // the node has another name of its own
	case id.Rank < 0:
		return Identity{}, torn("LSF", fmt.Errorf("%s is none of the job's hosts (%s)", hostname, clip(strings.Join(hosts, " "))))
	}
	id.Host = hosts[id.Rank]
	return settle(id, want)
}

// lsfSlots returns a host for each slot of the job. LSB_HOSTS is not set if it would be too long,
// or if LSF lists the hosts in a file (LSB_DJOB_HOSTFILE). The file is read last, because it may
// exist on one host only.
func lsfSlots(env Environment, want Want) ([]string, error) {
	if list := env.get("LSB_MCPU_HOSTS"); list != "" {
		return lsfCounts(strings.Fields(list))
	}
	if list := env.get("LSB_HOSTS"); list != "" {
		return hostColumn(strings.Join(strings.Fields(list), "\n"))
	}
	path := env.get("LSB_DJOB_HOSTFILE")
	if path == "" {
		return nil, fmt.Errorf("LSB_MCPU_HOSTS, LSB_HOSTS and LSB_DJOB_HOSTFILE are not set")
	}
	text, err := want.read(path)
	if err != nil {
		return nil, fmt.Errorf("LSB_DJOB_HOSTFILE can't be read: %v", err)
	}
	return hostColumn(text)
}

// lsfCounts parses "hosta 2 hostb 1".
func lsfCounts(words []string) (slots []string, err error) {
	for i := 0; i < len(words); i += 2 {
		n := 0
		if i+1 < len(words) {
			n, err = EnvironmentOf([]string{"LSB_MCPU_HOSTS=" + words[i+1]}).number(1, "LSB_MCPU_HOSTS")
		}
		if err != nil || n == 0 || !isHost(words[i]) || len(slots)+n > maxSize {
			return nil, fmt.Errorf("LSB_MCPU_HOSTS should be hosts, each with its number of slots, and is %q at %q", clip(strings.Join(words, " ")), clip(words[i]))
		}
		for range n {
			slots = append(slots, words[i])
		}
	}
	return slots, nil
}
