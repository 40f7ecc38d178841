package why

import "golang.org/x/sys/unix"

func init() {
	calls[unix.SYS_POLL] = call{"poll", false}
	calls[unix.SYS_SELECT] = call{"select", false}
	calls[unix.SYS_EPOLL_WAIT] = call{"epoll_wait", false}
	calls[unix.SYS_PAUSE] = call{"pause", false}
	calls[unix.SYS_OPEN] = call{"open", false}
	calls[unix.SYS_STAT] = call{"stat", false}
	calls[unix.SYS_LSTAT] = call{"lstat", false}
	calls[unix.SYS_FORK] = call{"fork", false}
	calls[unix.SYS_VFORK] = call{"vfork", false}
}
