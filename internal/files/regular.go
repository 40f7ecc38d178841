package files

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// ReadRegular reads a regular file of at most maxBytes bytes. It does not wait for anything else
// that the path may name, such as a pipe: that is an error.
func ReadRegular(path string, maxBytes int64) ([]byte, error) {
	return readJudged(path, maxBytes, nil)
}

// ReadTrusted does the same with a file that only its owner can change, according to the opened
// file, in a directory of which the same is true. All owners must be among the given ones. If path is
// a link, which only such an owner can make there, both must be true of its target.
func ReadTrusted(path string, maxBytes int64, owners ...int) ([]byte, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	judgeDir := func(path string) error {
		info, err := os.Stat(filepath.Dir(path))
		if err != nil {
			return err
		}
		return judgeWriters(filepath.Dir(path), info, owners)
	}
	if err := cmp.Or(judgeDir(path), judgeDir(target)); err != nil {
		return nil, err
	}
	return readJudged(target, maxBytes, owners)
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

// readJudged reads a regular file. If there are owners, it is judged by judgeWriters.
func readJudged(path string, maxBytes int64, owners []int) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	if owners != nil {
		info, err := file.Stat()
		if err == nil {
			err = judgeWriters(path, info, owners)
		}
		if err != nil {
			return nil, err
		}
	}
	return readRegular(file, maxBytes)
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
