package stackdump

import "golang.org/x/sys/unix"

func init() {
	sysCalls[unix.SYS_POLL] = sysCall{"poll", false}
	sysCalls[unix.SYS_SELECT] = sysCall{"select", false}
	sysCalls[unix.SYS_EPOLL_WAIT] = sysCall{"epoll_wait", false}
	sysCalls[unix.SYS_PAUSE] = sysCall{"pause", false}
	sysCalls[unix.SYS_OPEN] = sysCall{"open", false}
	sysCalls[unix.SYS_STAT] = sysCall{"stat", false}
	sysCalls[unix.SYS_LSTAT] = sysCall{"lstat", false}
	sysCalls[unix.SYS_FORK] = sysCall{"fork", false}
	sysCalls[unix.SYS_VFORK] = sysCall{"vfork", false}
}
