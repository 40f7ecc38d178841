package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/test/users"
)

// TestForeignDir verifies that only regular files of the owner of a directory are read, and no link
// is followed, not even one to a file of the same user.
func TestForeignDir(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(path string, mode os.FileMode) error {
		return errors.Join(os.WriteFile(path, []byte("text"), 0o600), os.Chmod(path, mode))
	}
	if err := errors.Join(write(at("file"), 0o600), write(at("shared"), 0o620), write(at("large"), 0o600),
		os.Truncate(at("large"), 1<<40), syscall.Mkfifo(at("pipe"), 0o600), os.Mkdir(at("sub"), 0o700),
		os.Symlink("file", at("link")), os.Symlink(other, at("linked")), write(filepath.Join(other, "file"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"file": true, "shared": false, "large": false, "pipe": false, "sub": false,
		"link": false, "linked/file": false, "none": false}
	if os.Geteuid() == 0 {
		want["stranger's"] = false
		if err := errors.Join(write(at("stranger's"), 0o644),
			os.Chown(at("stranger's"), int(users.Stranger.ID), 0)); err != nil {
			t.Fatal(err)
		}
	}
	opened, err := files.OpenForeign(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	for name, is := range want {
		text, _, err := opened.ReadFile(name, 100)
		if name == "linked/file" { // through the link as a directory
			_, err = opened.OpenDir("linked")
		}
		if (err == nil) != is || is && string(text) != "text" {
			t.Errorf("%s is read as %q: %v", name, text, err)
		}
		if _, isDir := opened.ChangedAt(name); isDir != (name == "sub") {
			t.Errorf("%s is a directory: %v", name, isDir)
		}
	}
	if _, err := files.OpenForeign(at("linked")); err == nil {
		t.Error("a link is opened as a directory")
	}
	if names, isCut, err := opened.Names(3); len(names) != 3 || !isCut || err != nil {
		t.Errorf("the first names are %q, %v, %v", names, isCut, err)
	}
	sub, err := opened.OpenDir("sub")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Close() })
	// The opened directory stays the same one.
	if err := errors.Join(write(at("sub/new"), 0o600), os.Rename(at("sub"), at("moved")),
		os.Symlink(other, at("sub"))); err != nil {
		t.Fatal(err)
	}
	if names, isCut, err := sub.Names(3); !slices.Equal(names, []string{"new"}) || isCut || err != nil {
		t.Errorf("the names are %q, %v, %v", names, isCut, err)
	}
}
