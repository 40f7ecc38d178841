package hostile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// calls contains one call of every kind that can be distinguished from outside. Each is made on a
// mount that contains a file, a directory and a symbolic link.
var calls = []struct {
	name          string
	stale, misses bool // whether it can fail with ESTALE or ENOENT
	changes, room bool
	call          func(m *Mount) error
}{
	{name: "stat", stale: true, misses: true,
		call: func(m *Mount) error { _, err := os.Lstat(m.path("file")); return err }},
	{name: "open", stale: true, misses: true,
		call: func(m *Mount) error { _, err := os.ReadFile(m.path("file")); return err }},
	{name: "readlink", stale: true, misses: true,
		call: func(m *Mount) error { _, err := os.Readlink(m.path("link")); return err }},
	{name: "list", stale: true, misses: true,
		call: func(m *Mount) error { _, err := os.ReadDir(m.at); return err }},
	{name: "chmod", stale: true, misses: true, changes: true, call: func(m *Mount) error {
		return os.Chmod(m.path("file"), 0o640)
	}},
	{name: "mkdir", stale: true, changes: true, room: true, call: func(m *Mount) error {
		return os.Mkdir(m.path("new"), 0o700)
	}},
	{name: "unlink", stale: true, misses: true, changes: true, call: func(m *Mount) error {
		return unix.Unlink(m.path("file"))
	}},
	{name: "rmdir", stale: true, misses: true, changes: true, call: func(m *Mount) error {
		return unix.Rmdir(m.path("dir"))
	}},
	{name: "rename", stale: true, misses: true, changes: true, call: func(m *Mount) error {
		return unix.Rename(m.path("file"), m.path("new"))
	}},
	{name: "link", stale: true, misses: true, changes: true, room: true,
		call: func(m *Mount) error { return unix.Link(m.path("file"), m.path("new")) }},
	{name: "symlink", stale: true, changes: true, room: true, call: func(m *Mount) error {
		return unix.Symlink("file", m.path("new"))
	}},
	{name: "create", stale: true, changes: true, room: true, call: func(m *Mount) error {
		return os.WriteFile(m.path("new"), nil, 0o600)
	}},
}

// furnished returns a mount that contains a file, a directory and a symbolic link.
func furnished(t *testing.T, knobs Knobs) *Mount {
	t.Helper()
	folder := t.TempDir()
	put(t, filepath.Join(folder, "file"), "words")
	ok(t, os.Mkdir(filepath.Join(folder, "dir"), 0o700))
	ok(t, os.Symlink("file", filepath.Join(folder, "link")))
	return mounted(t, folder, knobs)
}

// TestErrors checks that each call fails with the set error, and works without one.
func TestErrors(t *testing.T) {
	for _, tc := range calls {
		t.Run(tc.name, func(t *testing.T) {
			m := furnished(t, Knobs{Stale: 1})
			if tc.stale {
				fails(t, "stale", tc.call(m), syscall.ESTALE)
			}
			set(t, m, Knobs{IO: 1})
			fails(t, "io", tc.call(m), syscall.EIO)
			if tc.misses {
				set(t, m, Knobs{Missing: 1})
				fails(t, "missing", tc.call(m), syscall.ENOENT)
			}
			set(t, m, Knobs{})
			ok(t, tc.call(m))
		})
	}
}

// TestRenameLies checks that a rename succeeds although it returns an error.
func TestRenameLies(t *testing.T) {
	a, b, _ := two(t, Knobs{RenameLies: true})
	put(t, a.path("old"), "words")
	fails(t, "a rename that works", unix.Rename(a.path("old"), a.path("new")), syscall.ENOENT)
	lists(t, b.at, "new")
	lists(t, a.at, "new")
	has(t, a.path("new"), "words")
	fails(t, "one that doesn't", unix.Rename(a.path("old"), a.path("newer")), syscall.ENOENT)
	lists(t, b.at, "new")
}

// TestNoLinks checks that hard links fail with the set error.
func TestNoLinks(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EPERM, syscall.ENOTSUP} {
		a, b, _ := two(t, Knobs{NoLinks: errno})
		put(t, a.path("old"), "words")
		fails(t, "a link", os.Link(a.path("old"), a.path("new")), errno)
		lists(t, b.at, "old")
		ok(t, os.Link(b.path("old"), b.path("new")))
		has(t, a.path("new"), "words")
	}
}

// TestFull checks which calls fail on a full file system.
func TestFull(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		for _, tc := range calls {
			t.Run(errno.Error()+"/"+tc.name, func(t *testing.T) {
				m := furnished(t, Knobs{Full: errno})
				var want error
				if tc.room {
					want = errno
				}
				fails(t, tc.name, tc.call(m), want)
			})
		}
		t.Run(errno.Error()+"/write", func(t *testing.T) {
			m := furnished(t, Knobs{Full: errno})
			fails(t, "a write", os.WriteFile(m.path("file"), []byte("more"), 0), errno)
		})
	}
}

// TestFullAtClose checks that only sync and close fail, and that the data is lost.
func TestFullAtClose(t *testing.T) {
	a, b, _ := two(t, Knobs{Full: syscall.ENOSPC, FullAtClose: true})
	file, err := os.Create(a.path("file"))
	ok(t, err)
	_, err = file.WriteString("words")
	ok(t, err)
	fails(t, "the sync", file.Sync(), syscall.ENOSPC)
	fails(t, "the close", file.Close(), syscall.ENOSPC)
	has(t, b.path("file"), "")
	ok(t, os.WriteFile(a.path("empty"), nil, 0o600)) // no data was lost
}

// TestReadOnly checks that calls that change something fail, also with open files.
func TestReadOnly(t *testing.T) {
	for _, tc := range calls {
		t.Run(tc.name, func(t *testing.T) {
			m := furnished(t, Knobs{ReadOnly: true})
			var want error
			if tc.changes {
				want = syscall.EROFS
			}
			fails(t, tc.name, tc.call(m), want)
		})
	}
	t.Run("write", func(t *testing.T) {
		m := furnished(t, Knobs{})
		file, err := os.OpenFile(m.path("file"), os.O_WRONLY, 0)
		ok(t, err)
		defer file.Close()
		set(t, m, Knobs{ReadOnly: true})
		_, err = file.WriteString("more")
		fails(t, "a write to what is open", err, syscall.EROFS)
		_, err = os.OpenFile(m.path("file"), os.O_WRONLY, 0)
		fails(t, "an open to write", err, syscall.EROFS)
	})
}

// TestForgets checks a server that forgets a file that is open, but not its name.
func TestForgets(t *testing.T) {
	m := mounted(t, t.TempDir(), Knobs{})
	open := func() *os.File {
		file, err := os.OpenFile(m.path("log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		ok(t, err)
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	before := open()
	_, err := before.WriteString("one\n")
	ok(t, err)
	set(t, m, Knobs{Forgets: 1})
	_, err = before.WriteString("lost\n")
	fails(t, "a write to what is forgotten", err, syscall.ESTALE)
	_, err = open().WriteString("two\n")
	ok(t, err)
	_, err = before.WriteString("lost\n")
	fails(t, "another write to what is forgotten", err, syscall.ESTALE)
	has(t, m.path("log"), "one\ntwo\n")
}
