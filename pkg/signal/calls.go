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

// guarded makes calls into the share from a goroutine of their own and gives
// them up when ctx ends: the goroutine of a call that never returns is the one
// thing here that nobody waits for, because the kernel won't let go of it.
func guarded[T any](ctx context.Context, m *Meter, op, path string, call func() (T, error)) (T, error) {
	if ctx.Err() != nil {
		var none T
		return none, &StallError{Op: op, Path: path, Cause: context.Cause(ctx)}
	}
	return begun(ctx, m, op, path, call)
}

// begun is guarded for calls that are made in any case, also where ctx ends
// first.
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

// do is guarded for calls that return nothing.
func do(ctx context.Context, m *Meter, op, path string, call func() error) error {
	_, err := guarded(ctx, m, op, path, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

const (
	// againTries is how often something is asked for whose answer says nothing
	// for good, and againPause the pause before the second time, which doubles up
	// to longestAgain: a third of a second in all. A share that fails one call in
	// twenty so refuses a record less than once in a hundred thousand.
	againTries   = 9
	againPause   = 10 * time.Millisecond
	longestAgain = 50 * time.Millisecond
)

// again repeats what may be done twice while the share's answer is one that
// goes away by itself.
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

// asked is guarded for a question, which is repeated while again repeats it.
func asked[T any](ctx context.Context, a Access, op, path string, call func() (T, error)) (T, error) {
	return guarded(ctx, a.Meter, op, path, func() (value T, err error) {
		err = a.again(func() error {
			value, err = call()
			return err
		})
		return value, err
	})
}

// names returns, in order, the names that one look at a directory shows.
func (a Access) names(ctx context.Context, path string, vet func(Facts) error) ([]string, error) {
	names, err := asked(ctx, a, "list", path, func() ([]string, error) { return a.Share.List(path, vet) })
	slices.Sort(names)
	return names, err
}

// change is Share.Change of what may be changed twice. It repeats the call as again does.
func (a Access) change(how Change, from, to string) error {
	return a.again(func() error { return a.Share.Change(how, from, to) })
}

// write is Share.Write of a name that nobody else makes. It repeats the call as again does, without
// what a try before has left.
func (a Access) write(path string, data []byte, durable bool) error {
	tried := false
	return a.again(func() error {
		if tried && len(data) > 0 {
			_ = a.Share.Change(Remove, "", path)
		}
		err := a.Share.Write(path, data, durable)
		if tried && errors.Is(err, os.ErrExist) {
			return errAbsent // the remove has failed in passing
		}
		tried = true
		return err
	})
}

// tidy removes what nobody will look at, if it can.
func (a Access) tidy(path string) { _ = a.change(Remove, "", path) }

// makeOwn makes a directory that nobody else makes, or that anybody may make:
// where it is there, it is good.
func (a Access) makeOwn(path string) error {
	if err := a.change(MakeDir, "", path); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// draft writes a temporary. The first one of this node tells the time of the share
// where it is stamped.
func (a Access) draft(path string, data []byte, durable, stamped bool) error {
	began := time.Now()
	err := a.write(path, data, durable)
	if err == nil && stamped {
		a.clock.learn(a.Share, path, began)
	}
	return err
}

// draftName returns a name for a temporary in dir that nobody can guess and no other writer uses.
func draftName(dir, name string) string { return dir + "/." + name + "." + newTag() }

// settle has the names in dir survive a crash of the server, where that is wanted.
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

// renameOwn renames what this daemon alone has made and knows the name of. A
// request that was repeated after a lost reply answers "no such file" though
// the first one worked: that from is gone says so, and that to is there.
//
// Once is not enough: a share that says "no such file" in passing may say so
// of from twice. A client that does not know of to for a while is believed when
// all tries have come to the same.
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

// lacks tells whether the share says that there is no such file.
func (a Access) lacks(path string) bool {
	_, err := a.Share.Look(path)
	return errors.Is(err, os.ErrNotExist)
}

// writeFirst makes name appear in dir with data in it, or returns ErrTaken where
// it is there.
//
// A link is exclusive where a rename is not: it would hide the first. A share
// without links is asked for a listing before a durable record, which leaves a
// moment for two; the others are in a directory that is too large to be listed by
// all, and of these the last one wins.
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

// renameFirst is renameOwn, but where a listing shows name: then it returns
// os.ErrExist.
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
