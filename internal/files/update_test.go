package files_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/test/users"
)

func add(text string) func(old []byte) []byte {
	return func(old []byte) []byte { return append(old, text...) }
}

// TestUpdateOwned updates a file concurrently: no update is lost, and other users can read the file
// but not hold its lock.
func TestUpdateOwned(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	var all sync.WaitGroup
	const updates = 50
	for range updates {
		all.Go(func() {
			count := func(old []byte) []byte {
				n, _ := strconv.Atoi(string(old))
				return []byte(strconv.Itoa(n + 1))
			}
			if err := files.UpdateOwned(t.Context(), path, 0o644, 100, count); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if text, err := os.ReadFile(path); err != nil || string(text) != strconv.Itoa(updates) {
		t.Errorf("the file has %q, %v", text, err)
	}
	for name, mode := range map[string]os.FileMode{"file": 0o644, ".file.lock": 0o600} {
		info, err := os.Lstat(filepath.Join(filepath.Dir(path), name))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 2 {
		t.Errorf("there are %v", left)
	}
}

// TestUpdateOwnedRefuses verifies that no link is followed, no pipe is waited for, and no file is used
// that is too large or has another owner.
func TestUpdateOwnedRefuses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"file", ".file.lock"} {
		for kind, plant := range map[string]func(t *testing.T, path, other string) error{
			"link":      func(_ *testing.T, path, other string) error { return os.Symlink(other, path) },
			"pipe":      func(_ *testing.T, path, _ string) error { return syscall.Mkfifo(path, 0o600) },
			"directory": func(_ *testing.T, path, _ string) error { return os.Mkdir(path, 0o700) },
			"stranger": func(t *testing.T, path, _ string) error {
				users.Need(t)
				return errors.Join(os.WriteFile(path, nil, 0o666),
					os.Chown(path, int(users.Stranger.ID), -1))
			},
			"large": func(_ *testing.T, path, _ string) error {
				return os.WriteFile(filepath.Join(filepath.Dir(path), "file"), []byte("12345"), 0o600)
			},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				other := filepath.Join(dir, "other")
				if err := errors.Join(os.WriteFile(other, []byte("1"), 0o600),
					plant(t, filepath.Join(dir, name), other)); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, "file")
				if err := files.UpdateOwned(t.Context(), path, 0o644, 4, add("2")); err == nil {
					t.Error("it was used")
				}
				if text, err := os.ReadFile(other); err != nil || string(text) != "1" {
					t.Errorf("the other file has %q, %v", text, err)
				}
			})
		}
	}
}

// TestUpdateOwnedGivesUp verifies that the wait for a lock ends with the context.
func TestUpdateOwnedGivesUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	err := files.UpdateOwned(t.Context(), path, 0o644, 100, func([]byte) []byte {
		cancel(enough)
		if err := files.UpdateOwned(ctx, path, 0o644, 100, add("inner")); !errors.Is(err, enough) {
			t.Errorf("the second update returned %v", err)
		}
		return []byte("outer")
	})
	if text, readErr := os.ReadFile(path); err != nil || readErr != nil || string(text) != "outer" {
		t.Errorf("the file has %q, %v", text, errors.Join(err, readErr))
	}
}
