package process

import (
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"golang.org/x/sys/unix"
)

// TreeProcess is a process in the tree returned by [ProcessTree].
type TreeProcess struct {
	PID, Parent int
	Name        string // as shown by ps
}

// ProcessTree returns the living processes of the tree below top, including top itself, parents
// first, from one read of /proc. Processes that are not visible there are missing.
func ProcessTree(top int) (found []TreeProcess) {
	all, _ := newProcScanner(0).scanProcesses() // those that can be inspected
	children := make(map[int][]TreeProcess)
	for _, p := range all {
		one := TreeProcess{PID: p.pid, Parent: p.ppid, Name: p.name}
		switch {
		case p.dead:
			continue
		case p.pid == top:
			found = append(found, one)
		}
		children[p.ppid] = append(children[p.ppid], one)
	}
	for at := 0; at < len(found); at++ {
		found = append(found, children[found[at].PID]...)
	}
	return found
}

// CommandLine returns the arguments of a process, starting with its program; nil if they cannot be
// read.
func CommandLine(pid int) []string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline") // fails if the process has ended
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// Environ returns the environment that a process was started with; nil if it cannot be read.
func Environ(pid int) []string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ") // fails if the process has ended
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// Look examines the process tree below this process, parents first, and returns what is to be said
// of it, or an empty string.
type Look func(tree []TreeProcess) string

// The interval between two looks begins with firstLookInterval, and doubles up to maxLookInterval.
// They go on, because a program may start another one an hour later. They are rare, because one
// takes some milliseconds.
const (
	firstLookInterval = time.Second
	maxLookInterval   = 30 * time.Second
)

// WatchTree looks at the process tree below this process, which includes daemons that its
// descendants have started, until ctx ends. It calls report once with what a look says, if it said
// something at the look before, too.
func WatchTree(ctx context.Context, report func(words string), looks ...Look) {
	hadWords := make([]bool, len(looks))
	for interval := firstLookInterval; len(looks) > 0 && ctxutil.SleepContext(ctx, interval); {
		interval = min(2*interval, maxLookInterval)
		// Do not wait for a look at the end of ctx: it blocks while the memory of a process is locked
		// because a file system is unresponsive.
		said, err := ctxutil.CallBounded(ctx, 0, func() ([]string, error) {
			tree := ProcessTree(os.Getpid())
			words := make([]string, len(looks))
			for i, look := range looks {
				words[i] = look(tree)
			}
			return words, nil
		})
		if err != nil {
			return
		}
		for i := len(looks) - 1; i >= 0; i-- {
			isRepeated := hadWords[i] && said[i] != ""
			hadWords[i] = said[i] != ""
			if isRepeated {
				report(said[i])
				looks, hadWords = slices.Delete(looks, i, i+1), slices.Delete(hadWords, i, i+1)
			}
		}
	}
}

// Ancestors returns an iterator over a process and its ancestors, nearest first. It yields the PID
// and arguments of each. For a process without arguments it yields its name only. A process that is
// not visible is yielded without arguments and is the last one.
func Ancestors(pid int) iter.Seq2[int, []string] {
	return func(yield func(int, []string) bool) {
		for pid > 0 {
			p, err := readStat(pid)
			var argv []string
			if err == nil {
				if argv = commandLineInTime(pid); argv == nil {
					argv = []string{p.name}
				}
			}
			if !yield(pid, argv) || err != nil {
				return
			}
			pid = p.ppid
		}
	}
}

// commandLineInTime returns the arguments of a process; nil if they cannot be read or do not arrive
// in time.
func commandLineInTime(pid int) []string {
	ctx, cancel := context.WithTimeout(context.Background(), memoryReadTimeout)
	defer cancel()
	// An abandoned read has no arguments.
	argv, _ := ctxutil.CallBounded(ctx, 0, func() ([]string, error) { return CommandLine(pid), nil })
	return argv
}

// RunsSameProgram reports whether pid is another process, visible to this user, that runs the same
// executable as this process and has done so since before the given time of this host's clock.
func RunsSameProgram(pid int, before time.Time) bool {
	stat, err := readStat(pid)
	if err != nil || stat.dead || pid == unix.Getpid() {
		return false
	}
	const tick = time.Second / ticksPerSecond
	age := time.Duration(bootTicks()-stat.start) * tick // both values are truncated to whole ticks
	if time.Now().Add(-age - tick).After(before) {
		return false // the PID was reused after that time
	}
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false
	}
	other, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && os.SameFile(own, other)
}

// AwaitProcessEnd waits until the process pid, which need not be a child of this process, has
// ended, and then returns nil. It notices the end within milliseconds. The caller must have seen
// the process just before, for example by [ProcessTree], because the PID may be reused.
// AwaitProcessEnd returns the cause of ctx if ctx ends first, and another error if the kernel
// cannot report the end (before Linux 5.3).
func AwaitProcessEnd(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that [os.NewFile] waits for it without a thread
	}
	if err != nil {
		return fmt.Errorf("cannot wait for the end of process %d: %v", pid, err)
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	defer func() { _ = file.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Unix(0, 1)) })
	defer stop()
	conn, err := file.SyscallConn()
	if err == nil {
		err = conn.Read(func(fd uintptr) bool {
			// a pidfd is readable once its process has ended
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0
		})
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("cannot wait for the end of process %d: %v", pid, err)
}

const fdDirectory = "/proc/self/fd"

// CloseInheritedFiles closes the inherited open files with descriptors greater than above, such as
// pipes of the launcher: a process that cannot be killed would keep them open until the node is
// rebooted. It does not close files of the Go runtime.
func CloseInheritedFiles(above int) {
	entries, err := os.ReadDir(fdDirectory)
	if err != nil {
		return
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= above {
			continue
		}
		target, err := os.Readlink(fdDirectory + "/" + entry.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/sys/fs/cgroup/") {
			continue
		}
		_ = syscall.Close(fd)
	}
}
