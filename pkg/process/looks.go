package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// environWait bounds the read of one process's environment. The kernel takes a lock of that
	// process for it, which may be held for as long as a file system hangs.
	environWait = 250 * time.Millisecond
	// mostHung is the maximum number of such reads that may hang at the same time. Each of them
	// occupies a thread.
	mostHung = 64
)

// looks scans the processes of the node for one daemon. Its methods may be called from any
// goroutine.
type looks struct {
	since uint64 // start time of the daemon, in boot ticks
	most  int    // maximum number of reads of environments that hang

	looking sync.Mutex
	elders  map[int]entry // processes that cannot be members of a family, by PID; guarded by [looks.looking]

	mu   sync.Mutex
	next *look                     // the scan that has not begun yet; nil if none is requested; guarded by mu
	hung map[processID]chan []byte // reads that hang, each with the channel that will receive the result; guarded by mu
}

// entry identifies a process by its directory in /proc, without reading a file there. Another
// process with the same PID has another inode. The same process may also get a new inode if the
// kernel reclaimed memory (pid_revalidate in Linux's fs/proc/base.c); then it is inspected once
// more.
type entry struct {
	inode uint64
	made  unix.Timespec
}

// processID identifies a process uniquely, even if its PID is reused.
type processID struct {
	pid   int
	start uint64
}

// newLooks returns the scanner of a daemon that started at since.
func newLooks(since uint64) *looks {
	return &looks{since: since, most: mostHung, elders: make(map[int]entry), hung: make(map[processID]chan []byte)}
}

// look is one scan of all processes. It is shared by all callers that request it before it begins.
type look struct {
	done chan struct{} // closed when the other fields are set
	all  []procStat
	err  error
}

// all returns all processes that can be members of a family. Callers that arrive while a scan is in
// progress share the next one, so a hundred children that end at once need few scans more than one
// child.
func (l *looks) all() ([]procStat, error) {
	l.mu.Lock()
	first := l.next == nil
	if first {
		l.next = &look{done: make(chan struct{})}
	}
	next := l.next
	l.mu.Unlock()
	if first {
		l.looking.Lock()
		l.mu.Lock()
		l.next = nil
		l.mu.Unlock()
		next.all, next.err = l.look()
		l.looking.Unlock()
		close(next.done)
	}
	<-next.done
	return slices.Clone(next.all), next.err
}

// look performs the scan for [looks.all]. The caller holds [looks.looking]. Kernel threads and
// processes older than the daemon cannot be members: they are most of the processes of a node, and
// once they are known they cost one system call each. If /proc is mounted with hidepid, other
// users' processes are not visible. An error means that a process could not be inspected: the
// others are returned, and an empty result does not mean that no process exists.
func (l *looks) look() ([]procStat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot list the processes: %v", err)
	}
	defer dir.Close()
	names, listErr := dir.Readdirnames(-1)
	before := l.elders
	l.elders = make(map[int]entry, len(before))
	var all []procStat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// Skip the known processes that cannot be members.
		var stat unix.Stat_t
		_ = unix.Fstatat(int(dir.Fd()), name, &stat, 0) // readStat below reports the error
		at := entry{inode: stat.Ino, made: stat.Ctim}
		if was, known := before[pid]; known && was == at && at.inode != 0 {
			l.elders[pid] = at
			continue
		}
		// Processes that end during the scan, and hidden ones, are no errors.
		p, err := readStat(pid)
		switch {
		case err == nil && (p.kernel || p.start < l.since):
			l.elders[pid] = at
		case err == nil:
			p.read = sync.OnceValue(func() []string { return marksIn(l.environ(p)) })
			all = append(all, p)
		case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission):
			listErr = fmt.Errorf("process %d: %v", pid, err)
		}
	}
	if listErr != nil {
		return all, fmt.Errorf("cannot look at all processes: %v", listErr)
	}
	return all, nil
}

// environ returns the environment of a process; nil if it has none, may not be read, or cannot be
// read in time. In the last case the reading goroutine ends when the kernel answers; until then
// that process is not read again.
func (l *looks) environ(p procStat) []byte {
	id := processID{p.pid, p.start}
	if !l.may(id) {
		return nil
	}
	answer := make(chan []byte, 1)
	go func() {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
		if err != nil {
			text = nil
		}
		answer <- text
	}()
	late := time.NewTimer(environWait)
	defer late.Stop()
	select {
	case text := <-answer:
		return text
	case <-late.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hung[id] = answer
	return nil
}

// may reports whether the environment of a process may be read now.
func (l *looks) may(id processID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.hung, func(_ processID, answer chan []byte) bool { return len(answer) > 0 })
	_, hangs := l.hung[id]
	return !hangs && len(l.hung) < l.most
}
