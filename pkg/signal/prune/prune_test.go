package prune

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logDir returns an empty log directory.
func logDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "logs")
	must(t, os.Mkdir(dir, 0o700))
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// leave creates a run that ended the given time ago; if result is false, it has no result.
func leave(t *testing.T, logs, name string, ago time.Duration, result bool) string {
	t.Helper()
	dir := filepath.Join(logs, name)
	for _, sub := range []string{"", signal.ControlDir, signal.NodesDir} {
		must(t, os.Mkdir(filepath.Join(dir, sub), 0o700))
	}
	job, err := json.Marshal(&record.Job{Header: record.Header{Version: record.FormatVersion,
		Nonce: "x"}, Run: name, Size: 1})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, signal.ControlDir, signal.NameJob), job, 0o600))
	when := time.Now().Add(-ago)
	if result {
		path := filepath.Join(dir, signal.NameResult)
		must(t, os.WriteFile(path, []byte("{}\n"), 0o600))
		must(t, os.Chtimes(path, when, when))
	}
	for _, sub := range []string{signal.ControlDir, signal.NodesDir} {
		must(t, os.Chtimes(filepath.Join(dir, sub), when, when))
	}
	return dir
}

// begin creates a run in progress.
func begin(t *testing.T, logs, name string) *signal.Dir {
	t.Helper()
	dir, err := signal.CreateRun(t.Context(), signal.Location{LogDir: logs, Run: name, Key: "k",
		Size: 1, Host: "n0"}, record.Job{})
	must(t, err)
	return dir
}

// heard maps each run to the message that prune printed about it.
type heard map[string]string

func (h heard) say(run, what string) { h[run] = what }

func there(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestJudgement(t *testing.T) {
	logs, said := logDir(t), heard{}
	leave(t, logs, "old.0", 40*day, true)
	leave(t, logs, "new.0", 2*day, true)
	leave(t, logs, "ends.0", time.Minute, true)
	leave(t, logs, "lost.0", 40*day, false)
	leave(t, logs, "pauses.0", 2*time.Hour, false)
	begin(t, logs, "live.0")
	elsewhere := leave(t, logDir(t), "planted.0", 40*day, true)
	must(t, os.Symlink(elsewhere, filepath.Join(logs, "planted.0")))
	must(t, os.Chmod(leave(t, logs, "open.0", 40*day, true), 0o755))
	must(t, os.Rename(leave(t, logs, "named.0", 40*day, true), filepath.Join(logs, "renamed.0")))
	must(t, os.MkdirAll(filepath.Join(logs, "mine", "data"), 0o700))
	must(t, os.MkdirAll(filepath.Join(logs, "history", "n0"), 0o700))
	must(t, os.Mkdir(filepath.Join(logs, signal.BadNodesDir), 0o700))
	must(t, os.WriteFile(filepath.Join(logs, signal.BadNodesDir, "old.0"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(logs, "slurm-7.out"), nil, 0o600))
	must(t, os.Symlink("old.0", filepath.Join(logs, signal.LatestLink)))
	// A link in an old run is removed, but not its target.
	must(t, os.Symlink(elsewhere, filepath.Join(logs, "old.0", "link")))
	must(t, os.Rename(leave(t, logs, "half.0", 40*day, true), filepath.Join(logs, hiddenPrefix+"half.0-X")))

	order := Options{LogDir: logs, MaxAge: 30 * day, Report: said.say, DryRun: true}
	counts, err := order.PruneRuns(t.Context())
	must(t, err)
	if counts != (PruneCounts{Removed: 2, Recent: 2, Live: 2, Unrecognized: 4}) ||
		!there(t, filepath.Join(logs, "old.0")) {
		t.Errorf("a dry run comes to %+v: %v", counts, said)
	}
	order.DryRun = false
	counts, err = order.PruneRuns(t.Context())
	must(t, err)
	if counts != (PruneCounts{Removed: 2, Recent: 2, Live: 2, Unrecognized: 4}) {
		t.Errorf("got %+v: %v", counts, said)
	}
	for name, stays := range map[string]bool{
		"old.0": false, "new.0": true, "ends.0": true, "lost.0": false, "pauses.0": true,
		"live.0": true, "planted.0": true, "open.0": true,
		"renamed.0": true, "mine/data": true, "history/n0": true, "bad-nodes/old.0": false,
		"slurm-7.out": true, "latest": false, hiddenPrefix + "half.0-X": false,
	} {
		if there(t, filepath.Join(logs, name)) != stays {
			t.Errorf("%s stays: %v (%s)", name, !stays, said[name])
		}
	}
	if !there(t, filepath.Join(elsewhere, signal.NameResult)) {
		t.Error("a link was followed")
	}
	left, err := os.ReadDir(logs)
	must(t, err)
	for _, entry := range left {
		if strings.HasPrefix(entry.Name(), ".") {
			t.Errorf("%s is left", entry.Name())
		}
	}
}

// TestOthers uses a log directory that other users may write to and, as root, the run of another
// user.
func TestOthers(t *testing.T) {
	logs, said := logDir(t), heard{}
	theirs := leave(t, logs, "theirs.0", 40*day, true)
	mode := os.FileMode(0o750) // without permission to change the owner, this counts as foreign, too
	if os.Geteuid() == 0 {
		must(t, os.Chown(theirs, 1234, 1234))
		mode = 0o700
	}
	must(t, os.Chmod(theirs, mode))
	order := Options{LogDir: logs, MaxAge: day, Report: said.say}
	if counts, err := order.PruneRuns(t.Context()); err != nil || counts != (PruneCounts{Unrecognized: 1}) {
		t.Errorf("got %+v, %v", counts, err)
	}
	must(t, os.Chmod(logs, 0o770))
	if _, err := order.PruneRuns(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "it is not yours, or other users can write to it") {
		t.Errorf("got %v", err)
	}
}

// TestMany removes old runs beside a live one, with two concurrent calls.
func TestMany(t *testing.T) {
	const runs = 300
	logs := logDir(t)
	for i := range runs {
		leave(t, logs, fmt.Sprintf("%d.0", i), time.Hour+time.Duration(i)*time.Minute, true)
	}
	live := begin(t, logs, "live.0")
	ctx, end := context.WithCancel(t.Context())
	var beating sync.WaitGroup
	beating.Go(func() {
		for ctx.Err() == nil {
			if err := live.WriteHeartbeat(ctx, signal.ControlDir); err != nil && ctx.Err() == nil {
				t.Errorf("the live run could not beat: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	defer beating.Wait()
	defer end()
	start := time.Now()
	var both [2]PruneCounts
	var pruning sync.WaitGroup
	for i := range both {
		pruning.Go(func() {
			var err error
			order := Options{LogDir: logs, MaxAge: time.Hour + 20*time.Minute - 30*time.Second,
				Report: func(run, what string) {
					if run == "live.0" && !strings.HasPrefix(what, "kept") || strings.HasPrefix(what, "kept for now") {
						t.Errorf("%s is %s", run, what)
					}
				}}
			if both[i], err = order.PruneRuns(t.Context()); err != nil {
				t.Errorf("one of two fails: %v", err)
			}
		})
	}
	pruning.Wait()
	took := time.Since(start)
	left, err := os.ReadDir(logs)
	must(t, err)
	if removed := both[0].Removed + both[1].Removed; removed != runs-20 || len(left) != 21 || !there(t, live.Path()) {
		t.Errorf("%d are removed, and %d things left", removed, len(left))
	}
	t.Logf("%d runs of 5 names beside a live one, by two at once: %s", runs, took.Round(time.Millisecond))
}

// TestEndsEarly verifies that a cancelled call stops early and that the next one continues.
func TestEndsEarly(t *testing.T) {
	logs := logDir(t)
	for i := range 5 {
		leave(t, logs, fmt.Sprintf("%d.0", i), 40*day, true)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	order := Options{LogDir: logs, MaxAge: day, Report: func(string, string) { cancel(enough) }}
	if counts, err := order.PruneRuns(ctx); !errors.Is(err, enough) || counts.Removed != 1 {
		t.Errorf("got %+v, %v", counts, err)
	}
	order.Report = func(string, string) {}
	if counts, err := order.PruneRuns(t.Context()); err != nil || counts.Removed != 4 {
		t.Errorf("got %+v, %v", counts, err)
	}
	if left, err := os.ReadDir(logs); err != nil || len(left) != 0 {
		t.Errorf("there is %v, %v", left, err)
	}
}

func TestParseAge(t *testing.T) {
	for text, want := range map[string]time.Duration{"30d": 30 * day, "36h": 36 * time.Hour,
		"1m30s": 90 * time.Second} {
		if got, err := ParseAge(text); err != nil || got != want {
			t.Errorf("%q is %s: %v", text, got, err)
		}
	}
	for _, text := range []string{"", "20", "0", "-1", "0d", "-1d", "d", "1.5d", "x", "0s", "-1h", "999999999999d"} {
		if got, err := ParseAge(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

// TestPruneOtherVersion verifies that a run of another format version is removed if it has a result,
// and kept if nothing but its records could show that it is live.
func TestPruneOtherVersion(t *testing.T) {
	logs := logDir(t)
	for name, result := range map[string]bool{"1.0": true, "2.0": false} {
		job := filepath.Join(leave(t, logs, name, 90*day, result), signal.ControlDir, signal.NameJob)
		data, err := os.ReadFile(job)
		must(t, err)
		must(t, os.WriteFile(job, bytes.Replace(data, []byte(`"v":2`), []byte(`"v":1`), 1), 0o600))
	}
	_, err := Options{LogDir: logs, MaxAge: day, Report: heard{}.say}.PruneRuns(t.Context())
	must(t, err)
	if there(t, filepath.Join(logs, "1.0")) || !there(t, filepath.Join(logs, "2.0")) {
		t.Error("the run with a result is kept, or the other one is not")
	}
}
