package simulate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Room is the directory that simulations create in one of the user's directories, and remove.
type Room struct {
	path string
	host string
	runs int // number of runs in it so far
}

// roomTimeout limits the calls into the shared file system before anything runs there.
const roomTimeout = 30 * time.Second

// errRoom is the cause of contexts whose time in this package is over.
var errRoom = errors.New("the time for it is over")

// OpenRoom creates a directory with a unique name in dir, an absolute path. It returns a
// *signal.DirError or a *signal.StallError if dir cannot be used, and an error that wraps ErrNoDir
// if dir is no directory.
func OpenRoom(ctx context.Context, dir, host string) (*Room, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, roomTimeout, errRoom)
	defer cancel()
	path, err := answered(ctx, "make a directory in", dir, func() (string, error) {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return "", noDir(dir, err)
		}
		path, err := os.MkdirTemp(dir, "bringupd-simulate-")
		if err != nil {
			return "", &signal.DirError{
				Path: dir, Host: host, Problem: fmt.Sprintf("cannot make a directory in it: %v", bare(err)),
				Remedy: "give a --dir that you can write to",
			}
		}
		return path, nil
	})
	if err != nil {
		return nil, err
	}
	return &Room{path: path, host: host}, nil
}

// ErrNoDir reports that --dir is not a directory.
var ErrNoDir = errors.New("give a directory that is there, on the share that is meant")

// noDir returns an error that wraps ErrNoDir. err is nil if dir exists, but is no directory.
func noDir(dir string, err error) error {
	if err == nil {
		return fmt.Errorf("cannot use --dir=%s: it is not a directory: %w", dir, ErrNoDir)
	}
	return fmt.Errorf("cannot use --dir=%s: %v: %w", dir, bare(err), ErrNoDir)
}

// bare removes the path from an error whose message will be part of a sentence with that path.
func bare(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err
	}
	return err
}

// Path returns the path of the room.
func (r *Room) Path() string { return r.path }

// removers is the number of names that are removed concurrently. On a distant shared file system,
// removing the files of thousands of nodes would take minutes otherwise.
const removers = 32

// Remove removes the room and its content. It returns when both are gone, or with an error that
// names the rest when ctx ends.
func (r *Room) Remove(ctx context.Context) error {
	for {
		_, err := answered(ctx, "remove", r.path, func() (struct{}, error) { return struct{}{}, removeAll(ctx, r.path) })
		if err == nil {
			return nil
		}
		if !errors.Is(err, errLate) || !ctxutil.SleepContext(ctx, latePause) {
			return fmt.Errorf("cannot remove %s: %w; it is left to you", r.path, err)
		}
	}
}

// errLate reports that a name appeared while all were removed, due to a daemon's call that was
// still in progress when the daemon ended.
var errLate = errors.New("there are still names that appear in it")

// latePause is the time for such late calls to complete.
const latePause = 100 * time.Millisecond

// removeAll removes a directory. It removes files concurrently.
func removeAll(ctx context.Context, path string) error {
	var files errgroup.Group
	files.SetLimit(removers)
	err := filepath.WalkDir(path, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files.Go(func() error {
			if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return nil
		})
		return context.Cause(ctx)
	})
	if err := errors.Join(err, files.Wait()); err != nil {
		return err
	}
	err = os.RemoveAll(path) // the directories, which are empty by now
	if errors.Is(err, unix.ENOTEMPTY) {
		return errLate
	}
	return err
}

// answered runs a call into the shared file system and gives up when ctx ends, because the call may
// hang as long as the file system does.
func answered[T any](ctx context.Context, op, path string, ask func() (T, error)) (T, error) {
	began := time.Now()
	value, err := ctxutil.CallBounded(ctx, 0, ask)
	if errors.Is(err, ctxutil.ErrAbandoned) {
		err = &signal.StallError{Op: op, Path: path, Elapsed: time.Since(began), Cause: context.Cause(ctx)}
	}
	return value, err
}
