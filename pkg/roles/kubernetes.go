package roles

import (
	"fmt"
	"strconv"
	"strings"
)

// Kubernetes is the controller of an Indexed Job, with one daemon per pod, also within a JobSet.
//
// A pod gets its index (JOB_COMPLETION_INDEX), and its host name is "<job>-<index>". It does not
// get the number of pods: no field of the downward API has the completions. A failed pod is
// replaced by one with the same index.
const Kubernetes Launcher = "kubernetes"

var kubernetes = launcher{
	name: Kubernetes,
	traits: Traits{
		Relaunches: true, RelaunchesEach: true, Starter: "the pods start", Rank: "JOB_COMPLETION_INDEX", Private: []string{"JOB_COMPLETION_INDEX"},
	},
	claim: func(env Environment, _ Want) claim {
		switch {
		case env.get("JOB_COMPLETION_INDEX") != "":
			return started
		case env.get("KUBERNETES_SERVICE_HOST") != "":
			return hinted
		default:
			return unclaimed
		}
	},
	identify: identifyKubernetes, words: kubernetesWords,
}

func kubernetesWords(job string) Words {
	return Words{
		Title: "Kubernetes", Nodes: func(n int) string { return fmt.Sprintf("a Job of completions: %d, parallelism: %d", n, n) }, Nested: anotherName,
		Memory: "resources.limits.memory: … of the pods", AllMemory: "no limit", Time: "activeDeadlineSeconds: … of the Job",
		WhyEnded:   "activeDeadlineSeconds, an eviction or kubectl delete: kubectl describe job " + job,
		MemoryUsed: "kubectl top pod -l job-name=" + job,
		Gone:       "once kubectl get job " + job + " finds none",
		NoRequeue:  "Kubernetes itself starts failed pods anew, by the Job's backoffLimit",
	}
}

func identifyKubernetes(env Environment, hostname string, want Want) (Identity, error) {
	index := env.get("JOB_COMPLETION_INDEX")
	rank, err := strconv.Atoi(index)
	switch {
	case index == "":
		return Identity{}, &LaunchError{
			Problem: "cannot tell which pod this is: it is in Kubernetes (KUBERNETES_SERVICE_HOST is set), and of no Indexed Job (JOB_COMPLETION_INDEX is not set)",
			Mend:    "give the Job completionMode: Indexed, as in deploy/kubernetes, or all of --rank, --nnodes and --job-id",
			Alone:   true,
		}
	case err != nil:
		return Identity{}, torn("Kubernetes", fmt.Errorf("JOB_COMPLETION_INDEX is %q, and should be a whole number of at least 0", clip(index)))
	case want.Size == nil:
		return Identity{}, &LaunchError{
			Problem: "cannot tell how many pods the Job has: Kubernetes tells a pod its index alone (JOB_COMPLETION_INDEX=" + index + ")",
			Mend:    "give --nnodes=N, as many as the Job has completions",
		}
	case rank < 0 || rank >= *want.Size:
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot be pod %d of %d: JOB_COMPLETION_INDEX should be 0 to %d", rank, *want.Size, *want.Size-1),
			Mend:    "give --nnodes=N, as many as the Job has completions",
		}
	}
	id := Identity{Launcher: Kubernetes, Rank: rank, Size: *want.Size, Host: hostname}
	if want.JobID == "" {
		label, _, _ := strings.Cut(hostname, ".")
		job, ok := strings.CutSuffix(label, "-"+index)
		if !ok || job == "" {
			return Identity{}, nameless("Kubernetes", fmt.Sprintf(": the pod's host name %q doesn't end in -%s", hostname, index))
		}
		id.Job = named(job)
	}
	return settle(id, want)
}
