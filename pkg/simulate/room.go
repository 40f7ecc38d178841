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

// Room is the directory that simulations make for themselves in one of the
// user's, and remove.
type Room struct {
	path string
	host string
	runs int // how many there were in it
}

// roomTimeout bounds what is asked of the share before anything runs there.
const roomTimeout = 30 * time.Second

var errRoom = errors.New("the time for it is over")

// OpenRoom makes a directory of an own name in dir, an absolute path. Its error
// is a *signal.DirError or a *signal.StallError where dir can't be used, and
// wraps ErrNoDir where there is none.
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

// ErrNoDir says that --dir is no directory.
var ErrNoDir = errors.New("give a directory that is there, on the share that is meant")

func noDir(dir string, err error) error {
	if err == nil {
		return fmt.Errorf("cannot use --dir=%s: it is not a directory: %w", dir, ErrNoDir)
	}
	return fmt.Errorf("cannot use --dir=%s: %v: %w", dir, bare(err), ErrNoDir)
}

// bare strips an error of the path, which the sentence around it has.
func bare(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err
	}
	return err
}

// Path returns where the room is.
func (r *Room) Path() string { return r.path }

// removers is how many names are removed at the same time: a share that is far
// away takes minutes for a run of thousands of nodes otherwise.
const removers = 32

// Remove removes the room and all in it, and returns only then, or when ctx
// ends: then what is left is told.
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

// errLate says that a name came while all were removed: a daemon's call that was
// under way when it ended.
var errLate = errors.New("there are still names that appear in it")

// latePause is how long calls that are late are given to come to their end.
const latePause = 100 * time.Millisecond

// removeAll removes a directory: the names in each one of it side by side.
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
	err = os.RemoveAll(path) // the directories
	if errors.Is(err, unix.ENOTEMPTY) {
		return errLate
	}
	return err
}

// answered asks something of the share, and gives it up when ctx ends: the call
// may hang for as long as the share does.
func answered[T any](ctx context.Context, op, path string, ask func() (T, error)) (T, error) {
	began := time.Now()
	value, err := ctxutil.CallBounded(ctx, 0, ask)
	if errors.Is(err, ctxutil.ErrAbandoned) {
		err = &signal.StallError{Op: op, Path: path, Elapsed: time.Since(began), Cause: context.Cause(ctx)}
	}
	return value, err
}
