package signal

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxRecord is the maximum size of a record in bytes. It is checked before reading, so that a
// damaged or foreign file cannot exhaust the memory. The largest records have the host names of all
// nodes, or a cause with its last lines: 20 lines of 1 KiB, which JSON makes six times as long if
// they are not text.
const maxRecord = 1 << 20

const (
	dirMode  = 0o700
	fileMode = 0o600
)

// Share is the interface for all calls to the shared file system: its implementations count the
// calls, and tests inject faults. Only the kernel's hints about a local file system bypass it.
type Share interface {
	Lookup
	Mutation
}

// Lookup has the calls that do not change the file system.
type Lookup interface {
	// List opens a directory again, calls vet for it if it is not nil, and returns its names, without
	// temporaries, which begin with a dot. An open handle could show old names.
	List(path string, vet func(Facts) error) ([]string, error)
	// Hold lists a directory that vet accepts and keeps it open: from then on, paths below it are
	// resolved in this directory, even if it is renamed meanwhile.
	Hold(path string, vet func(Facts) error) ([]string, error)
	// Look returns the attributes of a name that a listing has shown. It follows no link.
	Look(path string) (Facts, error)
	// Read returns a file's content, which must not be larger than 1 MiB.
	Read(path string) ([]byte, error)
	// Part returns the content of a file from offset on, limited to `most` bytes, and the file's
	// attributes. It returns no data if the file is not a regular one.
	Part(path string, offset, most int64) ([]byte, Facts, error)
	// Target returns the target of a symbolic link.
	Target(path string) (string, error)
	// Kind returns the file system of the directory.
	Kind(path string) (FileSystem, error)
	// Space returns the size and the free space of the directory's file system.
	Space(path string) (Space, error)
}

// Mutation has the calls that change the file system.
type Mutation interface {
	// Write makes a file with data; its name must be new. A durable file survives a crash of the
	// server after the return. Without data, an existing file is not changed.
	Write(path string, data []byte, durable bool) error
	// Extend opens a file for appending, and creates it if it is missing.
	Extend(path string) (io.WriteCloser, error)
	// Change changes names. Its parameter from is only used if two names are involved.
	Change(how Change, from, to string) error
}

// Facts are the attributes of a name that decide whether it can be trusted, and the server's time.
type Facts struct {
	Mode    fs.FileMode
	Owner   int       // user id
	Written time.Time // modification time by the server's clock; zero if it is not available
	Size    int64
}

// Change is a change of names.
type Change string

// The changes, with the parameters of Mutation.Change.
const (
	MakeDir Change = "make"    // makes the directory `to`
	Rename  Change = "rename"  // gives the file `from` the name `to`
	Link    Change = "link"    // makes `to` another name of `from`; fails with ErrExist if `to` exists
	Symlink Change = "symlink" // makes `to` a symbolic link with the target `from`
	Remove  Change = "remove"  // removes `to` and everything in it; no error if it is missing
	Settle  Change = "settle"  // makes the names in the directory `to` durable
)

// Access is a daemon's access to the shared file system. Its zero value accesses the file system
// directly, with a meter that is not read.
type Access struct {
	Meter *Meter // counts the calls; nil means a new one
	Share Share  // nil means the file system itself, with calls counted by Meter
	// Deaf disables the kernel's hints on a local file system, because a simulated shared file system
	// must not be better than a real one.
	Deaf bool
	// Jitter returns the random variation of pauses, at least 0 and less than 1. Nil means random.
	Jitter func() float64
	clock  *clock // the server's, common to all nodes with this access
}

// ready returns the access with all defaults set.
func (a Access) ready() Access {
	if a.Meter == nil {
		a.Meter = new(Meter)
	}
	if a.Share == nil {
		a.Share = Disk(a.Meter)
	}
	if a.Jitter == nil {
		a.Jitter = rand.Float64
	}
	if a.clock == nil {
		a.clock = new(clock)
	}
	return a
}

// Porter is called around each file system call: a Meter, or the fault injection of a simulation or
// a test.
type Porter interface {
	// Enter is called before a call, which is not made if it returns an error. It returns the time
	// from which the call's duration is measured.
	Enter(op Op, path string) (time.Time, error)
	// Leave is called after a call.
	Leave(op Op, path string, entered time.Time)
}

// disk is the file system itself.
type disk struct {
	porter Porter
	held   *heldDirs
}

var _ Share = disk{}

// Disk returns the file system, with the porter called around each call.
func Disk(porter Porter) Share { return disk{porter, new(heldDirs)} }

// called makes a call and returns its result.
func called[T any](d disk, op Op, path string, call func() (T, error)) (value T, err error) {
	entered, err := d.porter.Enter(op, path)
	if err != nil {
		return value, err
	}
	defer d.porter.Leave(op, path, entered)
	return call()
}

// call is like [called], for calls without a result.
func (d disk) call(op Op, path string, call func() error) error {
	_, err := called(d, op, path, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

func (d disk) open(path string, flags int) (file *os.File, err error) {
	err = d.at(OpOpen, path, func() error {
		at := d.held.relative(path)
		fd, err := unix.Openat(at.fd, at.name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, fileMode)
		if err == nil {
			file = os.NewFile(uintptr(fd), path)
		}
		return err
	})
	return file, err
}

func (d disk) close(file *os.File, path string) error {
	return d.call(OpClose, path, file.Close)
}

// within opens path for one use, and closes it. The error of close is returned: a network file
// system may report only there that data did not fit.
func (d disk) within(path string, flags int, use func(*os.File) error) error {
	file, err := d.open(path, flags)
	if err != nil {
		return err
	}
	return errors.Join(use(file), d.close(file, path))
}

func (d disk) List(path string, vet func(Facts) error) (names []string, err error) {
	err = d.within(path, os.O_RDONLY|syscall.O_DIRECTORY, func(dir *os.File) error {
		names, err = d.list(dir, path, vet)
		return err
	})
	return names, err
}

// list returns the names in an open directory that vet accepts.
func (d disk) list(dir *os.File, path string, vet func(Facts) error) ([]string, error) {
	if vet != nil {
		facts, err := d.stat(path, dir.Stat)
		if err == nil {
			err = vet(facts)
		}
		if err != nil {
			return nil, err
		}
	}
	names, err := called(d, OpList, path, func() ([]string, error) { return dir.Readdirnames(-1) })
	return slices.DeleteFunc(names, func(name string) bool { return name[0] == '.' }), err
}

func (d disk) Hold(path string, vet func(Facts) error) ([]string, error) {
	if d.held.above(path) != nil {
		return d.List(path, vet)
	}
	dir, err := d.open(path, os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	names, err := d.list(dir, path, vet)
	if err != nil {
		return nil, errors.Join(err, d.close(dir, path))
	}
	d.held.add(path, dir, vet)
	return names, nil
}

func (d disk) Look(path string) (facts Facts, err error) {
	err = d.at(OpStat, path, func() error {
		info, err := d.held.relative(path).stat()
		if err == nil {
			facts = factsOf(info)
		}
		return err
	})
	return facts, err
}

func (d disk) stat(path string, ask func() (os.FileInfo, error)) (Facts, error) {
	info, err := called(d, OpStat, path, ask)
	if err != nil {
		return Facts{}, err
	}
	return factsOf(info), nil
}

func factsOf(info os.FileInfo) Facts {
	return Facts{Mode: info.Mode(), Owner: int(info.Sys().(*syscall.Stat_t).Uid), Written: info.ModTime(), Size: info.Size()}
}

func (d disk) Read(path string) (data []byte, err error) {
	err = d.within(path, os.O_RDONLY|syscall.O_NONBLOCK, func(file *os.File) error {
		data, err = called(d, OpRead, path, func() ([]byte, error) { return io.ReadAll(io.LimitReader(file, maxRecord+1)) })
		if err == nil && len(data) > maxRecord {
			err = errors.New("it is larger than any record")
		}
		return err
	})
	return data, err
}

func (d disk) Part(path string, offset, most int64) (data []byte, facts Facts, err error) {
	err = d.within(path, os.O_RDONLY|syscall.O_NONBLOCK, func(file *os.File) error {
		facts, err = d.stat(path, file.Stat)
		if err == nil && facts.Mode.IsRegular() && offset < facts.Size {
			data, err = called(d, OpRead, path, func() ([]byte, error) { return io.ReadAll(io.NewSectionReader(file, offset, most)) })
		}
		return err
	})
	return data, facts, err
}

func (d disk) Target(path string) (target string, err error) {
	err = d.at(OpReadlink, path, func() error {
		at := d.held.relative(path)
		text := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(at.fd, at.name, text)
		target = string(text[:max(n, 0)])
		return err
	})
	return target, err
}

func (d disk) Kind(path string) (kind FileSystem, err error) {
	err = d.at(OpStatfs, path, func() error {
		kind, err = fileSystemOf(d.held.relative(path).path())
		return err
	})
	return kind, err
}

func (d disk) Space(path string) (space Space, err error) {
	err = d.at(OpStatfs, path, func() error {
		space, err = SpaceOf(d.held.relative(path).path())
		return err
	})
	return space, err
}

func (d disk) Write(path string, data []byte, durable bool) error {
	flags := os.O_WRONLY | os.O_CREATE
	if len(data) > 0 {
		flags |= os.O_EXCL // no other user can have created it to read the data
	}
	return d.within(path, flags, func(file *os.File) (err error) {
		if len(data) > 0 {
			_, err = called(d, OpWrite, path, func() (int, error) { return file.Write(data) })
		}
		if err == nil && durable {
			err = d.call(OpSync, path, file.Sync)
		}
		return err
	})
}

func (d disk) Extend(path string) (io.WriteCloser, error) {
	file, err := d.open(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	return extended{d, file, path}, nil
}

// extended is a file that is open for appending.
type extended struct {
	disk disk
	file *os.File
	path string
}

func (e extended) Write(data []byte) (int, error) {
	return called(e.disk, OpWrite, e.path, func() (int, error) { return e.file.Write(data) })
}

func (e extended) Close() error { return e.disk.close(e.file, e.path) }

func (d disk) Change(how Change, from, to string) error {
	if how == Settle {
		return d.syncDir(to)
	}
	op, known := changeOps[how]
	if !known {
		return errors.New("internal error: no such change: " + string(how))
	}
	err := d.at(op, to, func() error {
		from, target := d.held.relative(from), from
		to := d.held.relative(to)
		switch how {
		case MakeDir:
			return unix.Mkdirat(to.fd, to.name, dirMode)
		case Rename:
			// os.Rename is not used, because it queries the new name first, and the client would cache that
			// it is missing.
			return unix.Renameat(from.fd, from.name, to.fd, to.name)
		case Link:
			return unix.Linkat(from.fd, from.name, to.fd, to.name, 0)
		case Symlink:
			return unix.Symlinkat(target, to.fd, to.name)
		default:
			return to.remove()
		}
	})
	// A repeated request may report that the link exists although the first one has made it.
	if how == Link && errors.Is(err, os.ErrExist) && d.linked(from, to) {
		return nil
	}
	return err
}

// changeOps maps changes of names to the kinds of calls.
var changeOps = map[Change]Op{MakeDir: OpMkdir, Rename: OpRename, Link: OpLink, Symlink: OpSymlink, Remove: OpRemove}

// linked reports whether `to` is already a link to `from`. If the kernel repeats a request because
// its reply was lost, the answer is "file exists" although the first request has succeeded.
func (d disk) linked(from, to string) (same bool) {
	err := d.at(OpStat, to, func() error {
		ours, oursErr := d.held.relative(from).stat()
		there, thereErr := d.held.relative(to).stat()
		same = oursErr == nil && thereErr == nil && os.SameFile(ours, there)
		return nil
	})
	return same && err == nil
}

// syncDir asks the server to make the names durable. File systems that cannot sync a directory
// (some FUSE ones) return EINVAL or ENOTSUP; nothing more can be done then.
func (d disk) syncDir(path string) error {
	return d.within(path, os.O_RDONLY|syscall.O_DIRECTORY, func(dir *os.File) error {
		err := d.call(OpSync, path, dir.Sync)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) {
			return nil
		}
		return err
	})
}

// passing reports whether an error of a shared file system is temporary: a listing has shown the
// name, but this client does not know it (yet, or any more).
func passing(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.EIO) || errors.Is(err, errAbsent)
}

// classify distinguishes the errors of a listing that need different reactions.
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
