package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/bringupd/bringupd/internal/files"
)

// made is a directory with content, which includes a link to another directory.
type made struct {
	*files.OwnedDir
	parent, outside string
}

func makeDir(t *testing.T) made {
	t.Helper()
	m := made{parent: t.TempDir(), outside: t.TempDir()}
	var err error
	if m.OwnedDir, err = files.MakeOwnedTemp(m.parent, "bu-"); err != nil {
		t.Fatal(err)
	}
	must(t, m.Root().MkdirAll("a/b", 0o700), m.Root().WriteFile("a/b/file", nil, 0o600),
		m.Root().Symlink(m.outside, "a/link"), os.WriteFile(filepath.Join(m.outside, "kept"), nil, 0o600))
	return m
}

// exchange moves the directory, and puts another one with a file in its place.
func (m made) exchange(t *testing.T) {
	t.Helper()
	must(t, os.Rename(m.Path(), filepath.Join(m.parent, "aside")), os.Mkdir(m.Path(), 0o700),
		os.WriteFile(filepath.Join(m.Path(), "kept"), nil, 0o600))
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// wantNames checks the names in a directory.
func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if len(names) != len(want) || len(want) > 0 && names[0] != want[0] {
		t.Errorf("%s has %q, want %q", dir, names, want)
	}
}

// removals are the ways to remove a directory: by its maker, or by the process that cleans up.
var removals = map[string]func(made) error{
	"own":     func(m made) error { return m.Remove() },
	"another": func(m made) error { return m.Owned().Remove() },
}

func TestOwnedDir(t *testing.T) {
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			m := makeDir(t)
			must(t, remove(m))
			wantNames(t, m.parent)
			wantNames(t, m.outside, "kept")
			must(t, m.Owned().Remove()) // it is missing
		})
	}
}

// TestOwnedDirExchanged verifies that a directory which has the path now stays, with its content.
func TestOwnedDirExchanged(t *testing.T) {
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			m := makeDir(t)
			m.exchange(t)
			if err := remove(m); err == nil {
				t.Error("there is no error")
			}
			wantNames(t, m.Path(), "kept")
		})
	}
	m := makeDir(t)
	m.exchange(t)
	_ = m.Remove() // an error, as above
	wantNames(t, filepath.Join(m.parent, "aside"))
}

// TestOwnedDirLink verifies that a link in place of the directory is not followed.
func TestOwnedDirLink(t *testing.T) {
	for name, remove := range removals {
		t.Run(name, func(t *testing.T) {
			m := makeDir(t)
			must(t, os.Rename(m.Path(), filepath.Join(m.parent, "aside")), os.Symlink(m.outside, m.Path()))
			if err := remove(m); err == nil {
				t.Error("there is no error")
			}
			wantNames(t, m.outside, "kept")
		})
	}
}

// TestOwnedFile verifies that a file is removed also if it was replaced, and a directory is not.
func TestOwnedFile(t *testing.T) {
	dir := t.TempDir()
	file := files.OwnedPath{Path: filepath.Join(dir, "file")}
	must(t, file.Remove(), os.WriteFile(file.Path, nil, 0o600), file.Remove())
	wantNames(t, dir)
	must(t, os.Mkdir(file.Path, 0o700))
	if err := file.Remove(); err == nil {
		t.Error("a directory was removed")
	}
	wantNames(t, dir, "file")
}

func TestMakeOwnedDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	dir, err := files.MakeOwnedDir(path)
	if err != nil || dir.Path() != path {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := files.MakeOwnedDir(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second one: %v", err)
	}
}
