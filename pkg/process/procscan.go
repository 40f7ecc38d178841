package process

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// memoryReadTimeout bounds the read of one process's environment or command line. The kernel takes
	// a lock of that process for it, which may be held for as long as a file system hangs.
	memoryReadTimeout = 250 * time.Millisecond
	// maxHungReads is the maximum number of reads of environments that may hang at the same time. Each
	// of them occupies a thread.
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

func newProcScanner(since uint64) *procScanner {
	return &procScanner{
		startTime: since, maxHung: maxHungReads,
		excluded: make(map[int]dirIdentity), hungReads: make(map[processID]chan []byte),
	}
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
		was, known := before[pid]
		if at.inode != 0 && known && was == at {
			l.excluded[pid] = at
			continue
		}
		// Processes that end during the scan, and hidden ones, are no errors.
		p, err := readStat(pid)
		switch {
		case err == nil && (p.kernel || p.start < l.startTime):
			l.excluded[pid] = at
		case err == nil:
			p.readMarks = sync.OnceValue(func() []string { return marksOf(l.readEnviron(p), readMarkLimit(p.pid)) })
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
	late := time.NewTimer(memoryReadTimeout)
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

func (l *procScanner) mayReadEnviron(id processID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.hungReads, func(_ processID, answer chan []byte) bool { return len(answer) > 0 })
	_, hangs := l.hungReads[id]
	return !hangs && len(l.hungReads) < l.maxHung
}

// ticksPerSecond is the unit of times in /proc (USER_HZ): 100 on all architectures that Go
// supports.
const ticksPerSecond = 100

// kernelThread is PF_KTHREAD in the flags of /proc/PID/stat.
const kernelThread = 0x00200000

// procStat is one process as seen by one read of /proc.
type procStat struct {
	pid, ppid, pgid, sid int
	start                uint64 // ticks since boot; with pid, the identity of the process
	name                 string
	state                byte
	dead                 bool // a zombie without running threads: nothing is left to kill
	kernel               bool
	// ticks of processor time: its own, and that of children it has reaped
	cpuTicks, reapedCPUTicks uint64
	marks                    []string        // marks in its environment, if it has been read
	readMarks                func() []string // reads marks, once for all users of the same scan
}

func (p procStat) String() string {
	return fmt.Sprintf("pid %d (%s, state %c)", p.pid, p.name, p.state)
}

// bootTicks returns the present time on the clock of procStat.start.
func bootTicks() uint64 {
	var now unix.Timespec
	// ClockGettime fails only for unknown clocks, and all kernels that Go supports have this one.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return uint64(now.Nano()) / uint64(time.Second/ticksPerSecond)
}

// parseStat parses the content of /proc/PID/stat. It is called for each process of a node, so it
// allocates nothing but the name.
func parseStat(text []byte) (procStat, error) {
	// The name may contain blanks and parentheses: it ends at the last closing one.
	open, shut := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 1 || shut < open {
		return procStat{}, fmt.Errorf("cannot read %q as /proc/PID/stat: no name in brackets", string(text))
	}
	const wanted = 20
	var numbers [wanted]int64
	var state byte
	found := 0
	for field := range bytes.FieldsSeq(text[shut+1:]) {
		switch found {
		case 0:
			state = field[0]
		case 1, 2, 3, 6, 11, 12, 13, 14, 17, 19:
			// The numbers are signed: process group and session are -1 while a process is being reaped.
			n, err := strconv.ParseInt(string(field), 10, 64)
			if err != nil {
				return procStat{}, fmt.Errorf("cannot read field %d of /proc/PID/stat: %v", found+3, err)
			}
			numbers[found] = n
		}
		if found++; found == wanted {
			break
		}
	}
	if found < wanted {
		return procStat{}, fmt.Errorf("cannot read %q as /proc/PID/stat: %d fields after the name, "+
			"at least %d expected", string(text), found, wanted)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:open])))
	if err != nil {
		return procStat{}, fmt.Errorf("cannot read the pid in /proc/PID/stat: %v", err)
	}
	return procStat{
		pid:   pid,
		ppid:  int(numbers[1]),
		pgid:  int(numbers[2]),
		sid:   int(numbers[3]),
		start: uint64(numbers[19]),
		name:  string(text[open+1 : shut]),
		state: state,
		// After the end of its main thread, a process is shown as a zombie while other threads run.
		dead:           (state == 'Z' || state == 'X') && numbers[17] <= 1,
		kernel:         numbers[6]&kernelThread != 0,
		cpuTicks:       uint64(numbers[11] + numbers[12]),
		reapedCPUTicks: uint64(numbers[13] + numbers[14]),
	}, nil
}

// readStat inspects one process. The error is os.ErrNotExist if it does not exist.
func readStat(pid int) (procStat, error) {
	// Plain system calls: os.ReadFile makes twice as many, and readStat is called for each process of
	// a node.
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return procStat{}, normalizeAbsent(err)
	}
	defer unix.Close(fd)
	var text [2048]byte
	n, err := unix.Read(fd, text[:])
	if err != nil {
		return procStat{}, normalizeAbsent(err)
	}
	return parseStat(text[:n])
}

// verifySelf inspects this process, pid, and verifies /proc (link is /proc/self). If /proc belongs
// to another PID namespace, it shows other processes under PIDs that cannot be used to signal them.
func verifySelf(link string, pid int) (procStat, error) {
	number, err := os.Readlink(link)
	if err != nil {
		return procStat{}, err
	}
	if number != strconv.Itoa(pid) {
		return procStat{}, fmt.Errorf("%s reports this process as %s, but it is process %d: "+
			"mount a proc file system inside", link, number, pid)
	}
	return readStat(pid)
}

// normalizeAbsent converts ESRCH to os.ErrNotExist: /proc reports a missing process by either
// error.
func normalizeAbsent(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return os.ErrNotExist
	}
	return err
}
