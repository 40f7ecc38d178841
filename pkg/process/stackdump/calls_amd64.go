package stackdump

import "golang.org/x/sys/unix"

func init() {
	otherCalls[unix.SYS_POLL] = "poll"
	otherCalls[unix.SYS_SELECT] = "select"
	otherCalls[unix.SYS_EPOLL_WAIT] = "epoll_wait"
	otherCalls[unix.SYS_PAUSE] = "pause"
	otherCalls[unix.SYS_OPEN] = "open"
	otherCalls[unix.SYS_STAT] = "stat"
	otherCalls[unix.SYS_LSTAT] = "lstat"
	otherCalls[unix.SYS_FORK] = "fork"
	otherCalls[unix.SYS_VFORK] = "vfork"
}
