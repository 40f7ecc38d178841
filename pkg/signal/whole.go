package signal

import (
	"errors"
	"os"
	"slices"
	"syscall"
)

// writeWhole makes name appear in dir with data in it, or not at all.
func writeWhole(a Access, dir, name string, data []byte, durable bool) error {
	temporary := dir + "/." + name + ".tmp"
	err := a.Share.Write(temporary, data, durable)
	if err == nil {
		err = renameSeen(a, dir, temporary, name)
	}
	if err != nil {
		_ = a.Share.Change(Remove, "", temporary)
		return err
	}
	if durable {
		return a.Share.Change(Settle, "", dir)
	}
	return nil
}

// renameSeen renames, and believes a listing more than the answer: a request
// that was repeated after a lost reply answers "no such file" though the first
// one worked.
func renameSeen(a Access, dir, from, name string) error {
	err := a.Share.Change(Rename, from, dir+"/"+name)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	a.Meter.retry()
	if names, listErr := a.Share.List(dir, nil); listErr == nil && slices.Contains(names, name) {
		return nil
	}
	return err
}

// writeFirst makes name appear in dir with data in it, or returns ErrTaken
// where it is there. temporary is a name of the caller's alone.
//
// A link is exclusive where a rename is not: it would hide the first. A share
// without links is asked for a listing, which leaves a moment for two.
func writeFirst(a Access, dir, temporary, name string, data []byte) error {
	temporary = dir + "/" + temporary
	defer func() { _ = a.Share.Change(Remove, "", temporary) }()
	if err := a.Share.Write(temporary, data, true); err != nil {
		return err
	}
	err := a.Share.Change(Link, temporary, dir+"/"+name)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) {
		err = renameFirst(a, dir, temporary, name)
	}
	if errors.Is(err, os.ErrExist) {
		return ErrTaken
	}
	if err != nil {
		return err
	}
	return a.Share.Change(Settle, "", dir)
}

func renameFirst(a Access, dir, temporary, name string) error {
	names, err := a.Share.List(dir, nil)
	if err != nil {
		return err
	}
	if slices.Contains(names, name) {
		return os.ErrExist
	}
	return renameSeen(a, dir, temporary, name)
}
