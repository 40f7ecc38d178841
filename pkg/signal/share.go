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

// maxRecord bounds a record's size in bytes before it is read, so that a
// damaged or foreign file can't fill the memory. The largest of ours hold the
// host names of all nodes, or a cause with its last lines: 20 of 1 KiB, of
// which JSON makes six times as much where they are not text.
const maxRecord = 1 << 20

const (
	dirMode  = 0o700
	fileMode = 0o600
)

// Share is every call that goes into the shared file system: the seam at which
// they are counted, and can be made to fail. Only the hints of a local file
// system bypass it.
type Share interface {
	Lookup
	Mutation
}

// Lookup is what leaves the share as it is.
type Lookup interface {
	// List opens a directory anew, has vet look at it if there is one, and
	// returns its names, without the dot-names, which are temporaries. A
	// handle kept open may show the past.
	List(path string, vet func(Facts) error) ([]string, error)
	// Hold lists a directory that vet accepts and keeps it open: from then on,
	// what has the path of something in it is what this directory has under
	// that name, whatever may be renamed meanwhile.
	Hold(path string, vet func(Facts) error) ([]string, error)
	// Look returns what a name is that a listing has shown. It follows no link.
	Look(path string) (Facts, error)
	// Read returns a file's content, which must not be larger than 1 MiB.
	Read(path string) ([]byte, error)
	// Part returns up to most bytes of a file from offset on, and what it is:
	// nothing of what is no file.
	Part(path string, offset, most int64) ([]byte, Facts, error)
	// Target returns where a symbolic link points.
	Target(path string) (string, error)
	// Kind returns which file system the directory lies on.
	Kind(path string) (FileSystem, error)
	// Space returns what room the directory's file system has.
	Space(path string) (Space, error)
}

// Mutation is what changes the share.
type Mutation interface {
	// Write makes a file of data, whose name must be new. A durable one
	// survives a crash of the server that follows the return. Without data, a
	// file that is there stays as it is.
	Write(path string, data []byte, durable bool) error
	// Extend opens a file to append to it, and makes it where it is missing.
	Extend(path string) (io.WriteCloser, error)
	// Change changes names; from is only meant where two take part.
	Change(how Change, from, to string) error
}

// Facts are what tells whether a name can be trusted, and the server's clock.
type Facts struct {
	Mode    fs.FileMode
	Owner   int       // user id
	Written time.Time // when, by the share's clock; zero where it does not tell
	Size    int64
}

// Change is what may be done to names.
type Change string

// The changes.
const (
	MakeDir Change = "make"    // the directory to
	Rename  Change = "rename"  // from becomes to
	Link    Change = "link"    // to becomes another name of from; ErrExist where it is there
	Symlink Change = "symlink" // to points at from
	Remove  Change = "remove"  // to and all in it; no error where it is not there
	Settle  Change = "settle"  // the names in the directory to survive a crash of the server
)

// Access is how a daemon reaches the share. Its zero value is the file system
// itself, with a meter that nobody reads.
type Access struct {
	Meter *Meter // counts the calls; nil: one of its own
	Share Share  // nil: the file system, through the meter
	// Deaf says not to ask the kernel for hints on a local file system: a
	// simulation of a share must not be better than one.
	Deaf bool
	// Jitter draws by how much pauses differ, at least 0 and less than 1; nil:
	// at random.
	Jitter func() float64
	clock  *clock // the share's, for all ranks that go by this way
}

// ready returns an access without nils.
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

// Porter stands at the entrance of a file system: a Meter, or what a simulation
// or a test puts in front of one.
type Porter interface {
	// Enter comes before a call, which is not made where it returns an error, and
	// returns from when on the call's time counts.
	Enter(op Op, path string) (time.Time, error)
	// Leave comes after a call.
	Leave(op Op, path string, entered time.Time)
}

// disk is the file system itself.
type disk struct {
	porter Porter
	held   *heldDirs
}

var _ Share = disk{}

// Disk returns the file system, each call into which passes the porter.
func Disk(porter Porter) Share { return disk{porter, new(heldDirs)} }

// called is what a call returns.
func called[T any](d disk, op Op, path string, call func() (T, error)) (value T, err error) {
	entered, err := d.porter.Enter(op, path)
	if err != nil {
		return value, err
	}
	defer d.porter.Leave(op, path, entered)
	return call()
}

// call is called for calls that return nothing.
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

// within opens what has this path for one use of it, and closes it. The error of
// close counts: a network file system may say only there that data did not fit.
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
		flags |= os.O_EXCL // nobody has made it to read what is written there
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

// extended is a file that is appended to.
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
			// Not os.Rename: it looks at the new name first, which teaches a
			// client of the share that it is missing.
			return unix.Renameat(from.fd, from.name, to.fd, to.name)
		case Link:
			return unix.Linkat(from.fd, from.name, to.fd, to.name, 0)
		case Symlink:
			return unix.Symlinkat(target, to.fd, to.name)
		default:
			return to.remove()
		}
	})
	if how == Link && errors.Is(err, os.ErrExist) && d.linked(from, to) {
		return nil
	}
	return err
}

// changeOps are the calls that changes of names are.
var changeOps = map[Change]Op{MakeDir: OpMkdir, Rename: OpRename, Link: OpLink, Symlink: OpSymlink, Remove: OpRemove}

// linked reports whether a name that is there is the link that was made: a
// request that was repeated after a lost reply answers "file exists".
func (d disk) linked(from, to string) (same bool) {
	err := d.at(OpStat, to, func() error {
		ours, oursErr := d.held.relative(from).stat()
		there, thereErr := d.held.relative(to).stat()
		same = oursErr == nil && thereErr == nil && os.SameFile(ours, there)
		return nil
	})
	return same && err == nil
}

// syncDir asks the server to keep the names. File systems that can't sync a
// directory (some FUSE ones) say so with EINVAL or ENOTSUP: there is no more
// that we could do then.
func (d disk) syncDir(path string) error {
	return d.within(path, os.O_RDONLY|syscall.O_DIRECTORY, func(dir *os.File) error {
		err := d.call(OpSync, path, dir.Sync)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) {
			return nil
		}
		return err
	})
}

// passing tells an error of a shared file system that goes away by itself:
// the name was shown by a listing, yet this client doesn't know it (yet, or
// any more).
func passing(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.EIO) || errors.Is(err, errAbsent)
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
