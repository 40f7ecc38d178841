package runs

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestComplete verifies the names of each kind, and that names which a shell would interpret are not
// offered.
func TestComplete(t *testing.T) {
	logDir := logs(t, "1.0", "10.0", "2.0", "$(touch x)", "a b", "-x", "new\nline")
	withRoles := writeRun(t)
	ranked := runOf(t, record.Plan{HasRanks: true})
	driven := runOf(t, record.Plan{Driver: "train.py"})
	for _, tc := range []struct {
		name, run, prefix string
		kinds             []NameKind
		want              string
	}{
		{"runs, the newest first", "", "", []NameKind{RunNames}, "2.0 10.0 1.0"},
		{"runs that begin so", "", "1", []NameKind{RunNames}, "10.0 1.0"},
		{"roles", withRoles, "", []NameKind{RoleNames},
			"judge judge.0 judge.1 judge.2 judge.3 engine engine.0 client client.0"},
		{"instances", withRoles, "j", []NameKind{InstanceNames}, "judge.0 judge.1 judge.2 judge.3"},
		{"indices", withRoles, "", []NameKind{NodeNames}, "0 1 2 3 4"},
		{"hosts", driven, "n", []NameKind{NodeNames}, "n0 n1"},
		{"logs of a driver", driven, "", []NameKind{LogNames}, "driver head"},
		{"logs of ranks", ranked, "", []NameKind{LogNames}, "head ranks"},
		{"those of one rank", ranked, "rank-", []NameKind{LogNames}, "rank-0 rank-1"},
		{"names in a run and runs", ranked, "1", []NameKind{LogNames, NodeNames, RunNames}, "1 10.0 1.0"},
		{"names in no run", filepath.Join(logDir, "none"), "", []NameKind{NodeNames, RoleNames}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			find := Finder(func(context.Context, []string) (string, error) { return tc.run, nil })
			got := find.Complete(t.Context(), logDir, nil, tc.prefix, tc.kinds...)
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %s", got, tc.want)
			}
		})
	}
}

// runOf makes a run of two nodes with this plan, and the logs of two ranks.
func runOf(t *testing.T, plan record.Plan) string {
	t.Helper()
	run := filepath.Join(logs(t, "7.0"), "7.0")
	publish(t, run, signal.ControlDir, signal.NameJob, &record.Job{Run: "7.0", Size: 2, Plan: &plan}, noon)
	for node := range 2 {
		publish(t, run, signal.NodesDir, signal.NodeName(node, 2, record.StateJoined), &record.Joined{}, noon)
		joined := &record.Joined{Header: record.Header{Version: record.FormatVersion, Nonce: "n0",
			Host: fmt.Sprint("n", node)}}
		writeFile(t, run, filepath.Join(signal.NodesDir, signal.NodeName(node, 2, record.StateJoined)), joined)
		publish(t, run, signal.LogsDir, signal.LogName("rank", node, 2), &record.Mark{}, noon)
	}
	return run
}

// TestCompleteInTime verifies that a file system that hangs delays the shell for half a second.
func TestCompleteInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		find := Finder(func(ctx context.Context, _ []string) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		got := find.Complete(t.Context(), "/nowhere", nil, "", NodeNames)
		if elapsed := time.Since(began); len(got) > 0 || elapsed != completionTimeout {
			t.Errorf("got %q after %s", got, elapsed)
		}
	})
}

func TestUnquoteWord(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	t.Setenv("LOGS", "/l o")
	for word, want := range map[string]string{
		"--log-dir=~/x": "--log-dir=~/x", "~/x": "/home/me/x", "$LOGS/x": "/l o/x", "${LOGS}x": "/l ox",
		`"a $LOGS"`: "a /l o", `'a $LOGS'`: "a $LOGS", `a\ b`: "a b", "$(x)": "$(x)", "`x`": "`x`", "$": "", "'a": "a",
		"a~/x": "a~/x", `\`: "",
	} {
		if got := UnquoteWord(word); got != want {
			t.Errorf("%s is %q, want %q", word, got, want)
		}
	}
}
