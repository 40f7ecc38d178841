package hostile

import (
	"strconv"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// inode is a file of the folder that the kernel knows. It is held open, so that
// it stays the same file whatever name others give it through other mounts.
type inode struct {
	fd   int // O_PATH
	file identity
	refs uint64 // how many answers to the kernel have named it
}

// identity is what a file is, by whatever name.
type identity struct{ dev, ino uint64 }

// path is a name by which the file can be opened anew.
func (i *inode) path() string { return "/proc/self/fd/" + strconv.Itoa(i.fd) }

// inodes are those that the kernel knows, by the number it knows them by.
type inodes struct {
	mu     sync.Mutex
	last   uint64              // guarded by mu
	known  map[uint64]*inode   // guarded by mu
	number map[identity]uint64 // guarded by mu
}

func newInodes(root int) (*inodes, error) {
	_, file, errno := examine(root)
	if errno != 0 {
		return nil, errno
	}
	return &inodes{
		last:   fuse.FUSE_ROOT_ID,
		known:  map[uint64]*inode{fuse.FUSE_ROOT_ID: {fd: root, file: file, refs: 1}},
		number: map[identity]uint64{file: fuse.FUSE_ROOT_ID},
	}, nil
}

// examine returns what an open file is.
func examine(fd int) (fuse.Attr, identity, syscall.Errno) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return fuse.Attr{}, identity{}, errnoOf(err)
	}
	var attr fuse.Attr
	attr.FromStat(&stat)
	return attr, identity{dev: stat.Dev, ino: stat.Ino}, 0
}

// of returns an inode that the kernel has named.
func (t *inodes) of(number uint64) *inode {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[number]
}

// find opens a name in a folder for the kernel to know, and returns its number.
func (t *inodes) find(dir *inode, name string) (uint64, fuse.Attr, syscall.Errno) {
	fd, err := unix.Openat(dir.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fuse.Attr{}, errnoOf(err)
	}
	attr, file, errno := examine(fd)
	if errno != 0 {
		_ = unix.Close(fd)
		return 0, attr, errno
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	number, there := t.number[file]
	if there {
		_ = unix.Close(fd) // it is the same file
	} else {
		t.last++
		number = t.last
		t.known[number], t.number[file] = &inode{fd: fd, file: file}, number
	}
	t.known[number].refs++
	return number, attr, 0
}

// forget takes back that many answers which have named the inode.
func (t *inodes) forget(number, answers uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.known[number]
	if i == nil || number == fuse.FUSE_ROOT_ID {
		return
	}
	if i.refs -= min(answers, i.refs); i.refs == 0 {
		_ = unix.Close(i.fd)
		delete(t.known, number)
		delete(t.number, i.file)
	}
}

func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if errno, ok := err.(syscall.Errno); ok {
		return errno
	}
	return syscall.EIO
}
