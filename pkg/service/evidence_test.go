package service

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestEvidence verifies that a service's own logs are kept if this node ends the run with a
// failure, or if this is configured: at the end, or during the run.
func TestEvidence(t *testing.T) {
	for _, tc := range []struct {
		name    string
		keep    framework.ServiceLogs
		failed  bool
		running bool // the logs are kept before the end
		ended   bool // and at the end
	}{
		{"nobody wants them", framework.ServiceLogs{}, false, false, false},
		{"it fails", framework.ServiceLogs{}, true, false, true},
		{"at the end", framework.ServiceLogs{KeepAlways: true}, false, false, true},
		{"at the end of a run that fails", framework.ServiceLogs{KeepAlways: true}, true, false, true},
		{"all the time", framework.ServiceLogs{KeepAlways: true, KeepInterval: 20 * time.Millisecond}, false, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir, err := signal.CreateRun(t.Context(), signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: 1, Host: "n0"}, record.Job{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			kept := make(chan struct{})
			close(kept)
			c := children(t)
			c.contexts.Run = ctx
			c.contexts.Background = func(task func(context.Context)) {
				done := make(chan struct{})
				kept = done
				go func() { defer close(done); task(ctx) }()
			}
			c.OpenLogs(dir, 0, 1, "n0")
			from := t.TempDir()
			write := func(text string) {
				t.Helper()
				file, err := os.OpenFile(filepath.Join(from, "raylet.out"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = file.Close() }()
				if _, err := file.WriteString(text); err != nil {
					t.Fatal(err)
				}
			}
			write("one\n")
			for range 2 { // it starts again
				tc.keep.Dir = from
				c.RegisterLogs(&framework.Service{Name: "worker", OwnLogs: tc.keep})
			}
			at := filepath.Join(dir.Path(), signal.LogsDir, "worker-0000.d", "raylet.out")
			if tc.running {
				untilHolds(t, at, "one\n")
			}
			write("two\n")
			if tc.running {
				untilHolds(t, at, "one\ntwo\n")
			}
			cancel()
			<-kept
			c.CopyLogs(tc.failed)
			if !tc.ended {
				if _, err := os.Stat(at); err == nil {
					t.Error("they are kept")
				}
				return
			}
			untilHolds(t, at, "one\ntwo\n")
		})
	}
}
