package launcher

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// kubernetesLauncher is the controller of an Indexed Job, with one daemon per pod, also within a
// JobSet.
//
// A pod gets its index (JOB_COMPLETION_INDEX), and its host name is "<job>-<index>". It does not
// get the number of pods: no field of the downward API has the completions. A failed pod is
// replaced by one with the same index.
var kubernetesLauncher = launcherSpec{
	name: LauncherKubernetes,
	traits: Traits{
		StarterProgram: "the pods start", RankVariable: "JOB_COMPLETION_INDEX",
		PrivatePrefixes: []string{"JOB_COMPLETION_INDEX"},
	},
	// A pod does not get its grace period.
	facts: Facts{
		KillDelay: 30 * time.Second, KillSetting: "terminationGracePeriodSeconds",
		MayRelaunch: true, RelaunchesEachDaemon: true,
	},
	hints: CommandHints{
		Title: "Kubernetes", StartOnNodes: "a Job of completions: {n}, parallelism: {n}",
		MoreMemory:      "resources.limits.memory of the pods",
		MoreTime:        "activeDeadlineSeconds: … of the Job",
		WhyEnded:        "activeDeadlineSeconds, an eviction or kubectl delete: kubectl describe job {job}",
		MemoryUsed:      "kubectl top pod -l job-name={job}",
		HowEnded:        "kubectl describe pods -l job-name={job} (Last State, Reason: OOMKilled or Evicted)",
		NoRequeueReason: "Kubernetes itself restarts failed pods, by the Job's backoffLimit",
	},
	claim:    claimBy([]string{"JOB_COMPLETION_INDEX"}, "KUBERNETES_SERVICE_HOST", workerSetIndex, volcanoIndex),
	identify: identifyKubernetes,
}

func identifyKubernetes(env Environment, hostname string, want Overrides) (Identity, error) {
	index := env.valueOf("JOB_COMPLETION_INDEX")
	if index == "" {
		return Identity{}, noIndexError(env, hostname)
	}
	node, err := parseWhole("JOB_COMPLETION_INDEX", shortenText(index), 0)
	problem := ""
	switch {
	case err != nil:
		return Identity{}, environmentError("Kubernetes", err)
	case want.Size == nil:
		problem = "cannot tell how many pods the Job has: " +
			"Kubernetes tells a pod only its index (JOB_COMPLETION_INDEX=" + index + ")"
	case node >= *want.Size:
		problem = fmt.Sprintf("cannot be pod %d of %d: JOB_COMPLETION_INDEX should be 0 to %d",
			node, *want.Size, *want.Size-1)
	}
	if problem != "" {
		// A command of kubectl exec has the variables of the pod, but not its --nnodes.
		fix := "give --nnodes=N, the Job's number of completions"
		return Identity{}, &LaunchError{Problem: problem, Fix: fix, InShell: want.Size == nil}
	}
	id := Identity{Launcher: LauncherKubernetes, NodeIndex: node, Size: *want.Size, Host: hostname}
	if job := podJob(hostname, node); job != "" && hostname == fmt.Sprintf("%s-%d", job, node) && id.Size <= maxNodes {
		for index := range id.Size { // the controller names all pods so
			id.Hosts = append(id.Hosts, fmt.Sprintf("%s-%d", job, index))
		}
	}
	if want.JobID == "" {
		job := podJob(hostname, node)
		if job == "" {
			return Identity{}, unnamedRunError(id,
				fmt.Sprintf("the pod's host name %q does not end in -%s", hostname, index))
		}
		id.Job = sanitizeRunName(job)
	}
	return completeIdentity(id, want)
}

// Variables with a pod's index by which two controllers without completion indices are recognised:
// LeaderWorkerSet (its pkg/utils/pod/pod_utils.go) and Volcano (its plugins env and svc).
const (
	workerSetIndex = "LWS_WORKER_INDEX"
	volcanoIndex   = "VC_TASK_INDEX"
)

// noIndexError returns the error for a pod that no Indexed Job has made, with the flags for the pods of
// other controllers.
func noIndexError(env Environment, hostname string) error {
	const format = "start it with: sh -c 'exec bringupd --rank=$%s --nnodes=%s --job-id=%s …'"
	problem := "cannot tell which pod this is: it runs in %s, " +
		"but not in an Indexed Job (JOB_COMPLETION_INDEX is not set)"
	e := &LaunchError{InShell: true}
	switch {
	case env.valueOf(workerSetIndex) != "":
		e.Problem = fmt.Sprintf(problem, "a LeaderWorkerSet ("+workerSetIndex+" is set)")
		e.Fix = fmt.Sprintf(format, workerSetIndex, "$LWS_GROUP_SIZE", "${LWS_LEADER_ADDRESS%%.*}")
	case env.valueOf(volcanoIndex) != "":
		job, count := volcanoTask(env, hostname)
		e.Problem = fmt.Sprintf(problem, "a job of Volcano ("+volcanoIndex+" is set)")
		e.Fix = fmt.Sprintf(format, volcanoIndex, count, job)
	default:
		e.Problem = fmt.Sprintf(problem, "Kubernetes (KUBERNETES_SERVICE_HOST is set)")
		e.Fix = "give the Job completionMode: Indexed, as in deploy/kubernetes, " +
			"or all of --rank, --nnodes and --job-id"
	}
	return e
}

// volcanoTask returns the name of a pod's job and the variable with the number of the pods of its
// task. The pod is named <job>-<task>-<index>, and both names may contain dashes. If no task has such
// a variable, because the plugin svc is missing, the count is N.
func volcanoTask(env Environment, hostname string) (job, count string) {
	label, _, _ := strings.Cut(hostname, ".")
	words := strings.Split(strings.TrimSuffix(label, "-"+env.valueOf(volcanoIndex)), "-")
	for at := len(words) - 1; at > 0; at-- {
		name := "VC_" + strings.ToUpper(strings.Join(words[at:], "_")) + "_NUM"
		if env.valueOf(name) != "" {
			return strings.Join(words[:at], "-"), "$" + name
		}
	}
	return strings.Join(words, "-"), "N"
}

// podJob returns the name of the Job from a pod's host name, or an empty string if the name does not
// end with the pod's index.
func podJob(hostname string, index int) string {
	label, _, _ := strings.Cut(hostname, ".")
	job, ok := strings.CutSuffix(label, "-"+strconv.Itoa(index))
	if !ok {
		return ""
	}
	return job
}
