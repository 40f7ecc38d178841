package stackdump

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// Process is the state of one process, shown by one of its threads.
type Process struct {
	PID     int     `json:"pid"`
	Thread  int     `json:"thread,omitempty"` // the thread that is shown, if it is not the first
	Name    string  `json:"name"`
	State   string  `json:"state"`          // a letter, as printed by ps
	Call    string  `json:"call,omitempty"` // system call in which the thread is, or its number
	On      string  `json:"on,omitempty"`   // file or peer that is the subject of the system call
	Wchan   string  `json:"wchan,omitempty"`
	Cores   float64 `json:"cores"`             // average number of cores used during the measurement
	Problem string  `json:"problem,omitempty"` // why part of the state could not be read

	parent  int
	isStuck bool // the thread waits uninterruptibly and has not run since [procRoot.waitingThreads]
}

// States that need special treatment.
const (
	stateRunning = "R"
	stateStuck   = "D" // uninterruptible: waits for a disk, a network file system or a driver
	stateStopped = "T"
	stateTraced  = "t"
	stateZombie  = "Z"
)

// procRoot is the path of /proc.
type procRoot string

const (
	// procReadLag is how long reading a file of /proc may take beyond the deadline of its context.
	procReadLag = 50 * time.Millisecond
	// maxThreads is the maximum number of threads of a process that are inspected.
	maxThreads = 256
)

// readFile returns the contents of a file of /proc. It gives up at the deadline of ctx, because
// reading can hang if the process hangs.
func (root procRoot) readFile(ctx context.Context, path ...string) (string, error) {
	name := filepath.Join(append([]string{string(root)}, path...)...)
	text, err := ctxutil.CallBounded(ctx, procReadLag, func() ([]byte, error) { return os.ReadFile(name) })
	if errors.Is(err, ctxutil.ErrAbandoned) {
		err = errors.New(name + " hangs")
	}
	return strings.TrimRight(string(text), "\n"), err
}

// inspectProcess inspects a process. It shows the first thread, or a thread that is stuck if there
// is one: waiting holds the threads that waited uninterruptibly before.
func (root procRoot) inspectProcess(ctx context.Context, pid int, waiting map[string]string) (p Process) {
	number := strconv.Itoa(pid)
	// Select the thread.
	p.PID = pid
	task := filepath.Join(number, "task", number)
	p.Name, p.State = root.readStat(ctx, task)
	if p.State != stateStopped && p.State != stateTraced {
		for _, task = range append(root.listThreads(ctx, number), task) {
			if before, waited := waiting[task]; waited && root.runsOf(ctx, task) == before {
				p.isStuck, p.State = true, stateStuck
				break
			}
		}
		if thread := filepath.Base(task); thread != number {
			p.Thread, _ = strconv.Atoi(thread)
		}
	}
	// Determine what the thread waits for.
	p.Wchan, _ = root.readFile(ctx, task, "wchan")
	if p.Wchan == "0" {
		p.Wchan = ""
	}
	file := int64(-1)
	text, err := root.readFile(ctx, task, "syscall")
	if err == nil {
		p.Call, file = parseCall(text)
	} else {
		p.Problem = err.Error()
		p.Call = kernelWaits[p.Wchan]
	}
	if p.Call == callRestart {
		p.Call = cmp.Or(kernelWaits[p.Wchan], p.Call)
	}
	if file >= 0 {
		p.On = root.describeFile(ctx, number, file)
	}
	return p
}

// listThreads returns the paths of the threads of a process, below /proc, but at most maxThreads.
func (root procRoot) listThreads(ctx context.Context, number string) (tasks []string) {
	dir := filepath.Join(number, "task")
	entries, _ := ctxutil.CallBounded(ctx, procReadLag, func() ([]os.DirEntry, error) {
		return os.ReadDir(filepath.Join(string(root), dir))
	})
	for _, entry := range entries[:min(len(entries), maxThreads)] {
		tasks = append(tasks, filepath.Join(dir, entry.Name()))
	}
	return tasks
}

// waitingThreads returns the threads of a process that wait uninterruptibly, with their use of
// processors. A thread that still waits later, and has not run meanwhile, is stuck: every access to
// a disk causes the state for a moment.
func (root procRoot) waitingThreads(ctx context.Context, pid int) map[string]string {
	waiting := make(map[string]string)
	for _, task := range root.listThreads(ctx, strconv.Itoa(pid)) {
		if runs := root.runsOf(ctx, task); runs != "" {
			waiting[task] = runs
		}
	}
	return waiting
}

// runsOf returns a text that changes when a thread runs on a processor; empty if the thread does not
// wait uninterruptibly.
func (root procRoot) runsOf(ctx context.Context, task string) string {
	if _, state := root.readStat(ctx, task); state != stateStuck {
		return ""
	}
	text, _ := root.readFile(ctx, task, "schedstat") // a kernel without it has no better evidence
	return "runs: " + text
}

func (root procRoot) readStat(ctx context.Context, task string) (name, state string) {
	text, err := root.readFile(ctx, task, "stat")
	open, shut := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if err != nil || open < 0 || shut < open || len(text) < shut+3 {
		return "", ""
	}
	return text[open+1 : shut], text[shut+2 : shut+3]
}

// parseCall parses /proc/PID/task/TID/syscall. A running thread is in no system call.
func parseCall(text string) (name string, file int64) {
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return "", -1
	}
	number, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || number < 0 {
		return "", -1
	}
	if name, found := otherCalls[number]; found {
		return name, -1
	}
	name, found := fileCalls[number]
	if !found {
		return "system call " + fields[0], -1
	}
	if file, err = strconv.ParseInt(strings.TrimPrefix(fields[1], "0x"), 16, 64); err != nil {
		file = -1
	}
	return name, file
}

func (root procRoot) describeFile(ctx context.Context, number string, file int64) string {
	path := filepath.Join(string(root), number, "fd", strconv.FormatInt(file, 10))
	target, err := ctxutil.CallBounded(ctx, procReadLag, func() (string, error) { return os.Readlink(path) })
	if err != nil {
		return ""
	}
	kind, inode, bracket := strings.Cut(strings.TrimSuffix(target, "]"), ":[")
	switch {
	case bracket && kind == "socket":
		return root.describePeer(ctx, number, inode)
	case bracket && kind == "pipe":
		return "a pipe"
	case strings.HasPrefix(target, "anon_inode:"):
		return strings.Trim(strings.TrimPrefix(target, "anon_inode:"), "[]")
	}
	return target
}

func (root procRoot) describePeer(ctx context.Context, number, inode string) string {
	wanted, _ := strconv.ParseUint(inode, 10, 64) // no socket has 0
	text, _ := ctxutil.CallBounded(ctx, procReadLag, func() (string, error) {
		return findSocket(filepath.Join(string(root), number), wanted), nil
	})
	return cmp.Or(text, "a socket")
}

// States of a TCP socket.
const (
	tcpSynSent = 0x02
	tcpListen  = 0x0A
)

// findSocket describes a TCP socket of the network namespace of a process, whose directory is dir. It
// returns an empty string if there is none. A table that cannot be read counts as empty.
func findSocket(dir string, inode uint64) string {
	namespace, err := procfs.NewFS(dir)
	if err != nil {
		return ""
	}
	tcp4, _ := namespace.NetTCP()  //nolint:staticcheck // netlink shows this process's own namespace
	tcp6, _ := namespace.NetTCP6() //nolint:staticcheck // as above
	for _, line := range slices.Concat(tcp4, tcp6) {
		remote := net.JoinHostPort(line.RemAddr.String(), fmt.Sprint(line.RemPort))
		switch {
		case line.Inode != inode:
			continue
		case line.St == tcpListen:
			return "connections to " + net.JoinHostPort(line.LocalAddr.String(), fmt.Sprint(line.LocalPort))
		case line.St == tcpSynSent:
			return remote + ", which has not answered yet"
		}
		return remote
	}
	return ""
}
