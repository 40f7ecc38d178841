package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
)

func TestAsFailure(t *testing.T) {
	own := health.Failed(health.Setup, "the setup")
	for _, tc := range []struct {
		name string
		err  error
		kind health.Kind
		what string
	}{
		{"a failure", own, health.Setup, "the setup"},
		{"one within another error", fmt.Errorf("%w (the look has not come back)", own), health.Setup, "the setup"},
		{"a directory of no use", &signal.DirError{Path: "/logs", Host: "n1", Seen: "it is full"}, health.Share, "cannot use the directory /logs on n1: it is full"},
		{"a share that hangs", &signal.StallError{Op: "read", Path: "/logs/x", After: time.Second, Cause: errDeadline}, health.Share, "cannot read /logs/x: the share has not answered for 1s (the deadline passed)"},
		{"a call that was cut short by a failure", &signal.StallError{Op: "read", Path: "/x", Cause: own}, health.Setup, "the setup"},
		{"anything else", errors.New("odd"), health.Internal, "odd"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := health.AsFailure(tc.err); got.Kind != string(tc.kind) || got.What != tc.what {
				t.Errorf("it is %q: %q", got.Kind, got.What)
			}
		})
	}
}

func TestEnding(t *testing.T) {
	hostOf := func(rank int) string { return fmt.Sprintf("n%d", rank) }
	lost := health.Failed(health.PeerLost, "two are lost").FailedRecord
	lost.Lost = []int{1, 3}
	for _, tc := range []struct {
		name   string
		cause  signal.FailedRecord
		code   int
		gentle bool
		nodes  []string
	}{
		{"a setup", health.Failed(health.Setup, "it failed").FailedRecord, 77, false, nil},
		{"lost peers", lost, 76, false, []string{"n1", "n3"}},
		{"TERM", run.Signalled(syscall.SIGTERM, "n1", "", 1).FailedRecord, 143, true, nil},
		{"INT", run.Signalled(syscall.SIGINT, "n1", "", 1).FailedRecord, 130, true, nil},
		{"a kind that nobody knows", signal.FailedRecord{Kind: "odd", What: "odd"}, 70, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			end := run.EndingOf(health.Decide([]health.Observed{{FailedRecord: tc.cause}}, hostOf))
			if end.Code != tc.code || end.Gentle != tc.gentle || end.Orderly || end.Why != tc.cause.What || !slices.Equal(end.Nodes, tc.nodes) {
				t.Errorf("it ends with %+v", end)
			}
			// What a peer makes of the published end is the same.
			told := run.EndingFrom(signal.AbortRecord{Code: end.Code, Word: end.Word, Cause: *end.Cause, Nodes: end.Nodes})
			if diff := cmp.Diff(end, told, cmp.AllowUnexported(run.Ending{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Services have their whole grace but where the run has failed.
func TestFailed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		end    run.Ending
		failed bool
	}{
		{"told to end", run.Ending{Gentle: true}, false},
		{"stopped", run.Ending{Gentle: true, Orderly: true}, false},
		{"the driver has ended", *run.EndingByDrain(), false},
		{"failed", run.Ending{}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.end.Failed(); got != tc.failed {
				t.Errorf("the run has failed: %v", got)
			}
		})
	}
}

// What services have left in the private directory is kept where the run ends by
// this node, and on the head whoever it ends by.
func TestEvidenceIsKept(t *testing.T) {
	blamed := endedBy(cause(1, health.ServiceDied, "driver", "it died"))
	for _, tc := range []struct {
		name string
		rank int
		end  run.Ending
		kept bool
	}{
		{"of the node that it is about", 1, blamed, true},
		{"of another", 2, blamed, false},
		{"of the head", 0, blamed, true},
		{"of an orderly end", 0, run.Ending{Orderly: true}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, err := signal.Create(bounded(t), signal.Place{LogDir: t.TempDir(), Run: "17.0", Key: "facts", Size: 3, Host: "n0"}, signal.Job{})
			if err != nil {
				t.Fatal(err)
			}
			from := t.TempDir()
			if err := os.WriteFile(filepath.Join(from, "raylet.out"), []byte("Check failed\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			n := bare(t, config.Config{Identity: testIdentity(tc.rank, 3)}, dir)
			n.children.Open(dir, tc.rank, 3, "")
			n.children.Evident(&framework.Service{Name: "worker", Evidence: framework.Evidence{Dir: from}})
			n.keepEvidence(&tc.end)
			kept, _ := filepath.Glob(filepath.Join(dir.Path(), signal.Logs, "worker-*.d", "raylet.out"))
			if tc.kept != (len(kept) == 1) {
				t.Errorf("there is %v", kept)
			}
		})
	}
}
