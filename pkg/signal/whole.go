package signal

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"
)

const (
	// againTries is how often something is asked for whose answer says nothing
	// for good, and againPause the pause before the second time, which doubles:
	// a third of a second in all.
	againTries = 6
	againPause = 10 * time.Millisecond
)

// again repeats what may be done twice while the share's answer is one that
// goes away by itself.
func (a Access) again(do func() error) error {
	pause := againPause
	for try := 1; ; try++ {
		err := do()
		if err == nil || !passing(err) || try == againTries {
			return err
		}
		a.Meter.retry()
		time.Sleep(pause)
		pause *= 2
	}
}

// tidy removes what nobody will look at, if it can.
func (a Access) tidy(path string) {
	_ = a.again(func() error { return a.Share.Change(Remove, "", path) })
}

// writeWhole makes name appear in dir with data in it, or not at all. written, if
// there is one, is told of the temporary that has all data, and when its writing
// began.
func writeWhole(a Access, dir, name string, data []byte, durable bool, written func(path string, began time.Time)) error {
	temporary := dir + "/." + name + ".tmp"
	var began time.Time
	err := a.again(func() error {
		began = time.Now()
		return a.Share.Write(temporary, data, durable)
	})
	if err == nil {
		if written != nil {
			written(temporary, began)
		}
		err = renameOwn(a, temporary, dir+"/"+name)
	}
	if err != nil {
		a.tidy(temporary)
		return err
	}
	if durable {
		return a.again(func() error { return a.Share.Change(Settle, "", dir) })
	}
	return nil
}

// renameOwn renames what this daemon alone has made and knows the name of. A
// request that was repeated after a lost reply answers "no such file" though
// the first one worked: that from is gone says so.
//
// Once is not enough: a share that says "no such file" in passing may say so
// twice.
func renameOwn(a Access, from, to string) error {
	gone := 0
	return a.again(func() error {
		err := a.Share.Change(Rename, from, to)
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if _, missing := a.Share.Look(from); errors.Is(missing, os.ErrNotExist) {
			if gone++; gone > 1 {
				a.Meter.retry()
				return nil
			}
		}
		return err
	})
}

// writeFirst makes name appear in dir with data in it, or returns ErrTaken
// where it is there. temporary is a name of the caller's alone.
//
// A link is exclusive where a rename is not: it would hide the first. A share
// without links is asked for a listing, which leaves a moment for two.
func writeFirst(a Access, dir, temporary, name string, data []byte) error {
	temporary = dir + "/" + temporary
	defer a.tidy(temporary)
	if err := a.again(func() error { return a.Share.Write(temporary, data, true) }); err != nil {
		return err
	}
	err := a.again(func() error { return a.Share.Change(Link, temporary, dir+"/"+name) })
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) {
		err = renameFirst(a, dir, temporary, name)
	}
	if errors.Is(err, os.ErrExist) {
		return ErrTaken
	}
	if err != nil {
		return err
	}
	return a.again(func() error { return a.Share.Change(Settle, "", dir) })
}

// claim makes name appear in dir with data in it, or returns ErrTaken where it is
// there. It is writeFirst for what need not outlive the server, in a directory
// that is too large to be listed by all: on a share without links the last one
// wins. written is as for writeWhole.
func claim(a Access, dir, temporary, name string, data []byte, written func(path string, began time.Time)) error {
	temporary = dir + "/" + temporary
	defer a.tidy(temporary)
	var began time.Time
	err := a.again(func() error {
		began = time.Now()
		return a.Share.Write(temporary, data, false)
	})
	if err != nil {
		return err
	}
	if written != nil {
		written(temporary, began)
	}
	err = a.again(func() error { return a.Share.Change(Link, temporary, dir+"/"+name) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrExist):
		return ErrTaken
	default:
		return renameOwn(a, temporary, dir+"/"+name)
	}
}

func renameFirst(a Access, dir, temporary, name string) error {
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
	return renameOwn(a, temporary, dir+"/"+name)
}
