package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// lockPollInterval is the interval at which a process tries to get a lock that another one holds.
const lockPollInterval = 10 * time.Millisecond

// UpdateOwned replaces a file of this user, in a directory to which other users may be able to
// write, by what edit returns for its content, which is nil if there is no file. Processes that
// update the same file do so one after the other: each holds the lock of a hidden file beside it,
// which stays. A file or a lock that belongs to another user, or is no regular file, such as a link,
// is an error. The wait for the lock ends with ctx.
func UpdateOwned(ctx context.Context, path string, mode os.FileMode, maxBytes int64,
	edit func(old []byte) []byte) error {
	// Other users cannot open the lock file, so they cannot hold its lock.
	lockPath := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	lock, err := openOwnFile(lockPath, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // this releases the lock
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if err != syscall.EWOULDBLOCK && err != syscall.EINTR {
			return pathError("lock", lockPath, err)
		}
		if !ctxutil.SleepContext(ctx, lockPollInterval) {
			return fmt.Errorf("cannot lock %s: another process holds the lock: %w", lockPath,
				context.Cause(ctx))
		}
	}
	var old []byte
	file, err := openOwnFile(path, os.O_RDONLY)
	if err == nil {
		old, err = readRegular(file, maxBytes)
		_ = file.Close() // it was only read
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return ReplaceFile(path, edit(old), mode)
}

// openOwnFile opens a regular file of this user, and no link to one.
func openOwnFile(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("cannot use %s: it is a symbolic link; it must be a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("cannot use %s: it must be a regular file, and is %s", path, info.Mode().Type())
	} else if err == nil {
		if owner := int(info.Sys().(*syscall.Stat_t).Uid); owner != os.Geteuid() {
			err = fmt.Errorf("cannot use %s: it belongs to user %d, not to %d", path, owner, os.Geteuid())
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
