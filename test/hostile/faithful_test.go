package hostile

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFaithful checks that, if all knobs are zero, changes through one mount are visible at once
// through another one and in the folder.
func TestFaithful(t *testing.T) {
	a, b, folder := two(t, Knobs{})
	_, err := os.Stat(b.path("new"))
	fails(t, "a name before it is there", err, os.ErrNotExist)

	put(t, a.path("new"), "some words")
	has(t, b.path("new"), "some words")
	has(t, folder+"/new", "some words")
	lists(t, b.at, "new")
	info, err := os.Stat(b.path("new"))
	ok(t, err)
	if info.Mode() != 0o600 || info.Size() != 10 {
		t.Errorf("it is %s with %d bytes", info.Mode(), info.Size())
	}

	ok(t, os.Mkdir(a.path("dir"), 0o700))
	ok(t, os.Rename(b.path("new"), b.path("dir/old")))
	_, err = os.Stat(a.path("new"))
	fails(t, "a name that was renamed", err, os.ErrNotExist)
	has(t, a.path("dir/old"), "some words")

	ok(t, os.Truncate(a.path("dir/old"), 4))
	has(t, b.path("dir/old"), "some")
	ok(t, os.Chmod(b.path("dir/old"), 0o640))
	info, err = os.Stat(a.path("dir/old"))
	ok(t, err)
	if info.Mode() != 0o640 {
		t.Errorf("its mode is %s", info.Mode())
	}

	ok(t, os.Link(a.path("dir/old"), a.path("link")))
	has(t, b.path("link"), "some")
	ok(t, os.Symlink("dir/old", b.path("symlink")))
	has(t, a.path("symlink"), "some")
	lists(t, a.at, "dir", "link", "symlink")

	ok(t, os.RemoveAll(a.path("dir")))
	_, err = os.Stat(b.path("symlink"))
	fails(t, "a link to what was removed", err, os.ErrNotExist)
	lists(t, b.at, "link", "symlink")
}

// TestFaithfulExclusiveMaking checks that the exclusive creation of a name fails on every mount if
// the name exists.
func TestFaithfulExclusiveMaking(t *testing.T) {
	a, b, _ := two(t, Knobs{})
	put(t, a.path("taken"), "")
	_, err := os.OpenFile(b.path("taken"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	fails(t, "an exclusive creation", err, os.ErrExist)
	fails(t, "a directory", os.Mkdir(b.path("taken"), 0o700), os.ErrExist)
	put(t, b.path("other"), "")
	fails(t, "a link", os.Link(b.path("other"), b.path("taken")), os.ErrExist)
	err = unix.Renameat2(unix.AT_FDCWD, b.path("other"), unix.AT_FDCWD, b.path("taken"),
		unix.RENAME_NOREPLACE)
	fails(t, "an exclusive rename", err, os.ErrExist)
}
