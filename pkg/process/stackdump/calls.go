package stackdump

import "golang.org/x/sys/unix"

// sysCall is a system call in which a process may wait.
type sysCall struct {
	name    string
	hasFile bool // its first argument is a file descriptor
}

// sysCalls are the system calls by number. Files for other architectures add theirs.
var sysCalls = map[int64]sysCall{
	unix.SYS_READ: {"read", true}, unix.SYS_READV: {"readv", true}, unix.SYS_PREAD64: {"pread", true}, unix.SYS_PREADV: {"preadv", true},
	unix.SYS_WRITE: {"write", true}, unix.SYS_WRITEV: {"writev", true}, unix.SYS_PWRITE64: {"pwrite", true}, unix.SYS_PWRITEV: {"pwritev", true},
	unix.SYS_RECVFROM: {"recvfrom", true}, unix.SYS_RECVMSG: {"recvmsg", true}, unix.SYS_RECVMMSG: {"recvmmsg", true},
	unix.SYS_SENDTO: {"sendto", true}, unix.SYS_SENDMSG: {"sendmsg", true}, unix.SYS_SENDMMSG: {"sendmmsg", true}, unix.SYS_SENDFILE: {"sendfile", true},
	unix.SYS_CONNECT: {"connect", true}, unix.SYS_ACCEPT: {"accept", true}, unix.SYS_ACCEPT4: {"accept4", true},
	unix.SYS_FSYNC: {"fsync", true}, unix.SYS_FDATASYNC: {"fdatasync", true}, unix.SYS_FLOCK: {"flock", true}, unix.SYS_FCNTL: {"fcntl", true},
	unix.SYS_IOCTL: {"ioctl", true}, unix.SYS_GETDENTS64: {"getdents", true}, unix.SYS_CLOSE: {"close", true}, unix.SYS_FSTAT: {"fstat", true},
	unix.SYS_FTRUNCATE: {"ftruncate", true}, unix.SYS_FALLOCATE: {"fallocate", true}, unix.SYS_SPLICE: {"splice", true},
	unix.SYS_OPENAT: {"openat", false}, unix.SYS_NEWFSTATAT: {"fstatat", false}, unix.SYS_STATX: {"statx", false}, unix.SYS_UNLINKAT: {"unlinkat", false},
	unix.SYS_MKDIRAT: {"mkdirat", false}, unix.SYS_RENAMEAT2: {"renameat2", false}, unix.SYS_SYNC: {"sync", false}, unix.SYS_MSYNC: {"msync", false},
	unix.SYS_MMAP: {"mmap", false}, unix.SYS_MUNMAP: {"munmap", false}, unix.SYS_MADVISE: {"madvise", false}, unix.SYS_EXECVE: {"execve", false},
	unix.SYS_CLONE: {"clone", false}, unix.SYS_CLONE3: {"clone3", false}, unix.SYS_EXIT: {"exit", false}, unix.SYS_EXIT_GROUP: {"exit_group", false},
	unix.SYS_FUTEX: {"futex", false}, unix.SYS_NANOSLEEP: {"nanosleep", false}, unix.SYS_CLOCK_NANOSLEEP: {"clock_nanosleep", false},
	unix.SYS_EPOLL_PWAIT: {"epoll_wait", false}, unix.SYS_EPOLL_PWAIT2: {"epoll_wait", false}, unix.SYS_PPOLL: {"poll", false}, unix.SYS_PSELECT6: {"select", false},
	unix.SYS_WAIT4: {callWait4, false}, unix.SYS_WAITID: {callWaitID, false}, unix.SYS_RT_SIGTIMEDWAIT: {"sigtimedwait", false}, unix.SYS_RT_SIGSUSPEND: {"sigsuspend", false},
	unix.SYS_RESTART_SYSCALL: {callRestart, false}, unix.SYS_SEMTIMEDOP: {"semtimedop", false}, unix.SYS_SEMOP: {"semop", false}, unix.SYS_MSGRCV: {"msgrcv", false},
	unix.SYS_IO_GETEVENTS: {"io_getevents", false}, unix.SYS_IO_URING_ENTER: {"io_uring_enter", false}, unix.SYS_SCHED_YIELD: {"sched_yield", false},
}

// System calls with which a process waits for its child processes.
const (
	callWait4  = "wait4"
	callWaitID = "waitid"
	// callRestart is the system call that continues any wait after a stop has interrupted it.
	callRestart = "restart_syscall"
)

// kernelWaits maps kernel functions, as in /proc/PID/wchan, to system calls. They are used if the
// number of the system call cannot be read: Yama restricts it to ancestors of the process, but not
// wchan.
var kernelWaits = map[string]string{
	"hrtimer_nanosleep": "nanosleep", "do_nanosleep": "nanosleep", "common_nsleep": "nanosleep",
	"futex_wait_queue": "futex", "futex_wait_queue_me": "futex", "futex_do_wait": "futex", "futex_wait": "futex",
	"do_wait": callWait4, "kernel_wait4": callWait4, "ep_poll": "epoll_wait", "do_epoll_wait": "epoll_wait",
	"pipe_read": "read", "anon_pipe_read": "read", "pipe_wait_readable": "read", "pipe_write": "write", "anon_pipe_write": "write", "pipe_wait_writable": "write",
	"poll_schedule_timeout": "poll", "do_sys_poll": "poll", "do_select": "select", "inet_csk_accept": "accept", "wait_for_connect": "connect",
	"sk_wait_data": "recvfrom", "unix_stream_read_generic": "recvfrom", "unix_stream_data_wait": "recvfrom", "__skb_wait_for_more_packets": "recvfrom",
	"n_tty_read": "read", "eventfd_read": "read", "do_sigtimedwait": "sigtimedwait", "sigsuspend": "sigsuspend", "flock_lock_inode_wait": "flock",
}
