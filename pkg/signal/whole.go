package signal

import (
	"errors"
	"os"
	"slices"
	"syscall"
)

// writeWhole makes name appear in dir with data in it, or not at all.
func writeWhole(fs share, dir, name string, data []byte, durable bool) error {
	temporary := dir + "/." + name + ".tmp"
	err := fs.write(temporary, data, durable)
	if err == nil {
		err = renameSeen(fs, dir, temporary, name)
	}
	if err != nil {
		_ = fs.change(remove, "", temporary)
		return err
	}
	if durable {
		return fs.change(settleIn, "", dir)
	}
	return nil
}

// renameSeen renames, and believes a listing more than the answer: a request
// that was repeated after a lost reply answers "no such file" though the first
// one worked.
func renameSeen(fs share, dir, from, name string) error {
	err := fs.change(rename, from, dir+"/"+name)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if names, listErr := fs.list(dir, nil); listErr == nil && slices.Contains(names, name) {
		return nil
	}
	return err
}

// writeFirst makes name appear in dir with data in it, or returns ErrTaken
// where it is there. temporary is a name of the caller's alone.
//
// A link is exclusive where a rename is not: it would hide the first. A share
// without links is asked for a listing, which leaves a moment for two.
func writeFirst(fs share, dir, temporary, name string, data []byte) error {
	temporary = dir + "/" + temporary
	defer func() { _ = fs.change(remove, "", temporary) }()
	if err := fs.write(temporary, data, true); err != nil {
		return err
	}
	err := fs.change(link, temporary, dir+"/"+name)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) {
		err = renameFirst(fs, dir, temporary, name)
	}
	if errors.Is(err, os.ErrExist) {
		return ErrTaken
	}
	if err != nil {
		return err
	}
	return fs.change(settleIn, "", dir)
}

func renameFirst(fs share, dir, temporary, name string) error {
	names, err := fs.list(dir, nil)
	if err != nil {
		return err
	}
	if slices.Contains(names, name) {
		return os.ErrExist
	}
	return renameSeen(fs, dir, temporary, name)
}
