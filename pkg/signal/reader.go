package signal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Reader reads a directory of the share for people, and never changes it: a
// run's, live or a year old, or one that has runs. It follows no link, and reads
// no file that belongs to anybody but the directory's owner. Its methods may be
// called from several goroutines.
type Reader struct {
	path  string
	owner int
	meter *Meter
}

// OpenReader returns a reader of the directory at path, which is no link.
func OpenReader(ctx context.Context, path string) (*Reader, error) {
	r := &Reader{path: path, meter: new(Meter)}
	info, err := asked(ctx, Access{Meter: r.meter}, "look into", path, func() (os.FileInfo, error) { return os.Lstat(path) })
	if err == nil && !info.IsDir() {
		err = errNotDir
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, errno(err))
	}
	r.owner = ownerOf(info)
	return r, nil
}

// Path returns the directory that is read.
func (r *Reader) Path() string { return r.path }

// Folder is a directory as one listing has shown it, open for reads of what is
// in it. Close must be called.
type Folder struct {
	Names []string // without temporaries, in no order
	of    *Reader
	path  string
	dir   *os.File
}

// Folder lists a subdirectory; the empty one is the directory itself.
func (r *Reader) Folder(ctx context.Context, sub string) (*Folder, error) {
	path := filepath.Join(r.path, sub)
	f, err := asked(ctx, Access{Meter: r.meter}, "list", path, func() (*Folder, error) { return r.list(path) })
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", path, errno(err))
	}
	return f, nil
}

func (r *Reader) list(path string) (*Folder, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	err = r.own(dir)
	var all []string
	if err == nil {
		all, err = dir.Readdirnames(-1)
	}
	if err != nil && len(all) == 0 {
		return nil, errors.Join(err, dir.Close())
	}
	return &Folder{Names: records(all), of: r, path: path, dir: dir}, nil
}

// Close lets go of the directory.
func (f *Folder) Close() error { return f.dir.Close() }

// Listing takes the names of a run directory of size nodes apart.
func (f *Folder) Listing(size int) Listing { return newListing(f.Names, size, 1, time.Now()) }

// own refuses what belongs to somebody else.
func (r *Reader) own(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if owner := ownerOf(info); owner != r.owner {
		return fmt.Errorf("it belongs to %s, and the directory to %s", userName(owner), userName(r.owner))
	}
	return nil
}

// Content is what a file has.
type Content struct {
	// Data is its beginning and End its end; what is between was too much, and
	// is left out.
	Data, End []byte
	Size      int64
	Written   time.Time // when last, by the share's clock
}

// Read returns what a file has; of one that is larger than limit, the first and
// the last half of as much.
func (f *Folder) Read(ctx context.Context, name string, limit int64) (Content, error) {
	path := filepath.Join(f.path, name)
	content, err := guarded(ctx, f.of.meter, "read", path, func() (Content, error) { return f.read(name, limit) })
	if err != nil {
		return content, fmt.Errorf("cannot read %s: %w", path, errno(err))
	}
	return content, nil
}

func (f *Folder) read(name string, limit int64) (c Content, err error) {
	if name != filepath.Base(name) || name == ".." {
		return c, errors.New("it is not a name in the directory")
	}
	fd, err := unix.Openat(int(f.dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ELOOP) {
		return c, errors.New("it is a symbolic link")
	}
	if err != nil {
		return c, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return c, err
	}
	if !info.Mode().IsRegular() {
		return c, errors.New("it is not a file")
	}
	if err := f.of.own(file); err != nil {
		return c, err
	}
	c.Size, c.Written = info.Size(), info.ModTime()
	if c.Size <= limit {
		c.Data, err = readSome(file, limit)
		return c, err
	}
	if c.Data, err = readSome(file, limit/2); err == nil {
		c.End, err = readSome(io.NewSectionReader(file, c.Size-limit/2, limit/2), limit/2)
	}
	return c, err
}

func readSome(from io.Reader, most int64) ([]byte, error) {
	return io.ReadAll(io.LimitReader(from, most))
}

// ErrCutOff says of a record that its end is missing.
var ErrCutOff = errors.New("it is cut off: its writer is at it, or was ended")

// ErrOther says of a record that it is another attempt's.
var ErrOther = errors.New("it is of another attempt")

// Record reads a record of the attempt with that nonce (of any, where it is
// empty), and returns when it was written by the share's clock. A file without
// anything in it is a mark, and no error: the record stays as it is.
func (f *Folder) Record(ctx context.Context, name, nonce string, rec Record) (written time.Time, err error) {
	content, err := f.Read(ctx, name, maxRecord)
	if err != nil || content.Size == 0 {
		return content.Written, err
	}
	path := filepath.Join(f.path, name)
	switch data := content.Data; {
	case content.End != nil:
		return content.Written, fmt.Errorf("cannot use %s: it is larger than any record", path)
	case data[len(data)-1] != '\n':
		return content.Written, fmt.Errorf("cannot use %s: %w", path, ErrCutOff)
	}
	err = decode(content.Data, nonce, rec)
	if errors.Is(err, errAbsent) {
		err = ErrOther
	}
	if err != nil {
		err = fmt.Errorf("cannot use %s: %w", path, err)
	}
	return content.Written, err
}

// Target returns where a symbolic link in the directory points.
func (f *Folder) Target(ctx context.Context, name string) (string, error) {
	path := filepath.Join(f.path, name)
	return guarded(ctx, f.of.meter, "follow", path, func() (string, error) { return os.Readlink(path) })
}

// Directories returns the directories in it, the one that was changed last
// first.
func (f *Folder) Directories(ctx context.Context) ([]string, error) {
	changed, err := guarded(ctx, f.of.meter, "look into", f.path, func() (map[string]time.Time, error) {
		changed := make(map[string]time.Time)
		for _, name := range f.Names {
			info, err := os.Lstat(filepath.Join(f.path, name))
			if err == nil && info.IsDir() {
				changed[name] = info.ModTime()
			}
		}
		return changed, nil
	})
	return slices.SortedFunc(maps.Keys(changed), func(a, b string) int {
		return cmp.Or(changed[b].Compare(changed[a]), cmp.Compare(b, a))
	}), err
}
