package signal

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// guardedCall makes a call to the shared file system in a goroutine of its own, and abandons it
// when ctx ends. The goroutine of a call that never returns is the only one that no code waits for,
// because the kernel does not release it. The meter records the call as pending under the names op
// and path, which the error also mentions.
func guardedCall[T any](
	ctx context.Context, a Access, op, path string, call func(path string) (T, error),
) (value T, err error) {
	if ctx.Err() != nil {
		return value, &StallError{Op: op, Path: path, Cause: context.Cause(ctx)}
	}
	return unconditionalCall(ctx, a, op, path, call)
}

// unconditionalCall is like [guardedCall], but always makes the call, even if ctx has ended.
func unconditionalCall[T any](
	ctx context.Context, a Access, op, path string, call func(path string) (T, error),
) (T, error) {
	begin := time.Now()
	asked := a.Meter.beginRequest(op, path)
	value, err := ctxutil.CallBounded(ctx, 0, func() (T, error) {
		defer a.Meter.endRequest(asked)
		return call(path)
	})
	if err == ctxutil.ErrAbandoned {
		err = &StallError{Op: op, Path: path, Elapsed: time.Since(begin), Cause: context.Cause(ctx)}
	}
	return value, err
}

// guardedDo is like [guardedCall], for calls that return nothing.
func (a Access) guardedDo(ctx context.Context, op, path string, call func() error) error {
	_, err := guardedCall(ctx, a, op, path, func(string) (struct{}, error) { return struct{}{}, call() })
	return err
}

const (
	// maxTries is the maximum number of tries after errors that may be temporary. minRetryPause is the
	// first pause, which doubles up to maxRetryPause. All pauses together take a third of a second. If
	// a file system fails one call in twenty, less than one record in a hundred thousand is lost.
	maxTries      = 9
	minRetryPause = 10 * time.Millisecond
	maxRetryPause = 50 * time.Millisecond
)

// retryTransient makes a call, and repeats it while its error is temporary. The call must be
// idempotent.
func (a Access) retryTransient(do func() error) error {
	wait := minRetryPause
	for try := 1; ; try++ {
		err := do()
		if err == nil || !isTransient(err) || try == maxTries {
			return err
		}
		a.Meter.countRetry()
		time.Sleep(wait)
		wait = min(2*wait, maxRetryPause)
	}
}

// guardedQuery is like [guardedCall], for a query. It is repeated while its error is temporary.
func guardedQuery[T any](
	ctx context.Context, a Access, op, path string, query func(path string) (T, error),
) (T, error) {
	return guardedCall(ctx, a, op, path, func(path string) (value T, err error) {
		err = a.retryTransient(func() error {
			value, err = query(path)
			return err
		})
		return value, err
	})
}

// removeGuarded removes a tree, unless ctx ends before.
func (a Access) removeGuarded(ctx context.Context, path string) error {
	return a.guardedDo(ctx, "remove", path, func() error { return a.changeName(OpRemove, "", path) })
}

func (a Access) listNames(ctx context.Context, path string, vet func(FileAttributes) error) ([]string, error) {
	list := func(path string) ([]string, error) { return a.FS.ListDir(path, vet) }
	names, err := guardedQuery(ctx, a, "list", path, list)
	slices.Sort(names)
	return names, err
}

// changeName calls ChangeName of [SharedFS] for an idempotent change, and repeats it while its error is
// temporary.
func (a Access) changeName(how Op, from, to string) error {
	return a.retryTransient(func() error { return a.FS.ChangeName(how, from, to) })
}

// writeNew calls WriteFile of [SharedFS] for a name that no other process creates. While the error is
// temporary, it removes what the failed call has left and tries again.
func (a Access) writeNew(path string, data []byte, durable bool) error {
	tried := false
	return a.retryTransient(func() error {
		if tried && len(data) > 0 {
			_ = a.FS.ChangeName(OpRemove, "", path)
		}
		err := a.FS.WriteFile(path, data, durable)
		if tried && errors.Is(err, os.ErrExist) {
			return errAbsent // the remove has failed temporarily
		}
		tried = true
		return err
	})
}

// removeQuietly removes a name that is not needed any more, if possible.
func (a Access) removeQuietly(path string) { _ = a.changeName(OpRemove, "", path) }

// removeLater is like [Access.removeQuietly], but does not wait for it. [CallMeter.AwaitIdle] does.
func (a Access) removeLater(path string) {
	asked := a.Meter.beginRequest("remove", path)
	go func() {
		defer a.Meter.endRequest(asked)
		a.removeQuietly(path)
	}()
}

// ensureDir makes a directory. An existing directory is no error.
func (a Access) ensureDir(path string) error {
	if err := a.changeName(OpMkdir, "", path); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// draftName returns an unpredictable, unique name for a temporary file in dir.
func draftName(dir, name string) string { return dir + "/." + name + "." + randomTag() }

// syncNames makes the names in dir durable if durable is set: they survive a crash of the server.
func (a Access) syncNames(dir string, durable bool) error {
	if !durable {
		return nil
	}
	return a.changeName(OpSync, "", dir)
}

// publishFile makes name appear in dir with data in it, or not at all.
func (a Access) publishFile(dir, name string, data []byte, durable bool) error {
	temporary, began := draftName(dir, name), time.Now()
	err := a.writeNew(temporary, data, durable)
	if err == nil {
		a.serverClock.learnOffset(a.FS, temporary, began, time.Now())
		err = a.renamePrivate(temporary, dir+"/"+name)
	}
	if err != nil {
		a.removeQuietly(temporary)
		return err
	}
	return a.syncNames(dir, durable)
}

// renamePrivate renames a file that only this daemon knows. If the kernel repeats a request because
// its reply was lost, the answer is "no such file" although the first request has succeeded. In
// this case the old name is missing and the new name exists, and renamePrivate returns nil.
//
// One query is not enough: a file system that temporarily answers "no such file" may do so twice.
// If this client does not see the new name for a while, renamePrivate also returns nil when all
// tries have found that the old name is missing.
func (a Access) renamePrivate(from, to string) error {
	gone := 0
	err := a.retryTransient(func() error {
		err := a.FS.ChangeName(OpRename, from, to)
		if !errors.Is(err, os.ErrNotExist) || !a.isMissing(from) {
			return err
		}
		if gone++; gone > 1 && !a.isMissing(to) {
			a.Meter.countRetry()
			return nil
		}
		return err
	})
	if gone > 1 && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// isMissing reports whether the file system answers that there is no such file.
func (a Access) isMissing(path string) bool {
	_, err := a.FS.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// publishFirst makes name appear in dir with data in it, or returns ErrAlreadyPublished if it
// exists.
//
// It uses a hard link, which fails if the name exists, whereas a rename would replace the first
// file. On a file system without links, it lists the directory before it renames a durable record,
// which leaves a short window for two writers. For other records the last writer wins, because
// their directory is too large to be listed by all nodes. Such a record also determines the offset
// of the server's clock, and its temporary file is removed later.
func (a Access) publishFirst(dir, name string, data []byte, durable bool) error {
	temporary, began := draftName(dir, name), time.Now()
	remove := a.removeLater
	if durable {
		remove = a.removeQuietly
	}
	defer remove(temporary)
	if err := a.writeNew(temporary, data, durable); err != nil {
		return err
	}
	var parts sync.WaitGroup
	if written := time.Now(); !durable {
		parts.Go(func() { a.serverClock.learnOffset(a.FS, temporary, began, written) })
	}
	err := a.changeName(OpLink, temporary, dir+"/"+name)
	parts.Wait()
	switch {
	case !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOTSUP) &&
		!errors.Is(err, syscall.ENOSYS):
	case durable:
		err = a.renameIfAbsent(dir, temporary, name)
	default:
		err = a.renamePrivate(temporary, dir+"/"+name)
	}
	if errors.Is(err, os.ErrExist) {
		return ErrAlreadyPublished
	}
	if err != nil {
		return err
	}
	return a.syncNames(dir, durable)
}

// renameIfAbsent is like renamePrivate, but returns os.ErrExist if a listing shows name.
func (a Access) renameIfAbsent(dir, temporary, name string) error {
	var names []string
	err := a.retryTransient(func() (err error) {
		names, err = a.FS.ListDir(dir, nil)
		return err
	})
	if err != nil {
		return err
	}
	if slices.Contains(names, name) {
		return os.ErrExist
	}
	return a.renamePrivate(temporary, dir+"/"+name)
}
