package signal

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxRecord bounds a record's size in bytes before it is read, so that a
// damaged or foreign file can't fill the memory. The largest of ours hold the
// host names of all nodes, or a cause with its last lines: 20 of 1 KiB, of
// which JSON makes six times as much where they are not text.
const maxRecord = 1 << 20

const (
	dirMode  = 0o700
	fileMode = 0o600
)

// share is every call that goes into the share: the seam at which they can be
// counted, and made to fail. Only the hints of a local file system bypass it.
type share interface {
	lookup
	mutation
}

// lookup is what leaves the share as it is.
type lookup interface {
	// list opens a directory anew, has check look at it if there is one, and
	// returns its names, without the dot-names, which are temporaries. A
	// handle kept open may show the past.
	list(path string, check func(*os.File) error) ([]string, error)
	// look returns what a name is that a listing has shown. It follows no link.
	look(path string) (os.FileInfo, error)
	// read returns a file's content, which must not be larger than maxRecord.
	read(path string) ([]byte, error)
	// target returns where a symbolic link points.
	target(path string) (string, error)
}

// mutation is what changes the share.
type mutation interface {
	// write makes a file of data. A durable one survives a crash of the
	// server that follows the return.
	write(path string, data []byte, durable bool) error
	// extend opens a file to append to it, and makes it where it is missing.
	extend(path string) (io.WriteCloser, error)
	// change changes names; from is only meant where two take part.
	change(how change, from, to string) error
}

// change is what may be done to names.
type change string

const (
	makeDir  change = "make"    // the directory to
	rename   change = "rename"  // from becomes to
	link     change = "link"    // to becomes another name of from; ErrExist where it is there
	symlink  change = "symlink" // to points at from
	remove   change = "remove"  // to and all in it; no error where it is not there
	settleIn change = "settle"  // the names in the directory to survive a crash of the server
)

// disk is the share itself.
type disk struct{}

var _ share = disk{}

func (disk) list(path string, check func(*os.File) error) (names []string, err error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if check != nil {
		if err := check(dir); err != nil {
			return nil, err
		}
	}
	all, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names = all[:0]
	for _, name := range all {
		if name[0] != '.' {
			names = append(names, name)
		}
	}
	return names, nil
}

func (disk) look(path string) (os.FileInfo, error) { return os.Lstat(path) }

func (disk) read(path string) (data []byte, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data, err = io.ReadAll(io.LimitReader(file, maxRecord+1))
	if err == nil && len(data) > maxRecord {
		err = errors.New("it is larger than any record")
	}
	return data, err
}

func (disk) target(path string) (string, error) { return os.Readlink(path) }

func (disk) write(path string, data []byte, durable bool) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, fileMode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil && durable {
		err = file.Sync()
	}
	// The error of close counts: a network file system may say only there
	// that the data did not fit.
	return errors.Join(err, file.Close())
}

func (disk) extend(path string) (io.WriteCloser, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, fileMode)
}

func (disk) change(how change, from, to string) error {
	switch how {
	case makeDir:
		return os.Mkdir(to, dirMode)
	case rename:
		// Not os.Rename: it looks at the new name first, which teaches a
		// client of the share that it is missing.
		return unix.Rename(from, to)
	case link:
		return linkSeen(from, to)
	case symlink:
		return os.Symlink(from, to)
	case remove:
		return os.RemoveAll(to)
	case settleIn:
		return syncDir(to)
	default:
		return errors.New("internal error: no such change: " + string(how))
	}
}

// linkSeen links, and asks whether a name that is there is the one it made: a
// request that was repeated after a lost reply answers "file exists".
func linkSeen(from, to string) error {
	err := os.Link(from, to)
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	ours, oursErr := os.Lstat(from)
	there, thereErr := os.Lstat(to)
	if oursErr == nil && thereErr == nil && os.SameFile(ours, there) {
		return nil
	}
	return err
}

// syncDir asks the server to keep the names. File systems that can't sync a
// directory (some FUSE ones) say so with EINVAL or ENOTSUP: there is no more
// that we could do then.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	err = dir.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) {
		err = nil
	}
	return errors.Join(err, dir.Close())
}

// passing tells an error of a shared file system that goes away by itself:
// the name was shown by a listing, yet this client doesn't know it (yet, or
// any more).
func passing(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.EIO)
}

// classify tells the errors of a list apart that call for an answer of their own.
func classify(err error) error {
	switch {
	case passing(err):
		return errAbsent
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		return errNotDir
	default:
		return err
	}
}
