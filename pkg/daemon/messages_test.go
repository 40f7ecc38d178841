package daemon

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// spoken is a line of standard error in JSON format.
type spoken struct {
	Level     string
	Daemon    string
	Msg       string
	Code      int
	Kind      string
	LastWords []string `json:"last_words"`
}

func spokenLines(t *testing.T, said string) (all []spoken) {
	t.Helper()
	for line := range strings.Lines(said) {
		var record spoken
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("a line is no JSON: %q: %v", line, err)
		}
		all = append(all, record)
	}
	return all
}

func lastRecord(t *testing.T, said string) spoken {
	t.Helper()
	all := spokenLines(t, said)
	return all[len(all)-1]
}

// TestJobsLastWords ends a real job: only the head prints the final message, and the result contains
// the same. Each daemon has its own message in its log.
func TestJobsLastWords(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 3
		j := newJob(t, size, "exec sleep 300").all(func(c *deps.Config) {
			c.JSONLog = true
			c.Framework = framework.None{WorkerCommand: only("2", "sleep 1; echo step 42; kill -KILL $$")}
		})
		j.start().expect(everyone(77, size)...)
		if !j.has(signal.ControlDir, signal.NameHeadFinished) {
			t.Error("the others are not told that the head is done")
		}
		if said := j.said(); strings.Count(said, `"last_words"`) != 1 ||
			lastRecord(t, said).Daemon != "bringupd[0 n0]" {
			t.Errorf("not the head alone prints the final message, at the end: %s", said)
		}
		last := make(map[string]spoken)
		for nodeIndex := range size {
			log, err := j.read(filepath.Join(j.run(), signal.LogsDir, signal.LogName("daemon", nodeIndex, size)))
			if err != nil {
				t.Fatal(err)
			}
			for _, record := range spokenLines(t, string(log)) {
				if len(record.LastWords) > 0 {
					last[record.Daemon] = record
				}
			}
		}
		const what = "the worker of node 2 (n2) died: killed by SIGKILL (perhaps out of memory)"
		for daemon, begins := range map[string]string{
			"bringupd[0 n0]": "bringupd: the job failed with code 77, ",
			"bringupd[1 n1]": "bringupd: node 1 (n1) ends with the job, code 77: " + what,
			"bringupd[2 n2]": "bringupd: node 2 (n2) has ended the job, code 77: " + what,
		} {
			got := last[daemon]
			if len(got.LastWords) == 0 || !strings.HasPrefix(got.LastWords[0], begins) {
				t.Errorf("%s says %q at last, want %q", daemon, got.LastWords, begins)
			}
			if got.Level != "error" || got.Code != 77 || got.Kind != string(health.ServiceDied) || got.Msg != what {
				t.Errorf("%s has %+v", daemon, got)
			}
		}
		head := last["bringupd[0 n0]"].LastWords
		for _, line := range []string{
			"  | step 42", "  also ended: the driver", "  requeue: no",
			"  details: " + filepath.Join(j.run(), signal.NameResult),
		} {
			if !slices.Contains(head, line) {
				t.Errorf("the head's last words lack %q: %q", line, head)
			}
		}
		result := j.result()
		if result.AtPhase != "driver" || result.AfterGate <= 0 || len(result.Advice) == 0 {
			t.Errorf("the result is %+v", result)
		}
		for _, step := range result.Advice {
			if !slices.Contains(head, "  next: "+step) {
				t.Errorf("the result advises %q, and the last words don't", step)
			}
		}
		if result.Cause.ExitText != "killed by SIGKILL (perhaps out of memory)" ||
			result.Cause.Signal != "SIGKILL" {
			t.Errorf("the cause is %+v", result.Cause)
		}
	})
}
