package files

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ForeignDir is an open directory of a user who is not trusted. It is read without following links
// and without waiting for pipes, and stays the same one if that user replaces it meanwhile.
type ForeignDir struct {
	*os.File
	Info fs.FileInfo // of the opened directory
}

// OpenForeign opens a directory. A link as the last component of path is refused.
func OpenForeign(path string) (ForeignDir, error) { return openForeign(unix.AT_FDCWD, path) }

// OpenDir opens a directory of d. It refuses a link.
func (d ForeignDir) OpenDir(name string) (ForeignDir, error) {
	return openForeign(int(d.Fd()), name)
}

func openForeign(at int, name string) (ForeignDir, error) {
	file, info, err := openUnfollowed(at, name, unix.O_DIRECTORY)
	return ForeignDir{file, info}, err
}

// openUnfollowed opens a file for reading, unless it is a link.
func openUnfollowed(at int, name string, flags int) (*os.File, fs.FileInfo, error) {
	flags |= unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, flags, 0)
	for err == unix.EINTR { // as file systems in user space may return it
		fd, err = unix.Openat(at, name, flags, 0)
	}
	if err != nil {
		return nil, nil, pathError("open", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// Names returns the names in the directory. If there are more than limit, it returns only that many,
// and isCut is true.
func (d ForeignDir) Names(limit int) (names []string, isCut bool, err error) {
	names, err = d.Readdirnames(limit + 1)
	if err == io.EOF {
		err = nil
	}
	if len(names) > limit {
		return names[:limit], true, err
	}
	return names, false, err
}

// ChangedAt returns when a directory in d was changed last; isDir is false for anything else.
func (d ForeignDir) ChangedAt(name string) (at time.Time, isDir bool) {
	var stat unix.Stat_t
	err := unix.Fstatat(int(d.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return time.Unix(stat.Mtim.Unix()), err == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR
}

// ReadFile reads a regular file of the directory that has at most maxBytes bytes. Its owner must be
// that of the directory, and no other user may be able to write to it: other files in the directory
// may be another user's, or links to them.
func (d ForeignDir) ReadFile(name string, maxBytes int64) ([]byte, fs.FileInfo, error) {
	file, info, err := openUnfollowed(int(d.Fd()), name, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	switch {
	case OwnerOf(info) != OwnerOf(d.Info):
		return nil, nil, fmt.Errorf("%s belongs to user %d, and its directory to user %d", name,
			OwnerOf(info), OwnerOf(d.Info))
	case info.Mode().Perm()&0o022 != 0:
		return nil, nil, fmt.Errorf("other users could have written %s (%s)", name, info.Mode())
	}
	text, err := readRegular(file, maxBytes)
	if err != nil {
		err = fmt.Errorf("cannot use %s: %w", name, err)
	}
	return text, info, err
}

// OwnerOf returns the id of the user to whom a file belongs.
func OwnerOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
