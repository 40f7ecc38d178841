package timeline

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// recorded returns a copy of a run directory that test/cmd/runs has recorded, and a time shortly
// after its last event. The copy does not use file times: git does not keep them.
func recorded(t testing.TB, name string) (dir string, now time.Time) {
	t.Helper()
	from, dir := filepath.Join("testdata", "runs", name), filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	run, err := Read(t.Context(), dir, DepthFull)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range run.Nodes {
		if node.LastSign.After(now) {
			now = node.LastSign
		}
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == ".keep" {
			return os.Remove(path)
		}
		if err == nil {
			err = os.Chtimes(path, now, now)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, now.Add(3 * time.Second)
}

// recordings returns the names of all recorded runs.
func recordings(t testing.TB) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("testdata", "runs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// read reads a recorded run.
func read(t testing.TB, name string, depth ReadDepth) *Run {
	t.Helper()
	dir, now := recorded(t, name)
	run, err := Read(t.Context(), dir, depth)
	if err != nil {
		t.Fatal(err)
	}
	run.ReadAt = now
	return run
}
