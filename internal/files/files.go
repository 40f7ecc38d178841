// Package files reads and replaces files whose paths a user gives. They may be anything, such as a
// named pipe, and in directories to which others can write.
package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// ReadLimited returns the contents of a file, which may be a named pipe or the result of "<(...)"
// in a shell. It fails if the file has more than `maxBytes` bytes, and, with the cause of ctx, if ctx
// ends before the end of the file.
func ReadLimited(ctx context.Context, path string, maxBytes int64) ([]byte, error) {
	text, err := ctxutil.CallBounded(ctx, 0, func() ([]byte, error) {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // it was only read
		text, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
		if err == nil && int64(len(text)) > maxBytes {
			err = fmt.Errorf("%s is larger than %d bytes", path, maxBytes)
		}
		return text, err
	})
	if errors.Is(err, ctxutil.ErrAbandoned) {
		return nil, fmt.Errorf("%s is incomplete: %w", path, context.Cause(ctx))
	}
	return text, err
}

// ReplaceFile replaces the file at path by one with this mode, regardless of the umask. Readers see
// all of it or nothing. A link or a pipe that another user has created there is not written to. If
// path is not a regular file but belongs to root or to the user, such as /dev/stdout, it is written
// to directly.
func ReplaceFile(path string, text []byte, mode os.FileMode) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		if owner := OwnerOf(info); owner == 0 || owner == os.Geteuid() {
			return overwriteFile(path, text)
		}
	}
	// The temporary name is unpredictable, and only used if no file has it.
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err == nil {
		_, err = file.Write(text)
		if err = cmp.Or(err, file.Chmod(mode), file.Close()); err == nil {
			err = os.Rename(file.Name(), path)
		}
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}
	if number, is := errors.AsType[syscall.Errno](err); is {
		// the user does not know the temporary name
		return &os.PathError{Op: "write", Path: path, Err: number}
	}
	return err
}

func overwriteFile(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}
