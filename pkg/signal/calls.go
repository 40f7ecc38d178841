package signal

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// guarded makes a call to the shared file system in a goroutine of its own, and abandons it when
// ctx ends. The goroutine of a call that never returns is the only one that no code waits for,
// because the kernel does not release it. The meter records the call as pending under the names op
// and path, which the error also mentions.
func guarded[T any](ctx context.Context, m *Meter, op, path string, call func() (T, error)) (T, error) {
	if ctx.Err() != nil {
		var none T
		return none, &StallError{Op: op, Path: path, Cause: context.Cause(ctx)}
	}
	return begun(ctx, m, op, path, call)
}

// begun is like [guarded], but always makes the call, even if ctx has ended.
func begun[T any](ctx context.Context, m *Meter, op, path string, call func() (T, error)) (T, error) {
	begin := time.Now()
	asked := m.begin(op, path)
	value, err := pause.Bounded(ctx, 0, func() (T, error) {
		defer m.end(asked)
		return call()
	})
	if err == pause.ErrHangs {
		err = &StallError{Op: op, Path: path, After: time.Since(begin), Cause: context.Cause(ctx)}
	}
	return value, err
}

// do is like [guarded], for calls that return nothing.
func do(ctx context.Context, m *Meter, op, path string, call func() error) error {
	_, err := guarded(ctx, m, op, path, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

const (
	// againTries is the maximum number of tries after errors that may be temporary. againPause is the
	// first pause, which doubles up to longestAgain. All pauses together take a third of a second. If
	// a file system fails one call in twenty, less than one record in a hundred thousand is lost.
	againTries   = 9
	againPause   = 10 * time.Millisecond
	longestAgain = 50 * time.Millisecond
)

// again makes a call, and repeats it while its error is temporary. The call must be idempotent.
func (a Access) again(do func() error) error {
	wait := againPause
	for try := 1; ; try++ {
		err := do()
		if err == nil || !passing(err) || try == againTries {
			return err
		}
		a.Meter.retry()
		time.Sleep(wait)
		wait = min(2*wait, longestAgain)
	}
}

// asked is like [guarded], for a query. It is repeated while its error is temporary.
func asked[T any](ctx context.Context, a Access, op, path string, call func() (T, error)) (T, error) {
	return guarded(ctx, a.Meter, op, path, func() (value T, err error) {
		err = a.again(func() error {
			value, err = call()
			return err
		})
		return value, err
	})
}

// names returns the sorted names of one listing of a directory.
func (a Access) names(ctx context.Context, path string, vet func(Facts) error) ([]string, error) {
	names, err := asked(ctx, a, "list", path, func() ([]string, error) { return a.Share.List(path, vet) })
	slices.Sort(names)
	return names, err
}

// change calls Share.Change for an idempotent change, and repeats it while its error is temporary.
func (a Access) change(how Change, from, to string) error {
	return a.again(func() error { return a.Share.Change(how, from, to) })
}

// write calls Share.Write for a name that no other process creates. While the error is temporary,
// it removes what the failed call has left and tries again.
func (a Access) write(path string, data []byte, durable bool) error {
	tried := false
	return a.again(func() error {
		if tried && len(data) > 0 {
			_ = a.Share.Change(Remove, "", path)
		}
		err := a.Share.Write(path, data, durable)
		if tried && errors.Is(err, os.ErrExist) {
			return errAbsent // the remove has failed temporarily
		}
		tried = true
		return err
	})
}

// tidy removes a name that is not needed any more, if possible.
func (a Access) tidy(path string) { _ = a.change(Remove, "", path) }

// makeOwn makes a directory. An existing directory is no error.
func (a Access) makeOwn(path string) error {
	if err := a.change(MakeDir, "", path); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// draft writes a temporary file. If stamped is set, the first such file of this node is used to
// determine the offset of the server's clock.
func (a Access) draft(path string, data []byte, durable, stamped bool) error {
	began := time.Now()
	err := a.write(path, data, durable)
	if err == nil && stamped {
		a.clock.learn(a.Share, path, began)
	}
	return err
}

// draftName returns an unpredictable, unique name for a temporary file in dir.
func draftName(dir, name string) string { return dir + "/." + name + "." + newTag() }

// settle makes the names in dir durable if durable is set: they survive a crash of the server.
func (a Access) settle(dir string, durable bool) error {
	if !durable {
		return nil
	}
	return a.change(Settle, "", dir)
}

// writeWhole makes name appear in dir with data in it, or not at all.
func (a Access) writeWhole(dir, name string, data []byte, durable bool) error {
	temporary := draftName(dir, name)
	err := a.draft(temporary, data, durable, true)
	if err == nil {
		err = a.renameOwn(temporary, dir+"/"+name)
	}
	if err != nil {
		a.tidy(temporary)
		return err
	}
	return a.settle(dir, durable)
}

// renameOwn renames a file that only this daemon knows. If the kernel repeats a request because its
// reply was lost, the answer is "no such file" although the first request has succeeded. In this
// case the old name is missing and the new name exists, and renameOwn returns nil.
//
// One query is not enough: a file system that temporarily answers "no such file" may do so twice.
// If this client does not see the new name for a while, renameOwn also returns nil when all tries
// have found that the old name is missing.
func (a Access) renameOwn(from, to string) error {
	gone := 0
	err := a.again(func() error {
		err := a.Share.Change(Rename, from, to)
		if !errors.Is(err, os.ErrNotExist) || !a.lacks(from) {
			return err
		}
		if gone++; gone > 1 && !a.lacks(to) {
			a.Meter.retry()
			return nil
		}
		return err
	})
	if gone > 1 && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// lacks reports whether the file system answers that there is no such file.
func (a Access) lacks(path string) bool {
	_, err := a.Share.Look(path)
	return errors.Is(err, os.ErrNotExist)
}

// writeFirst makes name appear in dir with data in it, or returns ErrTaken if it exists.
//
// It uses a hard link, which fails if the name exists, whereas a rename would replace the first
// file. On a file system without links, it lists the directory before it renames a durable record,
// which leaves a short window for two writers. For other records the last writer wins, because
// their directory is too large to be listed by all nodes.
func (a Access) writeFirst(dir, name string, data []byte, durable bool) error {
	temporary := draftName(dir, name)
	defer a.tidy(temporary)
	if err := a.draft(temporary, data, durable, !durable); err != nil {
		return err
	}
	err := a.change(Link, temporary, dir+"/"+name)
	switch {
	case err == nil, errors.Is(err, os.ErrExist):
	case !durable:
		err = a.renameOwn(temporary, dir+"/"+name)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOSYS):
		err = a.renameFirst(dir, temporary, name)
	}
	if errors.Is(err, os.ErrExist) {
		return ErrTaken
	}
	if err != nil {
		return err
	}
	return a.settle(dir, durable)
}

// renameFirst is like renameOwn, but returns os.ErrExist if a listing shows name.
func (a Access) renameFirst(dir, temporary, name string) error {
	var names []string
	err := a.again(func() (err error) {
		names, err = a.Share.List(dir, nil)
		return err
	})
	if err != nil {
		return err
	}
	if slices.Contains(names, name) {
		return os.ErrExist
	}
	return a.renameOwn(temporary, dir+"/"+name)
}
