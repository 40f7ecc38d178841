package report

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
)

var update = flag.Bool("update", false, "write the golden files anew")

// recordings is the directory of the run directories recorded by pkg/inspect/timeline.
const recordings = "../timeline/testdata/runs"

// withLogs are those whose golden files have the logs.
var withLogs = []string{"good", "service-77", "peer-76", "running", "cut-off"}

// recorded reads a recording as of one minute after its begin. Its path and the file times set by
// git must not appear in the output.
func recorded(t *testing.T, name string) (*timeline.Run, []LogTail) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(recordings, name))); err != nil {
		t.Fatal(err)
	}
	var job struct{ At time.Time }
	data, err := os.ReadFile(filepath.Join(dir, signal.ControlDir, signal.NameJob))
	if err != nil || json.Unmarshal(data, &job) != nil {
		job.At = dawn
	}
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, job.At.Add(30*time.Second), job.At.Add(30*time.Second))
	})
	if err != nil {
		t.Fatal(err)
	}
	later := time.Minute
	if name == "cut-off" {
		later = 24 * time.Hour
	}
	run, err := timeline.Read(context.Background(), dir, timeline.DepthFull)
	if err != nil {
		t.Fatal(err)
	}
	run.ReadAt = job.At.Add(later)
	logs := ReadLogs(context.Background(), run)
	for i := range run.Problems {
		run.Problems[i] = strings.ReplaceAll(run.Problems[i], dir, "/logs/"+name)
	}
	run.Path = "/logs/" + name
	return run, logs
}

// names returns the names of the recordings.
func names(t *testing.T) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(recordings)
	if err != nil || len(entries) < 5 {
		t.Fatalf("cannot list the recordings: %v, %d", err, len(entries))
	}
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

func TestGolden(t *testing.T) {
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			run, logs := recorded(t, name)
			v := NewView(run, logs, time.Time{})
			page := pageOf(t, v)
			if !strings.Contains(page, v.Banner.Word) || !strings.Contains(page, `id="timeline"`) {
				t.Error("the page does not tell how it ended")
			}
			if !slices.Contains(withLogs, name) {
				v.Logs = nil
			}
			var b bytes.Buffer
			if err := v.Write(&b, FormatJSON); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".json", b.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not as it was (-want +got); -update writes it anew:\n%s", path, diff)
	}
}
