package launcher

import (
	"fmt"
	"strconv"
	"strings"
)

// LauncherKubernetes is the controller of an Indexed Job, with one daemon per pod, also within a
// JobSet.
//
// A pod gets its index (JOB_COMPLETION_INDEX), and its host name is "<job>-<index>". It does not
// get the number of pods: no field of the downward API has the completions. A failed pod is
// replaced by one with the same index.
const LauncherKubernetes Launcher = "kubernetes"

var kubernetesLauncher = launcherSpec{
	name: LauncherKubernetes,
	traits: Traits{
		StarterProgram: "the pods start", RankVariable: "JOB_COMPLETION_INDEX", PrivatePrefixes: []string{"JOB_COMPLETION_INDEX"},
	},
	claimOf: func(env Environment, _ Overrides) claimLevel {
		switch {
		case env.valueOf("JOB_COMPLETION_INDEX") != "":
			return claimStarted
		case env.valueOf("KUBERNETES_SERVICE_HOST") != "":
			return claimHinted
		default:
			return claimNone
		}
	},
	identifyDaemon: identifyKubernetes, commandHints: kubernetesHints,
}

func kubernetesHints(job string) CommandHints {
	return CommandHints{
		Title: "Kubernetes", StartOnNodes: func(n int) string { return fmt.Sprintf("a Job of completions: %d, parallelism: %d", n, n) }, NestedAdvice: nestedNameAdvice,
		MoreMemory: "resources.limits.memory: … of the pods", AllMemory: "no limit", MoreTime: "activeDeadlineSeconds: … of the Job",
		WhyEnded:        "activeDeadlineSeconds, an eviction or kubectl delete: kubectl describe job " + job,
		MemoryUsed:      "kubectl top pod -l job-name=" + job,
		JobGoneSign:     "once kubectl get job " + job + " finds none",
		NoRequeueReason: "Kubernetes itself restarts failed pods, by the Job's backoffLimit",
	}
}

func identifyKubernetes(env Environment, hostname string, want Overrides) (Identity, error) {
	index := env.valueOf("JOB_COMPLETION_INDEX")
	node, err := strconv.Atoi(index)
	switch {
	case index == "":
		return Identity{}, &LaunchError{
			Problem: "cannot tell which pod this is: it runs in Kubernetes (KUBERNETES_SERVICE_HOST is set), but not in an Indexed Job (JOB_COMPLETION_INDEX is not set)",
			Fix:     "give the Job completionMode: Indexed, as in deploy/kubernetes, or all of --rank, --nnodes and --job-id",
			InShell: true,
		}
	case err != nil:
		return Identity{}, environmentError("Kubernetes", fmt.Errorf("JOB_COMPLETION_INDEX is %q, and should be a whole number of at least 0", shortenText(index)))
	case want.Size == nil:
		return Identity{}, &LaunchError{
			Problem: "cannot tell how many pods the Job has: Kubernetes tells a pod only its index (JOB_COMPLETION_INDEX=" + index + ")",
			Fix:     "give --nnodes=N, the Job's number of completions",
		}
	case node < 0 || node >= *want.Size:
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot be pod %d of %d: JOB_COMPLETION_INDEX should be 0 to %d", node, *want.Size, *want.Size-1),
			Fix:     "give --nnodes=N, the Job's number of completions",
		}
	}
	id := Identity{Launcher: LauncherKubernetes, NodeIndex: node, Size: *want.Size, Host: hostname}
	if want.JobID == "" {
		job := podJob(hostname, node)
		if job == "" {
			return Identity{}, unnamedRunError("Kubernetes", fmt.Sprintf(": the pod's host name %q doesn't end in -%s", hostname, index))
		}
		id.Job = sanitizeRunName(job)
	}
	return completeIdentity(id, want)
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
