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

	"golang.org/x/sys/unix"

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
	own := []int{os.Geteuid()}
	lock, _, err := openFile(unix.AT_FDCWD, lockPath, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW,
		func(info fs.FileInfo) error { return judgeOwner(lockPath, info, own) })
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
	old, _, err := readRegular(unix.AT_FDCWD, path, unix.O_NOFOLLOW, maxBytes,
		func(info fs.FileInfo) error { return judgeOwner(path, info, own) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return ReplaceFile(path, edit(old), mode)
}
