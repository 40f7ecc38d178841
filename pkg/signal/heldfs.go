package signal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// heldDirs are directories that stay open after they have been verified. Paths below them are
// resolved from their descriptors: another user who can rename such a directory, or one above it,
// cannot replace our files.
//
// A file system that works with paths, such as sshfs, is not protected by this: see Exposure.
type heldDirs struct {
	mu   sync.Mutex
	dirs []*heldDir // guarded by mu; never removed
}

// heldDir is a directory that stays open. Its file is closed when the garbage collector finds that
// it is not referenced any more.
type heldDir struct {
	path   string
	file   *os.File
	verify func(FileAttributes) error
}

// findAbove returns the held directory that contains path or is path. It returns nil if there is
// none.
func (h *heldDirs) findAbove(path string) *heldDir {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, dir := range h.dirs {
		if path == dir.path || strings.HasPrefix(path, strings.TrimSuffix(dir.path, "/")+"/") {
			return dir
		}
	}
	return nil
}

// relativePath is a path for system calls such as openat.
type relativePath struct {
	fd   int    // a directory, or unix.AT_FDCWD
	name string // the path from there
}

// relativePath returns a path relative to the held directory above it, if there is one.
func (h *heldDirs) relativePath(path string) relativePath {
	dir := h.findAbove(path)
	if dir == nil {
		return relativePath{unix.AT_FDCWD, path}
	}
	name := strings.TrimPrefix(strings.TrimPrefix(path, dir.path), "/")
	if name == "" {
		name = "."
	}
	return relativePath{int(dir.file.Fd()), name}
}

// procPath returns a path for a call that accepts no descriptor. It needs /proc.
func (r relativePath) procPath() string {
	if r.fd == unix.AT_FDCWD {
		return r.name
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", r.fd, r.name)
}

// lstatPath returns the attributes of the path. It follows no link.
func (r relativePath) lstatPath() (os.FileInfo, error) {
	fd, err := unix.Openat(r.fd, r.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), r.name)
	defer func() { _ = file.Close() }()
	return file.Stat()
}

// removeTree removes the path and, if it is a directory, everything in it. A missing path is no
// error.
func (r relativePath) removeTree() error {
	err := unix.Unlinkat(r.fd, r.name, 0)
	switch err {
	case unix.ENOENT:
		return nil
	case unix.EISDIR, unix.EPERM, unix.EINVAL:
		return os.RemoveAll(r.procPath())
	default:
		return err
	}
}

// callRelative makes a call whose paths are relative to the held directories. If the descriptor of
// the one above path has become invalid (because the server or the mount was restarted), the
// directory is opened by its path and verified again, and the call is repeated once.
func (d diskFS) callRelative(op Op, path string, call func() error) error {
	defer runtime.KeepAlive(d.held)
	uninterrupted := func() error {
		for {
			if err := call(); err != unix.EINTR { // FUSE returns it if a signal arrives meanwhile
				return err
			}
		}
	}
	err := d.meteredDo(op, path, uninterrupted)
	if dir := d.held.findAbove(path); dir != nil && (errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOTCONN)) {
		switch reopened := d.reopenDir(dir); {
		case reopened == nil:
			err = d.meteredDo(op, path, uninterrupted)
		case !isTransient(reopened):
			err = reopened
		}
	}
	if number, ok := err.(syscall.Errno); ok {
		err = &fs.PathError{Op: string(op), Path: path, Err: number}
	}
	return err
}

// reopenDir opens a held directory by its path, verifies it, and replaces its descriptor.
func (d diskFS) reopenDir(dir *heldDir) error {
	file, err := MeteredCall(d.interceptor, OpOpen, dir.path, func() (*os.File, error) {
		return os.OpenFile(dir.path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	})
	if err != nil {
		return err
	}
	facts, err := d.statOpenFile(dir.path, file.Stat)
	if err == nil {
		err = dir.verify(facts)
	}
	if err == nil {
		err = unix.Dup3(int(file.Fd()), int(dir.file.Fd()), unix.O_CLOEXEC)
	}
	return errors.Join(err, d.closeFile(file, dir.path))
}
