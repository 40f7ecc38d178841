package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/internal/files"
)

// TestReadTrusted verifies that a file is read only if nobody but its owner can have written it. The
// owner that is expected is the user of the test, or another one.
func TestReadTrusted(t *testing.T) {
	const text = "12345"
	self := os.Geteuid()
	for name, tc := range map[string]struct {
		prepare func(dir, path string) error // what differs from a file of mode 0644
		owner   int
		isRead  bool
	}{
		"a file":           {nil, self, true},
		"another's file":   {nil, self + 1, false},
		"of a group":       {func(_, path string) error { return os.Chmod(path, 0o664) }, self, false},
		"of others":        {func(_, path string) error { return os.Chmod(path, 0o646) }, self, false},
		"a group's folder": {func(dir, _ string) error { return os.Chmod(dir, 0o775) }, self, false},
		"a sticky folder":  {func(dir, _ string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, self, false},
		"large": {func(_, path string) error {
			return os.WriteFile(path, []byte(text+"6"), 0)
		}, self, false},
		"a folder": {func(_, path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
		}, self, false},
		"a pipe": {func(_, path string) error {
			return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o644))
		}, self, false},
		"a link": {func(_, path string) error {
			return errors.Join(os.Rename(path, path+".1"), os.Symlink(path+".1", path))
		}, self, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			must(t, os.Chmod(dir, 0o755), os.WriteFile(path, []byte(text), 0o644), os.Chmod(path, 0o644))
			if tc.prepare != nil {
				must(t, tc.prepare(dir, path))
			}
			got, err := files.ReadTrusted(path, int64(len(text)), tc.owner)
			if (err == nil) != tc.isRead || tc.isRead && string(got) != text || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("read %q, %v", got, err)
			}
		})
	}
	none := filepath.Join(t.TempDir(), "none")
	for _, path := range []string{none, filepath.Join(none, "file")} {
		if _, err := files.ReadTrusted(path, 1, self+1); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, and it is missing", path, err)
		}
	}
}
