package signal

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/files"
)

// maxRecordSize is the maximum size of a record in bytes. It is checked before reading, so that a
// damaged or foreign file cannot exhaust the memory. The largest records have the host names of all
// nodes, or a cause with its last lines: 20 lines of 1 KiB, which JSON makes six times as long if
// they are not text.
const maxRecordSize = 1 << 20

const (
	dirMode  = 0o700
	fileMode = 0o600
)

// SharedFS is the interface for all calls to the shared file system: its implementations count the
// calls, and tests inject faults. Only the kernel's hints about a local file system bypass it.
type SharedFS interface {
	// ListDir opens a directory again, calls vet for it if it is not nil, and returns its names,
	// without temporaries, which begin with a dot. An open handle could show old names.
	ListDir(path string, vet func(FileAttributes) error) ([]string, error)
	// HoldDir lists a directory that vet accepts and keeps it open: from then on, paths below it are
	// resolved in this directory, even if it is renamed meanwhile.
	HoldDir(path string, vet func(FileAttributes) error) ([]string, error)
	// Stat returns the attributes of a name that a listing has shown. It follows no link.
	Stat(path string) (FileAttributes, error)
	// ReadFile returns a file's content, which must not be larger than 1 MiB.
	ReadFile(path string) ([]byte, error)
	// ReadRange returns the content of a file from offset on, at most limit bytes, and the file's
	// attributes. It returns no data if the file is not a regular one.
	ReadRange(path string, offset, limit int64) ([]byte, FileAttributes, error)
	// ReadLink returns the target of a symbolic link.
	ReadLink(path string) (string, error)
	// FileSystemOf returns the file system of the directory.
	FileSystemOf(path string) (files.FileSystem, error)
	// SpaceOf returns the size and the free space of the directory's file system.
	SpaceOf(path string) (files.Space, error)

	// WriteFile makes a file with data; its name must be new. A durable file survives a crash of the
	// server after the return. Without data, an existing file is not changed.
	WriteFile(path string, data []byte, durable bool) error
	// OpenAppend opens a file for appending, and creates it if it is missing.
	OpenAppend(path string) (io.WriteCloser, error)
	// ChangeName changes names. OpMkdir makes the directory `to`; OpRename gives the file `from` the
	// name `to`; OpLink makes `to` another name of `from`, and fails with ErrExist if `to` exists;
	// OpSymlink makes `to` a symbolic link with the target `from`; OpRemove removes `to` and everything
	// in it, without an error if it is missing; OpSync makes the names in the directory `to` durable.
	ChangeName(how Op, from, to string) error
}

// FileAttributes are the attributes of a name that decide whether it can be trusted, and the
// server's time.
type FileAttributes struct {
	Mode    fs.FileMode
	Owner   int       // user id
	ModTime time.Time // modification time by the server's clock; zero if it is not available
	Size    int64
}

// Access is a daemon's access to the shared file system. Its zero value accesses the file system
// directly, with a meter that is not read.
type Access struct {
	Meter *CallMeter // counts the calls; nil means a new one
	FS    SharedFS   // nil means the file system itself, with calls counted by CallMeter
	// NoHints disables the kernel's hints on a local file system, because a simulated shared file
	// system must not be better than a real one.
	NoHints bool
	// Jitter returns the random variation of pauses, at least 0 and less than 1. Nil means random.
	Jitter      func() float64
	serverClock *clockOffset // the server's, common to all nodes with this access
}

func (a Access) withDefaults() Access {
	a.Meter = cmp.Or(a.Meter, new(CallMeter))
	if a.FS == nil {
		a.FS = NewDiskFS(a.Meter)
	}
	if a.Jitter == nil {
		a.Jitter = rand.Float64
	}
	a.serverClock = cmp.Or(a.serverClock, new(clockOffset))
	return a
}

// Interceptor is called around each file system call: a CallMeter, or the fault injection of a
// simulation or a test.
type Interceptor interface {
	// BeginCall is called before a call, which is not made if it returns an error. It returns the time
	// from which the call's duration is measured.
	BeginCall(op Op, path string) (time.Time, error)
	// EndCall is called after a call.
	EndCall(op Op, path string, entered time.Time)
}

// diskFS is the file system itself.
type diskFS struct {
	interceptor Interceptor
	held        *heldDirs
}

var _ SharedFS = diskFS{}

// NewDiskFS returns the file system, with the interceptor called around each call.
func NewDiskFS(by Interceptor) SharedFS { return diskFS{by, new(heldDirs)} }

// MeteredCall makes a file system call between the two calls of an interceptor, and returns its
// result.
func MeteredCall[T any](by Interceptor, op Op, path string, call func() (T, error)) (value T, err error) {
	entered, err := by.BeginCall(op, path)
	if err != nil {
		return value, err
	}
	defer by.EndCall(op, path, entered)
	return call()
}

func (d diskFS) meteredDo(op Op, path string, call func() error) error {
	_, err := MeteredCall(d.interceptor, op, path, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

func (d diskFS) openRelative(path string, flags int) (file *os.File, err error) {
	err = d.callRelative(OpOpen, path, func() error {
		at := d.held.relativePath(path)
		fd, err := unix.Openat(at.fd, at.name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, fileMode)
		if err == nil {
			file = os.NewFile(uintptr(fd), path)
		}
		return err
	})
	return file, err
}

func (d diskFS) closeFile(file *os.File, path string) error {
	return d.meteredDo(OpClose, path, file.Close)
}

// withOpenFile opens path for one use, and closes it. It waits for the close if the use writes data: a
// network file system may report only there that the data did not fit. Otherwise the close can report
// nothing, and costs another round trip on some file systems.
func (d diskFS) withOpenFile(path string, flags int, writes bool, use func(*os.File) error) error {
	file, err := d.openRelative(path, flags)
	if err != nil {
		return err
	}
	err = use(file)
	if writes {
		return errors.Join(err, d.closeFile(file, path))
	}
	go func() { _ = d.closeFile(file, path) }()
	return err
}

func (d diskFS) ListDir(path string, vet func(FileAttributes) error) (names []string, err error) {
	err = d.withOpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, false, func(dir *os.File) error {
		names, err = d.listOpenDir(dir, path, vet)
		return err
	})
	return names, err
}

// listOpenDir returns the names in an open directory that vet accepts.
func (d diskFS) listOpenDir(dir *os.File, path string, vet func(FileAttributes) error) ([]string, error) {
	var vetting errgroup.Group
	if vet != nil {
		vetting.Go(func() error {
			facts, err := d.statOpenFile(path, dir.Stat)
			if err == nil {
				err = vet(facts)
			}
			return err
		})
	}
	readNames := func() ([]string, error) { return dir.Readdirnames(-1) }
	names, err := MeteredCall(d.interceptor, OpList, path, readNames)
	if err := vetting.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool { return name[0] == '.' }), err
}

func (d diskFS) HoldDir(path string, vet func(FileAttributes) error) ([]string, error) {
	if d.held.findAbove(path) != nil {
		return d.ListDir(path, vet)
	}
	dir, err := d.openRelative(path, os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	names, err := d.listOpenDir(dir, path, vet)
	if err != nil {
		return nil, errors.Join(err, d.closeFile(dir, path))
	}
	d.held.mu.Lock()
	defer d.held.mu.Unlock()
	d.held.dirs = append(d.held.dirs, &heldDir{path: filepath.Clean(path), file: dir, verify: vet})
	return names, nil
}

func (d diskFS) Stat(path string) (facts FileAttributes, err error) {
	err = d.callRelative(OpStat, path, func() error {
		info, err := d.held.relativePath(path).lstatPath()
		if err == nil {
			facts = attributesOf(info)
		}
		return err
	})
	return facts, err
}

func (d diskFS) statOpenFile(path string, ask func() (os.FileInfo, error)) (FileAttributes, error) {
	info, err := MeteredCall(d.interceptor, OpStat, path, ask)
	if err != nil {
		return FileAttributes{}, err
	}
	return attributesOf(info), nil
}

func attributesOf(info os.FileInfo) FileAttributes {
	return FileAttributes{
		Mode: info.Mode(), Owner: files.OwnerOf(info),
		ModTime: info.ModTime(), Size: info.Size(),
	}
}

func (d diskFS) ReadFile(path string) (data []byte, err error) {
	err = d.withOpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, false, func(file *os.File) error {
		data, err = d.readAll(path, io.LimitReader(file, maxRecordSize+1))
		if err == nil && len(data) > maxRecordSize {
			err = errors.New("it is too large for a record")
		}
		return err
	})
	return data, err
}

func (d diskFS) readAll(path string, from io.Reader) ([]byte, error) {
	return MeteredCall(d.interceptor, OpRead, path, func() ([]byte, error) { return io.ReadAll(from) })
}

func (d diskFS) ReadRange(
	path string, offset, limit int64,
) (data []byte, facts FileAttributes, err error) {
	err = d.withOpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, false, func(file *os.File) error {
		facts, err = d.statOpenFile(path, file.Stat)
		if err == nil && facts.Mode.IsRegular() && offset < facts.Size {
			data, err = d.readAll(path, io.NewSectionReader(file, offset, limit))
		}
		return err
	})
	return data, facts, err
}

func (d diskFS) ReadLink(path string) (target string, err error) {
	err = d.callRelative(OpReadlink, path, func() error {
		at := d.held.relativePath(path)
		text := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(at.fd, at.name, text)
		target = string(text[:max(n, 0)])
		return err
	})
	return target, err
}

func (d diskFS) FileSystemOf(path string) (files.FileSystem, error) {
	return statfs(d, path, files.FileSystemOf)
}

func (d diskFS) SpaceOf(path string) (files.Space, error) { return statfs(d, path, files.SpaceOf) }

func statfs[T any](d diskFS, path string, query func(path string) (T, error)) (value T, err error) {
	err = d.callRelative(OpStatfs, path, func() error {
		value, err = query(d.held.relativePath(path).procPath())
		return err
	})
	return value, err
}

func (d diskFS) WriteFile(path string, data []byte, durable bool) error {
	flags := os.O_WRONLY | os.O_CREATE
	if len(data) > 0 {
		flags |= os.O_EXCL // no other user can have created it to read the data
	}
	return d.withOpenFile(path, flags, len(data) > 0 || durable, func(file *os.File) (err error) {
		if len(data) > 0 {
			_, err = appendedFile{d, file, path}.Write(data)
		}
		if err == nil && durable {
			err = d.meteredDo(OpSync, path, file.Sync)
		}
		return err
	})
}

func (d diskFS) OpenAppend(path string) (io.WriteCloser, error) {
	file, err := d.openRelative(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	return appendedFile{d, file, path}, nil
}

type appendedFile struct {
	share diskFS
	file  *os.File
	path  string
}

func (e appendedFile) Write(data []byte) (int, error) {
	write := func() (int, error) { return e.file.Write(data) }
	return MeteredCall(e.share.interceptor, OpWrite, e.path, write)
}

func (e appendedFile) Close() error { return e.share.closeFile(e.file, e.path) }

func (d diskFS) ChangeName(how Op, from, to string) error {
	if how == OpSync {
		return d.syncDir(to)
	}
	err := d.callRelative(how, to, func() error {
		from, target := d.held.relativePath(from), from
		to := d.held.relativePath(to)
		switch how {
		case OpMkdir:
			return unix.Mkdirat(to.fd, to.name, dirMode)
		case OpRename:
			// os.Rename is not used, because it queries the new name first, and the client would cache that
			// it is missing.
			return unix.Renameat(from.fd, from.name, to.fd, to.name)
		case OpLink:
			return unix.Linkat(from.fd, from.name, to.fd, to.name, 0)
		case OpSymlink:
			return unix.Symlinkat(target, to.fd, to.name)
		case OpRemove:
			return to.removeTree()
		default:
			return errors.New("internal error: no such change: " + string(how))
		}
	})
	// A repeated request may report that the link exists although the first one has made it.
	if how == OpLink && errors.Is(err, os.ErrExist) && d.isLinkTo(from, to) {
		return nil
	}
	return err
}

// isLinkTo reports whether `to` is already a link to `from`. If the kernel repeats a request
// because its reply was lost, the answer is "file exists" although the first request has succeeded.
func (d diskFS) isLinkTo(from, to string) (same bool) {
	err := d.callRelative(OpStat, to, func() error {
		source, sourceErr := d.held.relativePath(from).lstatPath()
		link, linkErr := d.held.relativePath(to).lstatPath()
		same = sourceErr == nil && linkErr == nil && os.SameFile(source, link)
		return nil
	})
	return same && err == nil
}

// syncDir asks the server to make the names durable. File systems that cannot sync a directory
// (some FUSE ones) return EINVAL or ENOTSUP; nothing more can be done then.
func (d diskFS) syncDir(path string) error {
	return d.withOpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, true, func(dir *os.File) error {
		err := d.meteredDo(OpSync, path, dir.Sync)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) {
			return nil
		}
		return err
	})
}

// isTransient reports whether an error of a shared file system is temporary: a listing has shown
// the name, but this client does not know it (yet, or any more).
func isTransient(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESTALE) ||
		errors.Is(err, syscall.EIO) || errors.Is(err, errAbsent)
}

// classifyListError distinguishes the errors of a listing that need different reactions.
func classifyListError(err error) error {
	switch {
	case isTransient(err):
		return errAbsent
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		return errNotDir
	default:
		return err
	}
}
