package stackdump

import "golang.org/x/sys/unix"

// fileCalls are the names of system calls in which a process may wait, and whose first argument is a
// file descriptor; otherCalls are those without. Files for other architectures add theirs.
var fileCalls = map[int64]string{
	unix.SYS_READ: "read", unix.SYS_READV: "readv", unix.SYS_PREAD64: "pread",
	unix.SYS_WRITE: "write", unix.SYS_WRITEV: "writev", unix.SYS_PWRITE64: "pwrite",
	unix.SYS_RECVFROM: "recvfrom", unix.SYS_RECVMSG: "recvmsg", unix.SYS_SENDTO: "sendto",
	unix.SYS_SENDMSG: "sendmsg", unix.SYS_CONNECT: "connect", unix.SYS_ACCEPT: "accept",
	unix.SYS_ACCEPT4: "accept4", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_FLOCK: "flock", unix.SYS_FCNTL: "fcntl", unix.SYS_IOCTL: "ioctl",
	unix.SYS_GETDENTS64: "getdents", unix.SYS_CLOSE: "close", unix.SYS_FSTAT: "fstat",
	unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_SPLICE: "splice",
}

var otherCalls = map[int64]string{
	unix.SYS_OPENAT: "openat", unix.SYS_NEWFSTATAT: "fstatat", unix.SYS_STATX: "statx",
	unix.SYS_UNLINKAT: "unlinkat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_SYNC: "sync",
	unix.SYS_MMAP: "mmap", unix.SYS_MUNMAP: "munmap", unix.SYS_MADVISE: "madvise",
	unix.SYS_EXECVE: "execve", unix.SYS_CLONE: "clone", unix.SYS_EXIT_GROUP: "exit_group",
	unix.SYS_FUTEX: "futex", unix.SYS_NANOSLEEP: "nanosleep",
	unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep", unix.SYS_EPOLL_PWAIT: "epoll_wait",
	unix.SYS_PPOLL: "poll", unix.SYS_PSELECT6: "select", unix.SYS_WAIT4: callWait4,
	unix.SYS_WAITID: callWaitID, unix.SYS_RT_SIGTIMEDWAIT: "sigtimedwait",
	unix.SYS_RT_SIGSUSPEND: callSigSuspend, unix.SYS_RESTART_SYSCALL: callRestart,
	unix.SYS_IO_URING_ENTER: "io_uring_enter", unix.SYS_SCHED_YIELD: "sched_yield",
}

// System calls with which a process waits for its child processes.
const (
	callWait4      = "wait4"
	callWaitID     = "waitid"
	callSigSuspend = "sigsuspend"
	// callRestart is the system call that continues any wait after a stop has interrupted it.
	callRestart = "restart_syscall"
)

// kernelWaits maps kernel functions, as in /proc/PID/wchan, to system calls. They are used if the
// number of the system call cannot be read: Yama restricts it to ancestors of the process, but not
// wchan.
var kernelWaits = map[string]string{
	"hrtimer_nanosleep": "nanosleep", "common_nsleep": "nanosleep", "futex_wait_queue": "futex",
	"futex_wait_queue_me": "futex", "futex_do_wait": "futex", "do_wait": callWait4,
	"ep_poll": "epoll_wait", "do_epoll_wait": "epoll_wait", "pipe_read": "read",
	"anon_pipe_read": "read", "pipe_write": "write", "anon_pipe_write": "write",
	"poll_schedule_timeout": "poll", "do_sys_poll": "poll", "do_select": "select",
	"inet_csk_accept": "accept", "wait_for_connect": "connect", "sk_wait_data": "recvfrom",
	"unix_stream_read_generic": "recvfrom", "unix_stream_data_wait": "recvfrom",
	"__skb_wait_for_more_packets": "recvfrom", "n_tty_read": "read",
	"do_sigtimedwait": "sigtimedwait", "flock_lock_inode_wait": "flock",
}
