package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// run runs a command in a new directory, and returns that and what was logged.
func run(t *testing.T, ctx context.Context, command string) (dir string, logged []observer.LoggedEntry) {
	t.Helper()
	dir = t.TempDir()
	core, entries := observer.New(zap.DebugLevel)
	result := &record.Result{Run: "7.0", Code: 75, Outcome: "check",
		Reason: "GPU 3 of n3\nhas \x1b[31mfailed", BadNodes: []string{"n3"},
		FailureContext: record.FailureContext{ErrorLine: "CUDA error: unknown"}}
	RunEndCommand(ctx, "cd "+dir+" && "+command, append(os.Environ(), "BRINGUPD_RUN=7.0"), result, zap.New(core))
	return dir, entries.All()
}

func TestRun(t *testing.T) {
	dir, logged := run(t, t.Context(), `cat >result; echo sent
echo "$BRINGUPD_RUN $BRINGUPD_EXIT_CODE $BRINGUPD_VERDICT $BRINGUPD_REASON, $BRINGUPD_ERROR" >variables`)
	var result record.Result
	data, err := os.ReadFile(filepath.Join(dir, "result"))
	if err == nil {
		err = json.Unmarshal(data, &result)
	}
	if err != nil || result.Code != 75 || result.BadNodes[0] != "n3" {
		t.Errorf("it got %s: %v", data, err)
	}
	variables, err := os.ReadFile(filepath.Join(dir, "variables"))
	want := "7.0 75 check GPU 3 of n3 has \ufffd[31mfailed, CUDA error: unknown\n"
	if err != nil || string(variables) != want {
		t.Errorf("it has the variables %q, want %q: %v", variables, want, err)
	}
	if len(logged) != 1 || logged[0].Level != zap.DebugLevel || logged[0].ContextMap()["output"] != "sent" {
		t.Errorf("it has logged %+v", logged)
	}
}

func TestRunFailure(t *testing.T) {
	if _, logged := run(t, t.Context(), "true"); len(logged) != 1 || logged[0].Level != zap.DebugLevel {
		t.Errorf("a command that does not read its input has logged %+v", logged)
	}
	_, logged := run(t, t.Context(), "echo no route to host >&2; exit 3")
	if len(logged) != 1 || logged[0].Level != zap.WarnLevel || logged[0].ContextMap()["output"] != "no route to host" ||
		!strings.Contains(logged[0].ContextMap()["error"].(string), "exit status 3") {
		t.Errorf("it has logged %+v", logged)
	}
}

// TestRunUntilEnd verifies that the command and its children are killed when the time is over.
func TestRunUntilEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	began := time.Now()
	stop := time.AfterFunc(100*time.Millisecond, func() { cancel(errors.New("no time is left")) })
	defer stop.Stop()
	_, logged := run(t, ctx, "sleep 1000 & sleep 1000")
	if took := time.Since(began); took > 10*time.Second || len(logged) != 1 ||
		logged[0].Level != zap.WarnLevel || logged[0].ContextMap()["error"] != "no time is left" {
		t.Errorf("after %s it has logged %+v", took, logged)
	}
}
