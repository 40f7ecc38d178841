package process

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitGone waits until a process that need not be a child of ours has ended, and returns nil then; it is known in
// milliseconds. Who calls it has just seen the process, as by Tree. Its error is the cause of ctx where that ends before,
// or tells that the kernel (before Linux 5.3) can't say.
func AwaitGone(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err == unix.EINVAL { // a kernel before 5.10 has no flags
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
		state := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} // a pidfd can be read from when its process has ended
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
