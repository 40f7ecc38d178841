package hostile

import (
	"os"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// handle is an open file or directory.
type handle struct {
	fd    int             // file descriptor of a file
	names []fuse.DirEntry // listing of a directory at the time it was opened
	since int             // value of Knobs.Forgets at that time

	mu   sync.Mutex
	lost bool // some written data was discarded; guarded by mu
}

// lose records that written data was discarded.
func (h *handle) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = true
}

func (h *handle) hasLost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// handles contains the kernel's open files and directories, by number.
type handles struct {
	mu   sync.Mutex
	last uint64             // guarded by mu
	open map[uint64]*handle // guarded by mu
}

func (t *handles) add(h *handle) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.open[t.last] = h
	return t.last
}

func (t *handles) of(number uint64) *handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[number]
}

func (t *handles) remove(number uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.open[number]; h != nil && h.fd >= 0 {
		_ = unix.Close(h.fd)
	}
	delete(t.open, number)
}

// listings contains the latest listings that this mount has fetched.
type listings struct {
	mu   sync.Mutex
	kept map[identity]listing // guarded by mu
}

type listing struct {
	names   []fuse.DirEntry
	fetched time.Time
}

// of returns the names in a directory, from a listing that is not older than age.
func (t *listings) of(dir *inode, age time.Duration) ([]fuse.DirEntry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kept, ok := t.kept[dir.file]; ok && time.Since(kept.fetched) < age {
		return kept.names, nil
	}
	fetched := time.Now()
	names, err := list(dir)
	if err != nil {
		return nil, err
	}
	t.kept[dir.file] = listing{names, fetched}
	return names, nil
}

// drop removes a directory's cached listing, because this mount has changed the directory.
func (t *listings) drop(dir *inode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.kept, dir.file)
}

func list(dir *inode) ([]fuse.DirEntry, error) {
	entries, err := os.ReadDir(dir.path())
	if err != nil {
		return nil, err
	}
	names := []fuse.DirEntry{{Name: ".", Mode: unix.S_IFDIR}, {Name: "..", Mode: unix.S_IFDIR}}
	for _, entry := range entries {
		names = append(names, fuse.DirEntry{Name: entry.Name(), Mode: kindOf(entry.Type())})
	}
	return names, nil
}

// kindOf returns a file's type in the kernel's encoding.
func kindOf(mode os.FileMode) uint32 {
	switch {
	case mode.IsDir():
		return unix.S_IFDIR
	case mode&os.ModeSymlink != 0:
		return unix.S_IFLNK
	case mode&os.ModeNamedPipe != 0:
		return unix.S_IFIFO
	case mode&os.ModeSocket != 0:
		return unix.S_IFSOCK
	default:
		return unix.S_IFREG
	}
}
