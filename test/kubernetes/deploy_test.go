package kubernetes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
	"k8s.io/kubernetes/pkg/apis/batch"
)

var files = []string{"job.yaml", "jobset.yaml"}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// job returns the only Job of the file, as Kubernetes would store it.
func job(t *testing.T, file string) *batch.Job {
	t.Helper()
	jobs, err := accept([]byte(read(t, file)))
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%s: %d Jobs, %v", file, len(jobs), err)
	}
	return jobs[0]
}

// TestAccepted checks that the files are accepted. It also checks that typical mistakes are
// rejected, which proves that the validation works.
func TestAccepted(t *testing.T) {
	mistakes := []struct{ file, from, to, says string }{
		{"job.yaml", "completions: 4", "completion: 4", `unknown field "spec.completion"`},
		{"job.yaml", "clusterIP: None", "clusterIP: Nowhere", "clusterIPs"},
		{"job.yaml", "publishNotReadyAddresses", "publishNotReadyAddress", "unknown field"},
		{"job.yaml", "restartPolicy: Never", "restartPolicy: OnFailure",
			`only "Never" is supported when podFailurePolicy`},
		{"job.yaml", "completionMode: Indexed", "completionMode: NonIndexed",
			"requires indexed completion mode"},
		{"job.yaml", "[64, 65,", "[65, 64,", "must be ordered"},
		{"job.yaml", "[64, 65,", "[64, 64,", "Duplicate value"},
		{"job.yaml", "[64, 65,", "[0, 65,", "must not be 0"},
		{"job.yaml", "containerName: node", "containerName: nod", "must be one of the container"},
		{"job.yaml", "action: FailJob", "action: FailAll", "Unsupported value"},
		{"job.yaml", "  maxFailedIndexes",
			"  podReplacementPolicy: TerminatingOrFailed\n  maxFailedIndexes",
			"podReplacementPolicy"},
		{"job.yaml", "fieldPath: \"metadata.labels['",
			"fieldPath: \"metadata.label['", "fieldPath"},
		{"job.yaml", "{name: shm, mountPath", "{name: shn, mountPath", "Not found"},
		{"jobset.yaml", "maxRestarts", "maxRestart",
			"unknown fields: spec.failurePolicy.maxRestart"},
		{"jobset.yaml", "action: FailJobSet", "action: FailJob", "Unsupported value"},
		{"jobset.yaml", "name: pointless, ", "", "Required value"},
		{"jobset.yaml", "timeoutSeconds", "timeout", "timeout"},
		{"jobset.yaml", "completionMode: Indexed", "completionMode: NonIndexed",
			"requires indexed completion mode"},
		{"jobset.yaml", "[64, 65,", "[65, 64,", "must be ordered"},
	}
	for _, file := range files {
		job(t, file)
	}
	for _, mistake := range mistakes {
		right := read(t, mistake.file)
		wrong := strings.Replace(right, mistake.from, mistake.to, 1)
		if wrong == right {
			t.Errorf("%s has no %q", mistake.file, mistake.from)
		}
		if _, err := accept([]byte(wrong)); err == nil ||
			!strings.Contains(err.Error(), mistake.says) {
			t.Errorf("%s with %q: %v, want %q", mistake.file, mistake.to, err, mistake.says)
		}
	}
}

// TestCodes checks that the lists of codes in the files agree with the table of exit codes.
func TestCodes(t *testing.T) {
	var want []int32
	for _, outcome := range health.OutcomeTable() {
		if outcome.Requeue == health.RequeueNo {
			want = append(want, int32(outcome.Code))
		}
	}
	for _, file := range files {
		var got []int32
		for _, rule := range job(t, file).Spec.PodFailurePolicy.Rules {
			if rule.OnExitCodes == nil {
				continue
			}
			if rule.Action != batch.PodFailurePolicyActionFailJob ||
				rule.OnExitCodes.Operator != batch.PodFailurePolicyOnExitCodesOpIn {
				t.Errorf("%s: codes %v: %s, want all others to count", file,
					rule.OnExitCodes.Values, rule.Action)
			}
			got = append(got, rule.OnExitCodes.Values...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s fails the job at %v, want %v", file, got, want)
		}
	}
}
