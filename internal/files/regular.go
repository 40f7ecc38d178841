package files

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadRegular reads a regular file of at most maxBytes bytes. It does not wait for anything else
// that the path may name, such as a pipe: that is an error.
func ReadRegular(path string, maxBytes int64) ([]byte, error) {
	text, _, err := readRegular(unix.AT_FDCWD, path, 0, maxBytes, nil)
	return text, err
}

// ReadTrusted does the same with a file that only its owner can change, according to the opened
// file, in a directory of which the same is true. Both owners must be among the given ones. It refuses
// a link, whose target may be below a directory that others can replace.
func ReadTrusted(path string, maxBytes int64, owners ...int) ([]byte, error) {
	judge := func(info fs.FileInfo) error {
		dir, err := os.Stat(filepath.Dir(path))
		if err == nil {
			err = judgeWriters(filepath.Dir(path), dir, owners)
		}
		return cmp.Or(err, judgeWriters(path, info, owners))
	}
	text, _, err := readRegular(unix.AT_FDCWD, path, unix.O_NOFOLLOW, maxBytes, judge)
	return text, err
}

// judgeWriters returns an error if others than these owners can change a file or directory.
func judgeWriters(path string, info fs.FileInfo, owners []int) error {
	err := judgeOwner(path, info, owners)
	if mode := info.Mode().Perm(); err == nil && mode&0o022 != 0 {
		err = fmt.Errorf("other users can change %s (mode %04o): run chmod go-w %[1]s", path, mode)
	}
	return err
}

// judgeOwner returns an error if a file or directory belongs to none of these users.
func judgeOwner(path string, info fs.FileInfo, owners []int) error {
	if owner := OwnerOf(info); !slices.Contains(owners, owner) {
		return fmt.Errorf("%s belongs to user %d; it must belong to user %d", path, owner, owners[0])
	}
	return nil
}

// OwnerOf returns the id of the user to whom a file belongs.
func OwnerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// readRegular opens a file like openFile and reads it, if it has at most maxBytes bytes.
func readRegular(at int, name string, flags int, maxBytes int64, judge func(fs.FileInfo) error,
) ([]byte, fs.FileInfo, error) {
	file, info, err := openFile(at, name, flags, judge)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	if info.Size() > maxBytes {
		return nil, nil, pathError("read", name,
			fmt.Errorf("it has %d bytes; the maximum is %d", info.Size(), maxBytes))
	}
	text, err := io.ReadAll(io.LimitReader(file, maxBytes))
	return text, info, err
}

// openFile opens a regular file, or with O_DIRECTORY a directory, that judge does not refuse; nil
// refuses none. It does not wait for pipes. A relative name is one in the open directory at. A file
// that O_CREATE makes is the user's alone.
func openFile(at int, name string, flags int, judge func(fs.FileInfo) error) (*os.File, fs.FileInfo, error) {
	flags |= unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, flags, 0o600)
	for err == unix.EINTR { // as file systems in user space may return it
		fd, err = unix.Openat(at, name, flags, 0o600)
	}
	switch isDir := flags&unix.O_DIRECTORY != 0; {
	case isDir && err == unix.ENOTDIR:
		err = errors.New("it is a link or no directory; it must be a directory")
	case err == unix.ELOOP && flags&unix.O_NOFOLLOW != 0:
		err = errors.New("it is a link; it must be a regular file")
	}
	if err != nil {
		return nil, nil, pathError("open", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	info, err := file.Stat()
	switch {
	case err != nil:
	case flags&unix.O_DIRECTORY == 0 && !info.Mode().IsRegular():
		err = pathError("open", name, fmt.Errorf("it is not a regular file (%s)", info.Mode().Type()))
	case judge != nil:
		err = judge(info)
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return file, info, nil
}
