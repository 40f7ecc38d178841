package runs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/signal"
)

var errEnough = errors.New("enough")

// TestWatchRuns verifies that a list is written again when a run appears, and not merely because time
// passes.
func TestWatchRuns(t *testing.T) {
	run := runWithLogs(t, time.Now(), nil)
	logDir := filepath.Dir(run.Path())
	for _, tc := range []struct {
		name      string
		write     func(*runs.StatusWriter) func(runs.List) error
		separator string
	}{
		{"text", func(w *runs.StatusWriter) func(runs.List) error { return w.WriteList }, "\n\n"},
		{"JSON", func(w *runs.StatusWriter) func(runs.List) error { return w.WriteListJSON }, "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			next := filepath.Join(logDir, "8."+tc.name, signal.ControlDir)
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = out.Close() })
			write := tc.write(&runs.StatusWriter{Out: out, Updates: true})
			synctest.Test(t, func(t *testing.T) {
				first, err := runs.ListRuns(t.Context(), logDir, "")
				if err != nil {
					t.Fatal(err)
				}
				polls := 0
				err = runs.WatchRuns(t.Context(), first, "", func(list runs.List) error {
					if polls++; polls == 3 {
						err = os.MkdirAll(next, 0o700)
					}
					if err := errors.Join(err, write(list)); err != nil || polls == 5 {
						return errors.Join(err, errEnough)
					}
					return nil
				}, func(err error) { t.Error(err) })
				if !errors.Is(err, errEnough) {
					t.Errorf("it ended by %v", err)
				}
			})
			text, err := os.ReadFile(out.Name())
			lists := strings.Split(strings.TrimSpace(string(text)), tc.separator)
			if err != nil || len(lists) != 2 || strings.Contains(lists[0], "8."+tc.name) ||
				!strings.Contains(lists[1], "8."+tc.name) {
				t.Errorf("%v, it is %s", err, text)
			}
		})
	}
}
