package simulate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/signal"
)

// ScratchDir is the directory that simulations create in one of the user's directories, and remove.
type ScratchDir struct {
	dir      *files.OwnedDir
	host     string
	runCount int // number of runs in it so far
}

// scratchDirTimeout limits the calls into the shared file system before anything runs there.
const scratchDirTimeout = 30 * time.Second

// errTimeOver is the cause of contexts whose time in this package is over.
var errTimeOver = errors.New("the timeout expired")

// MakeScratchDir creates a directory with a unique name in dir, an absolute path. It returns a
// *signal.DirError or a *signal.StallError if dir cannot be used, and an error that wraps
// ErrNotDirectory if dir is no directory.
func MakeScratchDir(ctx context.Context, dir, host string) (*ScratchDir, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scratchDirTimeout, errTimeOver)
	defer cancel()
	made, err := callWithDeadline(ctx, "create a directory in", dir, func() (*files.OwnedDir, error) {
		switch info, err := os.Stat(dir); {
		case err != nil:
			return nil, fmt.Errorf("cannot use --dir=%s: %v: %w", dir, stripPath(err), ErrNotDirectory)
		case !info.IsDir():
			return nil, fmt.Errorf("cannot use --dir=%s: it is not a directory: %w", dir, ErrNotDirectory)
		}
		made, err := files.MakeOwnedTemp(dir, "bringupd-simulate-")
		if err != nil {
			return nil, &signal.DirError{
				Path: dir, Host: host, Problem: fmt.Sprintf("cannot create a directory in it: %v", stripPath(err)),
				Remedy: "give a --dir that you can write to",
			}
		}
		return made, nil
	})
	if err != nil {
		return nil, err
	}
	return &ScratchDir{dir: made, host: host}, nil
}

// ErrNotDirectory reports that --dir is not a directory.
var ErrNotDirectory = errors.New("give an existing directory on the shared file system that you want to measure")

// stripPath removes the path from an error whose message will be part of a sentence with that path.
func stripPath(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err
	}
	return err
}

// Path returns the path of the room.
func (r *ScratchDir) Path() string { return r.dir.Path() }

// maxConcurrentRemovals is the number of names that are removed concurrently. On a distant shared
// file system, removing the files of thousands of nodes would take minutes otherwise.
const maxConcurrentRemovals = 32

// Remove removes the room and its content. It returns when both are gone, or with an error that
// names the rest when ctx ends.
func (r *ScratchDir) Remove(ctx context.Context) error {
	for {
		_, err := callWithDeadline(ctx, "remove", r.Path(), func() (struct{}, error) { return struct{}{}, removeTree(ctx, r.dir) })
		if err == nil {
			return nil
		}
		if !errors.Is(err, errLateNames) || !ctxutil.SleepContext(ctx, lateCallPause) {
			return fmt.Errorf("cannot remove %s: %w; remove it yourself", r.Path(), err)
		}
	}
}

// errLateNames reports that a name appeared while all were removed, due to a daemon's call that was
// still in progress when the daemon ended.
var errLateNames = errors.New("files are still being created in it")

// lateCallPause is the time for such late calls to complete.
const lateCallPause = 100 * time.Millisecond

// removeTree removes a directory. It removes files concurrently.
func removeTree(ctx context.Context, dir *files.OwnedDir) error {
	var removals errgroup.Group
	removals.SetLimit(maxConcurrentRemovals)
	err := fs.WalkDir(dir.Root().FS(), ".", func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		removals.Go(func() error {
			if err := dir.Root().Remove(name); !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return nil
		})
		return context.Cause(ctx)
	})
	if err := errors.Join(err, removals.Wait()); err != nil {
		return err
	}
	err = dir.Remove() // the directories, which are empty by now
	if errors.Is(err, unix.ENOTEMPTY) {
		return errLateNames
	}
	return err
}

// callWithDeadline runs a call into the shared file system and gives up when ctx ends, because the
// call may hang as long as the file system does.
func callWithDeadline[T any](ctx context.Context, op, path string, ask func() (T, error)) (T, error) {
	began := time.Now()
	value, err := ctxutil.CallBounded(ctx, 0, ask)
	if errors.Is(err, ctxutil.ErrAbandoned) {
		err = &signal.StallError{Op: op, Path: path, Elapsed: time.Since(began), Cause: context.Cause(ctx)}
	}
	return value, err
}
