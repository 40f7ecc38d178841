package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OwnedPath is a file or directory that a process has made, as another process must know it to
// remove it.
type OwnedPath struct {
	Path string
	// Device and Inode identify a directory. They are 0 for a file, which has another inode each time
	// that it is replaced.
	Device, Inode uint64
}

// Remove removes the file, or the directory with its content if it still is the one that was made.
// A missing path is no error.
func (p OwnedPath) Remove() error {
	if p.Inode == 0 { // unlike os.Remove, this removes no directory
		if err := syscall.Unlink(p.Path); err != syscall.ENOENT {
			return pathError("unlink", p.Path, err)
		}
		return nil
	}
	dir, err := openOwned(p.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case dir.owned != p:
		return errors.Join(errReplaced(p.Path), dir.close())
	}
	return dir.Remove()
}

// errReplaced reports that a directory which was made is not found at its path any more.
func errReplaced(path string) error {
	return fmt.Errorf("cannot remove %s: another file or directory has this name now", path)
}

func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// OwnedDir is a directory that this process has made. It stays open: another user who can rename
// entries of a directory above it may put another directory in its place, but its content is
// reached, and it is removed, regardless of its path.
type OwnedDir struct {
	owned        OwnedPath
	parent, root *os.Root
}

// MakeOwnedDir makes a directory that only this user can access.
func MakeOwnedDir(path string) (*OwnedDir, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, err
	}
	return openNew(path)
}

// MakeOwnedTemp does the same in a parent directory with an unused name that begins with prefix.
func MakeOwnedTemp(parent, prefix string) (*OwnedDir, error) {
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	return openNew(path)
}

// openNew opens a directory that was just made.
func openNew(path string) (*OwnedDir, error) {
	d, err := openOwned(path)
	if err != nil {
		_ = os.Remove(path) // it is empty
		return nil, err
	}
	names, err := d.names()
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("cannot use the new directory %s: another one has replaced it", path)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// openOwned opens the directory at path, whichever it is.
func openOwned(path string) (*OwnedDir, error) {
	parent, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	root, err := parent.OpenRoot(filepath.Base(path))
	if err != nil {
		return nil, errors.Join(err, parent.Close())
	}
	d := &OwnedDir{owned: OwnedPath{Path: path}, parent: parent, root: root}
	info, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.owned.Device, d.owned.Inode = identity(info)
	return d, nil
}

// identity returns the numbers that identify a file on this machine.
func identity(info fs.FileInfo) (device, inode uint64) {
	stat := info.Sys().(*syscall.Stat_t)
	return stat.Dev, stat.Ino
}

func (d *OwnedDir) close() error { return errors.Join(d.root.Close(), d.parent.Close()) }

// Path returns the path at which the directory was made.
func (d *OwnedDir) Path() string { return d.owned.Path }

// Owned describes the directory for another process.
func (d *OwnedDir) Owned() OwnedPath { return d.owned }

// Root reaches the content of the directory. It must not be closed.
func (d *OwnedDir) Root() *os.Root { return d.root }

func (d *OwnedDir) names() ([]string, error) {
	dir, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // it was only read
	return dir.Readdirnames(-1)
}

// Remove removes the content of the directory, and the directory unless another one has its name.
// It can be called again after an error.
func (d *OwnedDir) Remove() error {
	names, err := d.names()
	for _, name := range names {
		err = errors.Join(err, d.root.RemoveAll(name))
	}
	if err != nil {
		return err
	}
	name := filepath.Base(d.owned.Path)
	info, err := d.parent.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist): // it was moved, and is empty
		return d.close()
	case err != nil:
		return err
	}
	if device, inode := identity(info); device != d.owned.Device || inode != d.owned.Inode {
		return errReplaced(d.owned.Path)
	}
	// Whoever can put another directory in its place now can also remove that one while it is empty.
	if err := d.parent.Remove(name); err != nil {
		return err
	}
	return d.close()
}
