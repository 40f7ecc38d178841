package kubernetes

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	watching "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	controller "k8s.io/kubernetes/pkg/controller/job"
)

// evicted, used as an exit code, stands for an evicted pod: 143 and a condition.
const evicted = -143

// TestController checks how the Job controller of Kubernetes reacts to attempts that end with the
// given codes of all pods. Pods exist only in a fake API server.
func TestController(t *testing.T) {
	controller.DefaultJobPodFailureBackOff = 10 * time.Millisecond // instead of 10 s
	controller.SyncJobBatchPeriod = 10 * time.Millisecond          // instead of 1 s
	all := func(code int) []int { return []int{code, code, code, code} }
	tests := []struct {
		name     string
		file     string
		attempts [][]int
		want     string // how the Job ends
	}{
		{"the driver ends well", "job.yaml", [][]int{all(0)}, "Complete SuccessPolicy"},
		{"a worker is lost while the head ends", "job.yaml", [][]int{{0, 0, 0, 137}},
			"Complete SuccessPolicy"},
		{"a peer is lost, once", "job.yaml", [][]int{{76, 76, 137, 76}, all(0)},
			"Complete SuccessPolicy"},
		{"one is evicted, the others lost it", "job.yaml", [][]int{{76, evicted, 76, 76}, all(0)},
			"Complete SuccessPolicy"},
		{"nodes fail their checks, four times", "job.yaml",
			[][]int{all(75), all(76), all(75), all(76)}, "Failed MaxFailedIndexesExceeded"},
		{"the driver fails, four times", "job.yaml", [][]int{all(1), all(1), all(1), all(1)},
			"Failed MaxFailedIndexesExceeded"},
		{"the command line is wrong", "job.yaml", [][]int{all(64)}, "Failed PodFailurePolicy"},
		{"a service dies, after a peer was lost", "job.yaml", [][]int{all(76), all(77)},
			"Failed PodFailurePolicy"},
		{"the JobSet's driver ends well", "jobset.yaml", [][]int{all(0)}, "Complete SuccessPolicy"},
		{"the JobSet may try again", "jobset.yaml", [][]int{{76, 76, 137, 76}},
			"Failed BackoffLimitExceeded"},
		{"the JobSet may try again after an eviction", "jobset.yaml",
			[][]int{{76, evicted, 76, 76}}, "Failed BackoffLimitExceeded"},
		{"the JobSet may not", "jobset.yaml", [][]int{all(66)}, "Failed PodFailurePolicy"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cluster := start(t, test.file)
			for i, codes := range test.attempts {
				cluster.end(i, codes)
			}
			if got := cluster.ending(); got != test.want {
				t.Errorf("the Job's end: %q, want %q", got, test.want)
			}
		})
	}
}

// cluster is a Job in a fake API server, managed by the controller.
type cluster struct {
	t      *testing.T
	ctx    context.Context
	client *fake.Clientset
	name   string
	ended  map[types.UID]bool // pods of earlier attempts
}

func start(t *testing.T, file string) *cluster {
	var object batchv1.Job
	if err := legacyscheme.Scheme.Convert(job(t, file), &object, nil); err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(&object)
	var made atomic.Int64 // number of pods; an API server sets their names and UIDs
	client.PrependReactor("create", "pods",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
			n := made.Add(1)
			pod.Name = fmt.Sprintf("%s%d", pod.GenerateName, n)
			pod.UID = types.UID(strconv.FormatInt(n, 10))
			pod.CreationTimestamp = metav1.Now()
			return false, nil, nil
		})
	// Wait for the watch: a fake API server drops events between a list and its watch.
	watched := make(chan struct{})
	var watch sync.Once
	client.PrependWatchReactor("pods",
		func(action clienttesting.Action) (bool, watching.Interface, error) {
			defer watch.Do(func() { close(watched) })
			seen, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
			return true, seen, err
		})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	all := informers.NewSharedInformerFactory(client, 0)
	looksAfter, err := controller.NewController(ctx, client, all.Core().V1().Pods(),
		all.Batch().V1().Jobs(),
		all.Scheduling().V1beta1().Workloads(), all.Scheduling().V1beta1().PodGroups())
	if err != nil {
		t.Fatal(err)
	}
	all.Start(ctx.Done())
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-watched:
		case <-ctx.Done():
		}
		looksAfter.Run(ctx, 1)
	}()
	t.Cleanup(func() {
		cancel()
		<-over
		all.Shutdown()
	})
	return &cluster{t, ctx, client, object.Name, make(map[types.UID]bool)}
}

// end waits for all pods of an attempt, and ends them with the given codes.
func (c *cluster) end(attempt int, codes []int) {
	c.t.Helper()
	fresh := make([]*corev1.Pod, len(codes))
	c.until(fmt.Sprintf("the pods of attempt %d", attempt), func() bool {
		pods, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).List(c.ctx,
			metav1.ListOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		n := 0
		for i := range pods.Items {
			if pod := &pods.Items[i]; !c.ended[pod.UID] {
				index, _ := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
				fresh[index] = pod
				n++
			}
		}
		return n == len(codes)
	})
	for i, pod := range fresh {
		c.ended[pod.UID] = true
		pod.Status = ended(codes[i])
		pod.ResourceVersion = "ended" // the controller ignores updates of the same version
		if _, err := c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(c.ctx, pod,
			metav1.UpdateOptions{}); err != nil && !errors.IsNotFound(err) {
			c.t.Fatal(err) // not found: the Job is over, and the controller has deleted the pod
		}
	}
}

// ended returns the status of a pod whose container has exited with that code.
func ended(code int) corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodSucceeded}
	if code == evicted {
		code = 143
		status.Conditions = []corev1.PodCondition{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	}
	if code != 0 {
		status.Phase = corev1.PodFailed
	}
	status.ContainerStatuses = []corev1.ContainerStatus{{Name: "node", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(code),
			FinishedAt: metav1.Now()}}}}
	return status
}

// ending waits for the end of the Job, and returns its condition and reason.
func (c *cluster) ending() string {
	c.t.Helper()
	var ending string
	c.until("the Job's end", func() bool {
		object, err := c.client.BatchV1().Jobs(metav1.NamespaceDefault).Get(c.ctx, c.name,
			metav1.GetOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		for _, condition := range object.Status.Conditions {
			if condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed {
				ending = fmt.Sprintf("%s %s", condition.Type, condition.Reason)
			}
		}
		return ending != ""
	})
	return ending
}

func (c *cluster) until(what string, there func() bool) {
	c.t.Helper()
	for !there() {
		select {
		case <-c.ctx.Done():
			c.t.Fatalf("no %s within 10 s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
