package simulate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
)

func TestOpenRoom(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, dir string
		noDir     bool   // the argument is the error's reason
		want      string // part of the error; empty: none
	}{
		{"a directory", t.TempDir(), false, ""},
		{"a link to one", link, false, ""},
		{"nothing there", filepath.Join(dir, "none"), true, "cannot use --dir=" + filepath.Join(dir, "none") + ": no such file or directory: give an existing directory"},
		{"a file", file, true, "it is not a directory: give an existing directory"},
		{"one that nobody can write to", "/proc", false, "cannot use the directory /proc on here: cannot create a directory in it: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			room, err := MakeScratchDir(t.Context(), tc.dir, "here")
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if info, err := os.Stat(room.Path()); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("the room is %v, %v", info, err)
				}
				if err := room.Remove(t.Context()); err != nil || len(names(t, tc.dir)) > 0 {
					t.Errorf("%v; there are %v", err, names(t, tc.dir))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, ErrNotDirectory) != tc.noDir {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if _, directory := errors.AsType[*signal.DirError](err); directory == tc.noDir {
				t.Errorf("whom does it blame? %v", err)
			}
		})
	}
}

// names returns the names in a directory.
func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// newRoom returns a scratch directory in an empty directory.
func newRoom(t *testing.T) *ScratchDir {
	t.Helper()
	room, err := MakeScratchDir(t.Context(), t.TempDir(), "here")
	if err != nil {
		t.Fatal(err)
	}
	return room
}

// TestRemove verifies that neither entries beside the scratch directory nor the targets of links in
// it are changed.
func TestRemove(t *testing.T) {
	room := newRoom(t)
	beside := filepath.Join(filepath.Dir(room.Path()), "beside")
	run := filepath.Join(room.Path(), "run", "nodes")
	if err := errors.Join(os.MkdirAll(run, 0o700), os.Mkdir(beside, 0o700), os.Symlink(beside, filepath.Join(room.Path(), "latest")),
		os.WriteFile(filepath.Join(beside, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for i := range 10 * maxConcurrentRemovals {
		if err := os.WriteFile(filepath.Join(run, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := room.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(room.Path()); !os.IsNotExist(err) {
		t.Errorf("the room is there: %v", err)
	}
	if left := names(t, beside); len(left) != 1 {
		t.Errorf("of what is beside it there is left: %v", left)
	}
}

// TestRemoveLateNames verifies that files created by calls that were in progress when their daemons
// ended are removed, too.
func TestRemoveLateNames(t *testing.T) {
	room := newRoom(t)
	var late sync.WaitGroup
	late.Go(func() {
		for i := range 1000 {
			if os.WriteFile(filepath.Join(room.Path(), strconv.Itoa(i)), nil, 0o600) != nil {
				return
			}
		}
	})
	if err := room.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	late.Wait()
	if _, err := os.Stat(room.Path()); !os.IsNotExist(err) {
		t.Errorf("the room is there: %v", err)
	}
}

func TestRemoveGivesUp(t *testing.T) {
	room := newRoom(t)
	if err := os.WriteFile(filepath.Join(room.Path(), "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTimeOver)
	err := room.Remove(ctx)
	if !errors.Is(err, errTimeOver) || !strings.Contains(err.Error(), room.Path()) || !strings.Contains(err.Error(), "remove it yourself") {
		t.Errorf("got %v", err)
	}
}
