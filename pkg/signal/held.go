package signal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// heldDirs are directories that stay open after they have been verified. A path below one is resolved from its
// descriptor: another user who may rename it, or a directory above it, cannot put other files in place of ours.
//
// A file system that goes by path on its own, as sshfs does, is not protected by this: see Exposure.
type heldDirs struct {
	mu   sync.Mutex
	dirs []*heldDir // guarded by mu; never removed
}

// heldDir is one of them. Its file is closed when nothing refers to it any more.
type heldDir struct {
	path string
	file *os.File
	vet  func(Facts) error
}

func (h *heldDirs) add(path string, file *os.File, vet func(Facts) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dirs = append(h.dirs, &heldDir{path: filepath.Clean(path), file: file, vet: vet})
}

// above returns the held directory that path is or is in. It returns nil if there is none.
func (h *heldDirs) above(path string) *heldDir {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, dir := range h.dirs {
		if path == dir.path || strings.HasPrefix(path, strings.TrimSuffix(dir.path, "/")+"/") {
			return dir
		}
	}
	return nil
}

// relative is a path as the at-calls of the kernel take it.
type relative struct {
	fd   int    // a directory, or unix.AT_FDCWD
	name string // the path from there
}

// relative returns a path as seen from the held directory above it, if there is one.
func (h *heldDirs) relative(path string) relative {
	dir := h.above(path)
	if dir == nil {
		return relative{unix.AT_FDCWD, path}
	}
	name := strings.TrimPrefix(strings.TrimPrefix(path, dir.path), "/")
	if name == "" {
		name = "."
	}
	return relative{int(dir.file.Fd()), name}
}

// path returns the same path for a call that takes no descriptor. It needs /proc.
func (r relative) path() string {
	if r.fd == unix.AT_FDCWD {
		return r.name
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", r.fd, r.name)
}

// stat describes what has the path. It follows no link.
func (r relative) stat() (os.FileInfo, error) {
	fd, err := unix.Openat(r.fd, r.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), r.name)
	defer func() { _ = file.Close() }()
	return file.Stat()
}

// remove removes what has the path and, if it is a directory, all in it. It is no error if there is nothing.
func (r relative) remove() error {
	err := unix.Unlinkat(r.fd, r.name, 0)
	switch err {
	case unix.ENOENT:
		return nil
	case unix.EISDIR, unix.EPERM, unix.EINVAL:
		return os.RemoveAll(r.path())
	default:
		return err
	}
}

// at makes a call into the share whose paths are relative to the held directories. If the descriptor of the one above
// path has become useless (the server or the mount has begun anew), the directory is opened by its path and verified
// again, and the call is repeated once.
func (d disk) at(op Op, path string, call func() error) error {
	defer runtime.KeepAlive(d.held)
	uninterrupted := func() error {
		for {
			if err := call(); err != unix.EINTR { // FUSE returns it if a signal comes meanwhile
				return err
			}
		}
	}
	err := d.call(op, path, uninterrupted)
	if dir := d.held.above(path); dir != nil && (errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOTCONN)) {
		switch reopened := d.reopen(dir); {
		case reopened == nil:
			err = d.call(op, path, uninterrupted)
		case !passing(reopened):
			err = reopened
		}
	}
	if number, ok := err.(syscall.Errno); ok {
		err = &fs.PathError{Op: op.String(), Path: path, Err: number}
	}
	return err
}

// reopen opens a held directory by its path, verifies it, and has its descriptor refer to it from now on.
func (d disk) reopen(dir *heldDir) error {
	file, err := called(d, OpOpen, dir.path, func() (*os.File, error) {
		return os.OpenFile(dir.path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	})
	if err != nil {
		return err
	}
	facts, err := d.stat(dir.path, file.Stat)
	if err == nil {
		err = dir.vet(facts)
	}
	if err == nil {
		err = unix.Dup3(int(file.Fd()), int(dir.file.Fd()), unix.O_CLOEXEC)
	}
	return errors.Join(err, d.close(file, dir.path))
}
