package memory

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Share is a file system in memory, as its server sees it: its present content, and its content a
// while ago. Its lock guards everything, including the files; methods that require the lock say so.
// Daemons use it through Clients.
type Share struct {
	sync.Mutex
	// Clock, if not nil, is the server's clock. Files then report their sizes and modification times.
	Clock func() time.Time
	// Latency is the duration of each step of a client whose policy is Plain.
	Latency time.Duration

	mount string
	began time.Time
	root  *File
}

// File is a directory, a link or a regular file.
type File struct {
	Kind   fs.FileMode // type, and permissions if they differ from the default
	Owner  int         // 0 means the test's own user
	Data   []byte
	Target string  // target of a link
	Maker  *Client // nil if it was not created by a client
	// Born is the time at which it received its latest name, since the creation of the share.
	Born time.Duration
	Open bool // its content is incomplete, or its writer has not closed it
	// Live contains the present names of a directory.
	Live map[string]*Entry

	written time.Time
	past    []*Entry // present and recently removed names, in order of creation
}

// Entry is a name in a directory, with its lifetime.
type Entry struct {
	Name string
	File *File
	born time.Duration
	died time.Duration // 0 while it exists
}

// NewShare returns an empty share that is mounted at a path.
func NewShare(mount string) *Share {
	return &Share{mount: mount, began: time.Now(), root: NewDir(nil)}
}

// NewDir returns an empty directory.
func NewDir(maker *Client) *File {
	return &File{Kind: fs.ModeDir, Maker: maker, Live: make(map[string]*Entry)}
}

// Now returns the time since the creation of the share.
func (s *Share) Now() time.Duration { return time.Since(s.began) }

// Find returns the file at the path, or nil if there is none. It requires the lock.
func (s *Share) Find(p string) *File {
	at := s.root
	rest, inside := strings.CutPrefix(p, s.mount)
	if !inside {
		return nil
	}
	for rest = strings.Trim(rest, "/"); rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		e := at.Live[name]
		if e == nil {
			return nil
		}
		at = e.File
	}
	return at
}

// Parent returns the directory that contains p or would contain it. It requires the lock.
func (s *Share) Parent(p string) (*File, error) {
	dir := s.Find(path.Dir(p))
	switch {
	case dir == nil:
		return nil, syscall.ENOENT
	case !dir.Kind.IsDir():
		return nil, syscall.ENOTDIR
	default:
		return dir, nil
	}
}

// Put makes p a name of f. It requires the lock.
func (s *Share) Put(p string, f *File) {
	dir, err := s.Parent(p)
	if err != nil {
		panic("the test puts " + p + " where there is no directory")
	}
	e := &Entry{Name: path.Base(p), File: f, born: s.Now()}
	f.Born = e.born
	dir.Live[e.Name] = e
	dir.past = append(dir.past, e)
}

// Drop removes the name p. It requires the lock.
func (s *Share) Drop(p string) {
	dir, err := s.Parent(p)
	if err != nil {
		return
	}
	if e := dir.Live[path.Base(p)]; e != nil {
		e.died = max(s.Now(), 1)
		delete(dir.Live, e.Name)
	}
}

// Remembered is how long a listing may show former names.
const Remembered = 5 * time.Second

// Names returns the names that a directory had at a time, without those of temporary files, in
// order of creation. It requires the lock.
func (f *File) Names(at time.Duration) (names []string) {
	for _, e := range f.past {
		if e.Name[0] != '.' && e.shows(at) {
			names = append(names, e.Name)
		}
	}
	return names
}

// shows reports whether the entry existed at that time.
func (e *Entry) shows(at time.Duration) bool {
	return e.born <= at && (e.died == 0 || e.died > at)
}

// Forget removes former names that no listing can show any more. It requires the lock.
func (f *File) Forget(now time.Duration) {
	if len(f.past) < 2*len(f.Live)+32 {
		return
	}
	f.past = slices.DeleteFunc(f.past, func(e *Entry) bool {
		return e.died > 0 && e.died <= now-Remembered
	})
}

// Add puts f at the path and creates missing directories above it. Unlike a client, it does not use
// the policy.
func (s *Share) Add(p string, f *File) {
	s.Lock()
	defer s.Unlock()
	var missing []string
	for dir := path.Dir(p); s.Find(dir) == nil; dir = path.Dir(dir) {
		missing = append(missing, dir)
	}
	for _, dir := range slices.Backward(missing) {
		s.Put(dir, NewDir(nil))
	}
	s.Drop(p)
	s.date(f)
	s.Put(p, f)
}

// WriteFile adds a regular file.
func (s *Share) WriteFile(p string, data []byte) {
	s.Add(p, &File{Data: data})
}

// ReadFile returns the content of a regular file.
func (s *Share) ReadFile(p string) ([]byte, error) {
	s.Lock()
	defer s.Unlock()
	f := s.Find(p)
	if f == nil {
		return nil, &fs.PathError{Op: "read", Path: p, Err: syscall.ENOENT}
	}
	return slices.Clone(f.Data), nil
}

// ReadDir returns all names in a directory in order, or nil if the directory does not exist.
func (s *Share) ReadDir(p string) (names []string) {
	s.Change(p, func(f *File) { names = slices.Sorted(maps.Keys(f.Live)) })
	return names
}

// Change calls a function with the file at the path, which it may change. It reports whether there
// is a file.
func (s *Share) Change(p string, change func(*File)) bool {
	s.Lock()
	defer s.Unlock()
	f := s.Find(p)
	if f != nil {
		change(f)
	}
	return f != nil
}

// Has reports whether there is a file at the path.
func (s *Share) Has(p string) bool { return s.Change(p, func(*File) {}) }

// Stat returns the same as os.Lstat would.
func (s *Share) Stat(p string) (info fs.FileInfo, err error) {
	if !s.Change(p, func(f *File) { info = fileInfo{path.Base(p), *f} }) {
		return nil, &fs.PathError{Op: "stat", Path: p, Err: syscall.ENOENT}
	}
	return info, nil
}

type fileInfo struct {
	name string
	file File
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return int64(len(i.file.Data)) }
func (i fileInfo) Mode() fs.FileMode  { return i.file.Kind }
func (i fileInfo) ModTime() time.Time { return i.file.written }
func (i fileInfo) IsDir() bool        { return i.file.Kind.IsDir() }
func (i fileInfo) Sys() any           { return nil }

// Walk calls each for every path below a directory, in order.
func (s *Share) Walk(dir string, each func(p string, f *File)) {
	s.Lock()
	defer s.Unlock()
	var walk func(dir string, f *File)
	walk = func(dir string, f *File) {
		for _, name := range slices.Sorted(maps.Keys(f.Live)) {
			below := f.Live[name].File
			each(dir+"/"+name, below)
			walk(dir+"/"+name, below)
		}
	}
	if f := s.Find(dir); f != nil {
		walk(dir, f)
	}
}

// Export copies a directory of the share to a directory of the machine, for code that reads real
// files.
func (s *Share) Export(from, to string) (err error) {
	if err = os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	s.Walk(from, func(p string, f *File) {
		at := filepath.Join(to, strings.TrimPrefix(p, from))
		if err != nil {
			return
		}
		switch {
		case f.Kind.IsDir():
			err = os.Mkdir(at, 0o700)
		case f.Kind&fs.ModeSymlink != 0:
			err = os.Symlink(f.Target, at)
		default:
			err = os.WriteFile(at, f.Data, 0o600)
		}
	})
	return err
}

func (s *Share) date(f *File) {
	if s.Clock != nil {
		f.written = s.Clock()
	}
}
