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
	// environWait bounds the look into one process's environment: the kernel takes a lock of that process for it, and
	// while a file system hangs that lock may be held for as long.
	environWait = 250 * time.Millisecond
	// mostHung is how many such looks may hang at the same time: each holds a thread.
	mostHung = 64
)

// looks are the looks at processes of one daemon. Its methods may be called from any goroutine.
type looks struct {
	since uint64 // when the daemon started, in boot ticks
	most  int    // into environments, that may hang

	looking sync.Mutex
	elders  map[int]entry // by pid, who can't be of a family; guarded by looking

	mu   sync.Mutex
	next *look                     // one that has not begun yet; nil where nobody waits for any; guarded by mu
	hung map[processID]chan []byte // the looks that do: where the answer will come, which nobody takes; guarded by mu
}

// entry identifies a process by its directory in /proc, without reading any file there. Another process with the same
// number has another inode. The same process may get a new one too, where the kernel wanted the memory (pid_revalidate in
// Linux's fs/proc/base.c); then it is looked at once more.
type entry struct {
	inode uint64
	made  unix.Timespec
}

// processID tells a process from all others, also from those that had its number.
type processID struct {
	pid   int
	start uint64
}

// newLooks returns the looks of a daemon that started at since.
func newLooks(since uint64) *looks {
	return &looks{since: since, most: mostHung, elders: make(map[int]entry), hung: make(map[processID]chan []byte)}
}

// look is one look at all processes, which all share who asked for it before it began.
type look struct {
	done chan struct{} // closed when the rest is known
	all  []procStat
	err  error
}

// all looks at every process that can belong to a family of the daemon's: a hundred children that end at once cost few
// looks more than one, for who asks while one is under way shares the next with all who do.
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

// look looks at every process that can belong to a family of the daemon's; looking is held. The kernel's threads, and those older than the
// daemon, can't: they are most of a node's processes, and once known cost one call each. Where /proc is mounted with
// hidepid, strangers are not seen. An error means that a process could not be looked at: the others are returned, and an
// empty result must not be taken for "nobody is there".
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
		var stat unix.Stat_t
		_ = unix.Fstatat(int(dir.Fd()), name, &stat, 0) // the look below tells why it fails
		at := entry{inode: stat.Ino, made: stat.Ctim}
		if was, known := before[pid]; known && was == at && at.inode != 0 {
			l.elders[pid] = at
			continue
		}
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

// environ returns a process's environment: nothing where it has none, we may not look, or the kernel does not answer in
// time. The goroutine that asks ends when the kernel answers; until then that process is not asked again.
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

// may reports whether a process is to be asked.
func (l *looks) may(id processID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.hung, func(_ processID, answer chan []byte) bool { return len(answer) > 0 })
	_, hangs := l.hung[id]
	return !hangs && len(l.hung) < l.most
}
