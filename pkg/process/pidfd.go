package process

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitProcessEnd waits until the process pid, which need not be a child of this process, has
// ended, and then returns nil. It notices the end within milliseconds. The caller must have seen
// the process just before, for example by [ProcessTree], because the PID may be reused.
// AwaitProcessEnd returns the cause of ctx if ctx ends first, and another error if the kernel
// cannot report the end (before Linux 5.3).
func AwaitProcessEnd(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err == unix.EINVAL { // kernels before 5.10 do not know the flag
		fd, err = unix.PidfdOpen(pid, 0)
	}
	if err == unix.ESRCH {
		return nil
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return fmt.Errorf("cannot wait for the end of process %d: %v", pid, err)
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	defer func() { _ = file.Close() }()
	conn, err := file.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot wait for the end of process %d: %v", pid, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Unix(0, 1)) })
	defer stop()
	err = conn.Read(func(fd uintptr) bool {
		// a pidfd is readable once its process has ended
		state := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, _ := unix.Poll(state, 0)
		return n > 0
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return fmt.Errorf("cannot wait for the end of process %d: %v", pid, err)
	}
}
