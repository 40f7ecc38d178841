package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadRegular reads a regular file of at most maxBytes bytes. It does not wait for anything else
// that the path may name, such as a pipe: that is an error.
func ReadRegular(path string, maxBytes int64) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	return readRegular(file, maxBytes)
}

// ReadTrusted does the same with a file that only its owner can change, according to the opened
// file, in a directory of which the same is true. Both owners must be among the given ones. It refuses
// a link, whose target may be below a directory that others can replace.
func ReadTrusted(path string, maxBytes int64, owners ...int) ([]byte, error) {
	file, info, err := openUnfollowed(unix.AT_FDCWD, path, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a link; it must be a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	dir, err := os.Stat(filepath.Dir(path))
	if err == nil {
		err = judgeWriters(filepath.Dir(path), dir, owners)
	}
	if err == nil {
		err = judgeWriters(path, info, owners)
	}
	if err != nil {
		return nil, err
	}
	return readRegular(file, maxBytes)
}

// judgeWriters returns an error if others than these owners can change a file or directory.
func judgeWriters(path string, info os.FileInfo, owners []int) error {
	switch owner := info.Sys().(*syscall.Stat_t).Uid; {
	case !slices.Contains(owners, int(owner)):
		return fmt.Errorf("%s belongs to user %d; it must belong to root", path, owner)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("other users can change %s (mode %04o): run chmod go-w %[1]s", path,
			info.Mode().Perm())
	}
	return nil
}

// readRegular reads an opened file if it is regular.
func readRegular(file *os.File, maxBytes int64) ([]byte, error) {
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("it is not a regular file (%s)", info.Mode().Type())
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("it has %d bytes; the maximum is %d", info.Size(), maxBytes)
	}
	return io.ReadAll(io.LimitReader(file, maxBytes))
}
