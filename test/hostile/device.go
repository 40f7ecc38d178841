package hostile

import (
	"errors"
	"fmt"
	"io"

	"log"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	// mostData is the maximum number of bytes that one call reads or writes.
	mostData = 1 << 15
	// callSize is enough for the largest call and the largest answer.
	callSize = mostData + 1<<12
)

// buffer contains a call and its answer.
type buffer struct{ call, answer [callSize]byte }

var buffers = sync.Pool{New: func() any { return new(buffer) }}

// device is the kernel's side of a mount. It reads and answers the calls itself, instead of using
// the library's server, so that it is known at every moment which of them have been taken.
type device struct {
	file  *os.File // /dev/fuse
	calls *fuse.ProtocolServer

	mu     sync.Mutex
	turn   *sync.Cond // notified of every change of the fields below
	paused bool       // stop reading calls; guarded by mu
	parked bool       // no call is being read; guarded by mu
	taken  int        // calls that have been read but not answered; guarded by mu
}

// mount mounts a file system at a folder. Its calls wait until serve runs, except for the first,
// with which the kernel initialises the mount.
func mount(at string, fs fuse.RawFileSystem) (*device, error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open /dev/fuse: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,max_read=%d",
		fd, os.Geteuid(), os.Getegid(), mostData)
	if err := unix.Mount(fs.String(), at, "fuse."+fs.String(), unix.MS_NOSUID|unix.MS_NODEV,
		options); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot mount at %s: %v", at, err), unix.Close(fd))
	}
	// Create the file only now: the poller cannot wait for the device before it belongs to a mount.
	file := os.NewFile(uintptr(fd), "/dev/fuse")
	d := &device{file: file, calls: fuse.NewProtocolServer(fs, &fuse.MountOptions{
		MaxWrite:           mostData,
		DisableReadDirPlus: true, // listings must not add names to the kernel's cache
		Logger:             log.New(io.Discard, "", 0),
	})}
	d.turn = sync.NewCond(&d.mu)
	if err := d.next(d.answer); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot mount at %s: %v", at, err),
			unix.Unmount(at, unix.MNT_DETACH))
	}
	return d, nil
}

// serve reads calls until the mount no longer exists.
func (d *device) serve() error {
	for {
		d.mu.Lock()
		for d.paused {
			d.parked = true
			d.turn.Broadcast()
			d.turn.Wait()
		}
		d.parked = false
		d.mu.Unlock()
		err := d.next(func(b *buffer, size int) { go d.answer(b, size) })
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded): // it must pause
		case errors.Is(err, syscall.ENOENT): // the caller was interrupted
		case errors.Is(err, syscall.ENODEV):
			return nil
		default:
			return fmt.Errorf("cannot read the kernel's calls: %v", err)
		}
	}
}

// next reads one call and starts answering it.
func (d *device) next(answer func(b *buffer, size int)) error {
	b := buffers.Get().(*buffer)
	size, err := d.file.Read(b.call[:])
	if err != nil {
		buffers.Put(b)
		return err
	}
	d.took(1)
	answer(b, size)
	return nil
}

func (d *device) took(calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken += calls
	d.turn.Broadcast()
}

func (d *device) unanswered() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken
}

func (d *device) answer(b *buffer, size int) {
	defer d.took(-1)
	defer buffers.Put(b)
	n, _ := d.calls.HandleRequest([][]byte{b.call[:size]}, [][]byte{b.answer[:]})
	if n > 0 {
		// Ignore errors: the caller may have been killed, and the mount may no longer exist.
		_, _ = d.file.Write(b.answer[:n])
	}
}

// pause stops the reading of calls. It returns when no call is being read and all calls have been
// answered.
func (d *device) pause() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = true
	_ = d.file.SetReadDeadline(time.Unix(1, 0)) // a time in the past
	for !d.parked || d.taken > 0 {
		d.turn.Wait()
	}
}

// resume continues the reading of calls.
func (d *device) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = false
	_ = d.file.SetReadDeadline(time.Time{})
	d.turn.Broadcast()
}
