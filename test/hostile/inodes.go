package hostile

import (
	"strconv"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// inode is a file of the folder that the kernel knows. It is kept open, so that it stays the same
// file, even if it is renamed through other mounts.
type inode struct {
	fd   int // O_PATH
	file identity
	refs uint64 // number of answers to the kernel that contained it
}

// identity identifies a file independently of its name.
type identity struct{ dev, ino uint64 }

// path returns a path by which the file can be opened again.
func (i *inode) path() string { return "/proc/self/fd/" + strconv.Itoa(i.fd) }

// inodes contains all inodes that the kernel knows, by the number that it uses.
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

// examine returns the attributes and the identity of an open file.
func examine(fd int) (fuse.Attr, identity, syscall.Errno) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return fuse.Attr{}, identity{}, errnoOf(err)
	}
	var attr fuse.Attr
	attr.FromStat(&stat)
	return attr, identity{dev: stat.Dev, ino: stat.Ino}, 0
}

// of returns the inode with a number that the kernel uses.
func (t *inodes) of(number uint64) *inode {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[number]
}

// find looks up a name in a directory for the kernel, and returns the inode's number.
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
		_ = unix.Close(fd) // the same file is open already
	} else {
		t.last++
		number = t.last
		t.known[number], t.number[file] = &inode{fd: fd, file: file}, number
	}
	t.known[number].refs++
	return number, attr, 0
}

// forget subtracts the given number of answers from the inode's references.
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
