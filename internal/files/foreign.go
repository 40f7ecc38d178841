package files

import (
	"io"
	"io/fs"
	"os"
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
	file, info, err := openFile(at, name, unix.O_DIRECTORY|unix.O_NOFOLLOW, nil)
	return ForeignDir{file, info}, err
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
	return readRegular(int(d.Fd()), name, unix.O_NOFOLLOW, maxBytes, func(info fs.FileInfo) error {
		return judgeWriters(name, info, []int{OwnerOf(d.Info)})
	})
}
