package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestEnding(t *testing.T) {
	hostOf := func(nodeIndex int) string { return fmt.Sprintf("n%d", nodeIndex) }
	lost := health.NewFailure(health.PeerLost, "two are lost").Failure
	lost.LostNodes = []int{1, 3}
	for _, tc := range []struct {
		name   string
		cause  record.Failure
		code   int
		gentle bool
		nodes  []string
	}{
		{"a setup", health.NewFailure(health.SetupFailed, "it failed").Failure, 77, false, nil},
		{"lost peers", lost, 76, false, []string{"n1", "n3"}},
		{"TERM", lifecycle.NewSignalFailure(syscall.SIGTERM, "n1", "", 1).Failure, 143, true, nil},
		{"INT", lifecycle.NewSignalFailure(syscall.SIGINT, "n1", "", 1).Failure, 130, true, nil},
		{"a kind that nobody knows", record.Failure{Kind: "odd", Message: "odd"}, 70, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			end := lifecycle.OutcomeOfVerdict(health.DecideVerdict([]health.ObservedFailure{{Failure: tc.cause}}, hostOf))
			if end.Code != tc.code || end.Requested != tc.gentle || end.Orderly || end.Reason != tc.cause.Message || !slices.Equal(end.BadNodes, tc.nodes) {
				t.Errorf("it ends with %+v", end)
			}
			// A peer derives the same outcome from the published end.
			told := lifecycle.OutcomeOfAbort(record.Abort{Code: end.Code, Outcome: end.Name, Cause: *end.Cause, BadNodes: end.BadNodes})
			if diff := cmp.Diff(end, told, cmp.AllowUnexported(lifecycle.Outcome{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestEvidenceIsKept verifies that files that services left in the private directory are kept on
// the node that ends the run, and always on the head.
func TestEvidenceIsKept(t *testing.T) {
	blamed := endedBy(cause(1, health.ServiceDied, "driver", "it died"))
	for _, tc := range []struct {
		name string
		rank int
		end  lifecycle.Outcome
		kept bool
	}{
		{"of the node that it is about", 1, blamed, true},
		{"of another", 2, blamed, false},
		{"of the head", 0, blamed, true},
		{"of an orderly end", 0, lifecycle.Outcome{Orderly: true}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, err := signal.CreateRun(bounded(t), signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "facts", Size: 3, Host: "n0"}, record.Job{})
			if err != nil {
				t.Fatal(err)
			}
			from := t.TempDir()
			if err := os.WriteFile(filepath.Join(from, "raylet.out"), []byte("Check failed\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			n := bare(t, deps.Config{Config: config.Config{Identity: testIdentity(tc.rank, 3)}}, dir)
			n.children.OpenLogs(dir, tc.rank, 3, "")
			n.children.RegisterLogs(&framework.Service{Name: "worker", OwnLogs: framework.ServiceLogs{Dir: from}})
			n.copyServiceLogs(&tc.end)
			kept, _ := filepath.Glob(filepath.Join(dir.Path(), signal.LogsDir, "worker-*.d", "raylet.out"))
			if tc.kept != (len(kept) == 1) {
				t.Errorf("there is %v", kept)
			}
		})
	}
}
