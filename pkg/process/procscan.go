package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// environTimeout bounds the read of one process's environment. The kernel takes a lock of that
	// process for it, which may be held for as long as a file system hangs.
	environTimeout = 250 * time.Millisecond
	// maxHungReads is the maximum number of such reads that may hang at the same time. Each of them
	// occupies a thread.
	maxHungReads = 64
)

// procScanner scans the processes of the node for one daemon. Its methods may be called from any
// goroutine.
type procScanner struct {
	startTime uint64 // start time of the daemon, in boot ticks
	maxHung   int    // maximum number of reads of environments that hang

	scanning sync.Mutex
	// processes that cannot be members of a family, by PID; guarded by [procScanner.scanning]
	excluded map[int]dirIdentity

	mu sync.Mutex
	// the scan that has not begun yet; nil if none is requested; guarded by mu
	pendingScan *procScan
	// reads that hang, each with the channel that will receive the result; guarded by mu
	hungReads map[processID]chan []byte
}

// dirIdentity identifies a process by its directory in /proc, without reading a file there. Another
// process with the same PID has another inode. The same process may also get a new inode if the
// kernel reclaimed memory (pid_revalidate in Linux's fs/proc/base.c); then it is inspected once
// more.
type dirIdentity struct {
	inode   uint64
	changed unix.Timespec
}

// processID identifies a process uniquely, even if its PID is reused.
type processID struct {
	pid   int
	start uint64
}

// newProcScanner returns the scanner of a daemon that started at since.
func newProcScanner(since uint64) *procScanner {
	return &procScanner{startTime: since, maxHung: maxHungReads, excluded: make(map[int]dirIdentity), hungReads: make(map[processID]chan []byte)}
}

// procScan is one scan of all processes. It is shared by all callers that request it before it
// begins.
type procScan struct {
	done      chan struct{} // closed when the other fields are set
	processes []procStat
	err       error
}

// scanProcesses returns all processes that can be members of a family. Callers that arrive while a
// scan is in progress share the next one, so a hundred children that end at once need few scans
// more than one child.
func (l *procScanner) scanProcesses() ([]procStat, error) {
	l.mu.Lock()
	first := l.pendingScan == nil
	if first {
		l.pendingScan = &procScan{done: make(chan struct{})}
	}
	next := l.pendingScan
	l.mu.Unlock()
	if first {
		runtime.Gosched() // for the callers that are about to request one, too
		l.scanning.Lock()
		l.mu.Lock()
		l.pendingScan = nil
		l.mu.Unlock()
		next.processes, next.err = l.scanLocked()
		l.scanning.Unlock()
		close(next.done)
	}
	<-next.done
	return slices.Clone(next.processes), next.err
}

// scanLocked performs the scan for [procScanner.scanProcesses]. The caller holds
// [procScanner.scanning]. Kernel threads and processes older than the daemon cannot be members:
// they are most of the processes of a node, and once they are known they cost one system call each.
// If /proc is mounted with hidepid, other users' processes are not visible. An error means that a
// process could not be inspected: the others are returned, and an empty result does not mean that
// no process exists.
func (l *procScanner) scanLocked() ([]procStat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot list the processes: %v", err)
	}
	defer dir.Close()
	before := l.excluded
	l.excluded = make(map[int]dirIdentity, len(before))
	var kernelThreads map[int]bool // only used by the first scan, which knows no process yet
	if len(before) == 0 {
		kernelThreads = listKernelThreads()
	}
	names, listErr := dir.Readdirnames(-1)
	var all []procStat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// Skip the known processes that cannot be members.
		var stat unix.Stat_t
		_ = unix.Fstatat(int(dir.Fd()), name, &stat, 0) // readStat below reports the error
		at := dirIdentity{inode: stat.Ino, changed: stat.Ctim}
		if was, known := before[pid]; known && was == at && at.inode != 0 {
			l.excluded[pid] = at
			continue
		}
		if kernelThreads[pid] && at.inode != 0 {
			l.excluded[pid] = at
			continue
		}
		// Processes that end during the scan, and hidden ones, are no errors.
		p, err := readStat(pid)
		switch {
		case err == nil && (p.kernel || p.start < l.startTime):
			l.excluded[pid] = at
		case err == nil:
			p.readMarks = sync.OnceValue(func() []string { return marksOf(p.pid, l.readEnviron(p)) })
			all = append(all, p)
		case !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission):
			listErr = fmt.Errorf("process %d: %v", pid, err)
		}
	}
	if listErr != nil {
		return all, fmt.Errorf("cannot inspect all processes: %v", listErr)
	}
	return all, nil
}

// listKernelThreads returns the PIDs of the kernel's threads, which are children of kthreadd, by one
// read. A node with many cores has more than a thousand of them. It returns none in another PID
// namespace, or if the kernel has no such list.
func listKernelThreads() map[int]bool {
	const kthreadd = 2
	parent, err := readStat(kthreadd)
	if err != nil || !parent.kernel {
		return nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", kthreadd, kthreadd))
	if err != nil {
		return nil
	}
	found := make(map[int]bool)
	for word := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil {
			found[pid] = true
		}
	}
	return found
}

// readEnviron returns the environment of a process; nil if it has none, may not be read, or cannot
// be read in time. In the last case the reading goroutine ends when the kernel answers; until then
// that process is not read again.
func (l *procScanner) readEnviron(p procStat) []byte {
	id := processID{p.pid, p.start}
	if !l.mayReadEnviron(id) {
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
	late := time.NewTimer(environTimeout)
	defer late.Stop()
	select {
	case text := <-answer:
		return text
	case <-late.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hungReads[id] = answer
	return nil
}

// mayReadEnviron reports whether the environment of a process may be read now.
func (l *procScanner) mayReadEnviron(id processID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.hungReads, func(_ processID, answer chan []byte) bool { return len(answer) > 0 })
	_, hangs := l.hungReads[id]
	return !hangs && len(l.hungReads) < l.maxHung
}
