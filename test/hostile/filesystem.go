package hostile

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// fileSystem answers the kernel's calls. Calls that the panel permits are executed in the folder.
// The knobs that apply to a call determine what the kernel may cache.
type fileSystem struct {
	fuse.RawFileSystem // answers all other calls with ENOSYS

	panel    *panel
	inodes   *inodes
	handles  handles
	listings listings
}

func newFileSystem(from string, panel *panel) (*fileSystem, error) {
	root, err := unix.Open(from, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open the folder %s: %v", from, err)
	}
	inodes, err := newInodes(root)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot look at the folder %s: %v", from, err),
			unix.Close(root))
	}
	return &fileSystem{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		panel:         panel, inodes: inodes,
		handles:  handles{open: make(map[uint64]*handle)},
		listings: listings{kept: make(map[identity]listing)},
	}, nil
}

func (f *fileSystem) String() string { return "hostile" }

// enter consults the panel, and returns the inode to which a call refers.
func (f *fileSystem) enter(op operation, number uint64) (*inode, Knobs, syscall.Errno) {
	knobs, errno := f.panel.pass(op)
	i := f.inodes.of(number)
	if errno == 0 && i == nil {
		errno = syscall.ESTALE
	}
	return i, knobs, errno
}

// answer returns an entry for a name to the kernel. If the kernel must cache missing names, it
// returns an entry for a missing one, too.
func (f *fileSystem) answer(dir *inode, name string, knobs Knobs,
	out *fuse.EntryOut) syscall.Errno {
	number, attr, errno := f.inodes.find(dir, name)
	if errno == syscall.ENOENT && knobs.Negative > 0 {
		out.SetEntryTimeout(knobs.Negative)
		return 0 // an entry without a number is a negative entry
	}
	if errno != 0 {
		return errno
	}
	out.NodeId, out.Generation, out.Attr = number, 1, attr
	out.SetEntryTimeout(knobs.Attributes)
	out.SetAttrTimeout(knobs.Attributes)
	return 0
}

// made answers a call that creates a name. err is the result of the creation.
func (f *fileSystem) made(dir *inode, name string, knobs Knobs, err error,
	out *fuse.EntryOut) fuse.Status {
	if err != nil {
		return fuse.Status(errnoOf(err))
	}
	f.listings.drop(dir)
	return fuse.Status(f.answer(dir, name, knobs, out))
}

func (f *fileSystem) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string,
	out *fuse.EntryOut) fuse.Status {
	dir, knobs, errno := f.enter(opLookup, header.NodeId)
	if errno == 0 {
		errno = f.answer(dir, name, knobs, out)
	}
	return fuse.Status(errno)
}

func (f *fileSystem) Forget(number, answers uint64) { f.inodes.forget(number, answers) }

func (f *fileSystem) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	i, knobs, errno := f.enter(opGetattr, in.NodeId)
	if errno != 0 {
		return fuse.Status(errno)
	}
	out.Attr, _, errno = examine(i.fd)
	out.SetTimeout(knobs.Attributes)
	return fuse.Status(errno)
}

func (f *fileSystem) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	i, knobs, errno := f.enter(opSetattr, in.NodeId)
	if errno != 0 {
		return fuse.Status(errno)
	}
	if err := setAttributes(i, in); err != nil {
		return fuse.Status(errnoOf(err))
	}
	out.Attr, _, errno = examine(i.fd)
	out.SetTimeout(knobs.Attributes)
	return fuse.Status(errno)
}

func setAttributes(i *inode, in *fuse.SetAttrIn) error {
	if mode, ok := in.GetMode(); ok {
		if err := unix.Chmod(i.path(), mode&0o7777); err != nil {
			return err
		}
	}
	uid, hasUID := in.GetUID()
	gid, hasGID := in.GetGID()
	if hasUID || hasGID {
		owner, group := -1, -1
		if hasUID {
			owner = int(uid)
		}
		if hasGID {
			group = int(gid)
		}
		if err := unix.Fchownat(i.fd, "", owner, group, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if size, ok := in.GetSize(); ok {
		if err := unix.Truncate(i.path(), int64(size)); err != nil {
			return err
		}
	}
	return setTimes(i, in)
}

func setTimes(i *inode, in *fuse.SetAttrIn) error {
	accessed, hasAccessed := in.GetATime()
	modified, hasModified := in.GetMTime()
	if !hasAccessed && !hasModified {
		return nil
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	if hasAccessed {
		times[0] = unix.NsecToTimespec(accessed.UnixNano())
	}
	if hasModified {
		times[1] = unix.NsecToTimespec(modified.UnixNano())
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, i.path(), times, 0)
}

func (f *fileSystem) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string,
	out *fuse.EntryOut) fuse.Status {
	dir, knobs, errno := f.enter(opMkdir, in.NodeId)
	if errno != 0 {
		return fuse.Status(errno)
	}
	return f.made(dir, name, knobs, unix.Mkdirat(dir.fd, name, in.Mode), out)
}

func (f *fileSystem) Symlink(_ <-chan struct{}, header *fuse.InHeader, target, name string,
	out *fuse.EntryOut) fuse.Status {
	dir, knobs, errno := f.enter(opSymlink, header.NodeId)
	if errno != 0 {
		return fuse.Status(errno)
	}
	return f.made(dir, name, knobs, unix.Symlinkat(target, dir.fd, name), out)
}

func (f *fileSystem) Link(_ <-chan struct{}, in *fuse.LinkIn, name string,
	out *fuse.EntryOut) fuse.Status {
	dir, knobs, errno := f.enter(opLink, in.NodeId)
	old := f.inodes.of(in.Oldnodeid)
	if errno == 0 && old == nil {
		errno = syscall.ESTALE
	}
	if errno != 0 {
		return fuse.Status(errno)
	}
	err := unix.Linkat(unix.AT_FDCWD, old.path(), dir.fd, name, unix.AT_SYMLINK_FOLLOW)
	return f.made(dir, name, knobs, err, out)
}

func (f *fileSystem) Readlink(_ <-chan struct{}, header *fuse.InHeader) ([]byte, fuse.Status) {
	i, _, errno := f.enter(opReadlink, header.NodeId)
	if errno != 0 {
		return nil, fuse.Status(errno)
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(i.fd, "", target)
	return target[:max(n, 0)], fuse.Status(errnoOf(err))
}

func (f *fileSystem) Unlink(_ <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return f.remove(opUnlink, header.NodeId, name, 0)
}

func (f *fileSystem) Rmdir(_ <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	return f.remove(opRmdir, header.NodeId, name, unix.AT_REMOVEDIR)
}

func (f *fileSystem) remove(op operation, number uint64, name string, flags int) fuse.Status {
	dir, _, errno := f.enter(op, number)
	if errno != 0 {
		return fuse.Status(errno)
	}
	err := unix.Unlinkat(dir.fd, name, flags)
	if err == nil {
		f.listings.drop(dir)
	}
	return fuse.Status(errnoOf(err))
}

// Rename keeps cached listings if it reports a false error: a client that believes that nothing has
// changed does not refresh its cache.
func (f *fileSystem) Rename(_ <-chan struct{}, in *fuse.RenameIn, name,
	newName string) fuse.Status {
	dir, knobs, errno := f.enter(opRename, in.NodeId)
	to := f.inodes.of(in.Newdir)
	if errno == 0 && to == nil {
		errno = syscall.ESTALE
	}
	if errno != 0 {
		return fuse.Status(errno)
	}
	err := unix.Renameat2(dir.fd, name, to.fd, newName, uint(in.Flags))
	if err == nil && knobs.RenameLies {
		return fuse.ENOENT
	}
	if err == nil {
		f.listings.drop(dir)
		f.listings.drop(to)
	}
	return fuse.Status(errnoOf(err))
}

func (f *fileSystem) Create(_ <-chan struct{}, in *fuse.CreateIn, name string,
	out *fuse.CreateOut) fuse.Status {
	dir, knobs, errno := f.enter(opCreate, in.NodeId)
	if errno != 0 {
		return fuse.Status(errno)
	}
	fd, err := unix.Openat(dir.fd, name,
		int(in.Flags)|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, in.Mode)
	status := f.made(dir, name, knobs, err, &out.EntryOut)
	if status == fuse.OK && out.NodeId == 0 {
		status = fuse.ENOENT // another mount has removed it already
	}
	if status != fuse.OK {
		if err == nil {
			_ = unix.Close(fd)
		}
		return status
	}
	out.Fh = f.handles.add(&handle{fd: fd, since: knobs.Forgets})
	return fuse.OK
}

// mutating contains the flags with which a file is opened for a change.
const mutating = unix.O_WRONLY | unix.O_RDWR | unix.O_TRUNC

func (f *fileSystem) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	i, knobs, errno := f.enter(opOpen, in.NodeId)
	if errno == 0 && knobs.ReadOnly && in.Flags&mutating != 0 {
		errno = syscall.EROFS
	}
	if errno != 0 {
		return fuse.Status(errno)
	}
	fd, err := unix.Open(i.path(), int(in.Flags)&^(unix.O_NOFOLLOW|unix.O_CREAT)|unix.O_CLOEXEC, 0)
	if err != nil {
		return fuse.Status(errnoOf(err))
	}
	out.Fh = f.handles.add(&handle{fd: fd, since: knobs.Forgets})
	return fuse.OK
}

// file consults the panel, and returns the handle to which a call on an open file refers.
func (f *fileSystem) file(op operation, number uint64) (*handle, Knobs, syscall.Errno) {
	knobs, errno := f.panel.pass(op)
	h := f.handles.of(number)
	if errno == 0 && h == nil {
		errno = syscall.EBADF
	}
	if errno == 0 && fallible[op].stale && h.since < knobs.Forgets {
		errno = syscall.ESTALE
	}
	return h, knobs, errno
}

func (f *fileSystem) Read(_ <-chan struct{}, in *fuse.ReadIn, buffer []byte) (fuse.ReadResult,
	fuse.Status) {
	h, _, errno := f.file(opRead, in.Fh)
	if errno != 0 {
		return nil, fuse.Status(errno)
	}
	n, err := unix.Pread(h.fd, buffer, int64(in.Offset))
	return fuse.ReadResultData(buffer[:max(n, 0)]), fuse.Status(errnoOf(err))
}

func (f *fileSystem) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	h, knobs, errno := f.file(opWrite, in.Fh)
	if errno != 0 {
		return 0, fuse.Status(errno)
	}
	if knobs.FullAtClose {
		h.lose()
		return uint32(len(data)), fuse.OK
	}
	// If the file was opened for appending, the kernel appends, whatever the offset is.
	n, err := unix.Pwrite(h.fd, data, int64(in.Offset))
	return uint32(max(n, 0)), fuse.Status(errnoOf(err))
}

// settle answers the calls that report whether written data has been stored.
func (f *fileSystem) settle(op operation, number uint64) fuse.Status {
	h, knobs, errno := f.file(op, number)
	if op == opFlush && knobs.NoFlush {
		return fuse.ENOSYS
	}
	if errno == 0 && h.hasLost() {
		errno = knobs.Full
		if errno == 0 {
			errno = syscall.ENOSPC // there is space again, but too late for this file
		}
	}
	return fuse.Status(errno)
}

func (f *fileSystem) Flush(_ <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	return f.settle(opFlush, in.Fh)
}

func (f *fileSystem) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return f.settle(opFsync, in.Fh)
}

// Release never blocks, because no process waits for its answer.
func (f *fileSystem) Release(_ <-chan struct{}, in *fuse.ReleaseIn) { f.handles.remove(in.Fh) }

func (f *fileSystem) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	dir, knobs, errno := f.enter(opOpendir, in.NodeId)
	if errno != 0 {
		return fuse.Status(errno)
	}
	names, err := f.listings.of(dir, knobs.Listing)
	if err != nil {
		var number syscall.Errno
		if !errors.As(err, &number) {
			number = syscall.EIO
		}
		return fuse.Status(number)
	}
	out.Fh = f.handles.add(&handle{fd: -1, names: names, since: knobs.Forgets})
	return fuse.OK
}

func (f *fileSystem) ReadDir(_ <-chan struct{}, in *fuse.ReadIn,
	out *fuse.DirEntryList) fuse.Status {
	h, _, errno := f.file(opReaddir, in.Fh)
	if errno != 0 {
		return fuse.Status(errno)
	}
	for at := in.Offset; at < uint64(len(h.names)); at++ {
		entry := h.names[at]
		entry.Off = at + 1
		if !out.AddDirEntry(entry) {
			break
		}
	}
	return fuse.OK
}

func (f *fileSystem) ReleaseDir(in *fuse.ReleaseIn) { f.handles.remove(in.Fh) }

func (f *fileSystem) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	_, _, errno := f.file(opFsyncdir, in.Fh)
	return fuse.Status(errno)
}

func (f *fileSystem) StatFs(_ <-chan struct{}, header *fuse.InHeader,
	out *fuse.StatfsOut) fuse.Status {
	i, _, errno := f.enter(opStatfs, header.NodeId)
	if errno != 0 {
		return fuse.Status(errno)
	}
	var stat syscall.Statfs_t
	if err := syscall.Fstatfs(i.fd, &stat); err != nil {
		return fuse.Status(errnoOf(err))
	}
	out.FromStatfsT(&stat)
	return fuse.OK
}
