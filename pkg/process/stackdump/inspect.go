package stackdump

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

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
	Tracer  int     `json:"tracer,omitempty"` // process that traces this one
	Threads int     `json:"threads,omitempty"`
	Cores   float64 `json:"cores"` // average number of cores used during the measurement
	// approximate seconds since it last ran on a processor; 0 if it has just run or if unknown
	StillS  float64 `json:"still_s,omitempty"`
	Problem string  `json:"problem,omitempty"` // why part of the state could not be read
}

// States that need special treatment.
const (
	stateRunning = "R"
	stateStuck   = "D" // uninterruptible: waits for a disk, a network file system or a driver
	stateStopped = "T"
	stateTraced  = "t"
	stateZombie  = "Z"
)

// procfs is the path of /proc.
type procfs string

// inspector inspects processes.
type inspector struct {
	procfs
	clocks *cpuClocks
}

func newInspector(root procfs) inspector { return inspector{root, newCPUClocks(root)} }

const (
	// procReadLag is how long reading a file of /proc may take beyond the deadline of its context.
	procReadLag = 50 * time.Millisecond
	// maxThreads is the maximum number of threads of a process that are inspected.
	maxThreads = 256
	// minStuckTime is how long a thread must not have run until its D state counts: every disk access
	// causes that state for a moment.
	minStuckTime = time.Second
)

// readFile returns the contents of a file of /proc. It gives up at the deadline of ctx, because
// reading can hang if the process hangs.
func (root procfs) readFile(ctx context.Context, path ...string) (string, error) {
	name := filepath.Join(append([]string{string(root)}, path...)...)
	text, err := ctxutil.CallBounded(ctx, procReadLag, func() ([]byte, error) { return os.ReadFile(name) })
	if errors.Is(err, ctxutil.ErrAbandoned) {
		err = errors.New(name + " hangs")
	}
	return strings.TrimRight(string(text), "\n"), err
}

// inspectProcess inspects a process. It shows the first thread, or a thread that is stuck if there
// is one.
func (root inspector) inspectProcess(ctx context.Context, pid int) Process {
	number := strconv.Itoa(pid)
	// Select the thread.
	p := Process{PID: pid}
	task := filepath.Join(number, "task", number)
	p.Name, p.State = root.readStat(ctx, task)
	threads, _ := ctxutil.CallBounded(ctx, procReadLag, func() ([]os.DirEntry, error) { return os.ReadDir(filepath.Join(string(root.procfs), number, "task")) })
	if p.Threads = len(threads); p.State != stateStopped && p.State != stateTraced {
		if thread := root.stuckThread(ctx, number, threads); thread != "" && thread != number {
			task, p.State = filepath.Join(number, "task", thread), stateStuck
			p.Thread, _ = strconv.Atoi(thread)
		}
	}
	// Determine what the thread waits for.
	p.StillS = root.clocks.timeSinceRun(ctx, task).Seconds()
	p.Wchan, _ = root.readFile(ctx, task, "wchan")
	if p.Wchan == "0" {
		p.Wchan = ""
	}
	var file int64
	var err error
	p.Call, file, err = root.readCall(ctx, task)
	if err != nil {
		p.Problem = err.Error()
		p.Call = kernelWaits[p.Wchan]
	}
	if p.Call == callRestart {
		p.Call = cmp.Or(kernelWaits[p.Wchan], p.Call)
	}
	if file >= 0 {
		p.On = root.describeFile(ctx, number, file)
	}
	if p.State == stateTraced {
		p.Tracer = root.readTracer(ctx, number)
	}
	return p
}

// readStat returns the name and the state of a thread.
func (root procfs) readStat(ctx context.Context, task string) (name, state string) {
	text, err := root.readFile(ctx, task, "stat")
	open, shut := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if err != nil || open < 0 || shut < open || len(text) < shut+3 {
		return "", ""
	}
	return text[open+1 : shut], text[shut+2 : shut+3]
}

// stuckThread returns a thread that has been in D state for at least minStuckTime, or an empty
// string.
func (root inspector) stuckThread(ctx context.Context, number string, threads []os.DirEntry) string {
	for _, thread := range threads[:min(len(threads), maxThreads)] {
		task := filepath.Join(number, "task", thread.Name())
		if _, state := root.readStat(ctx, task); state == stateStuck && root.clocks.timeSinceRun(ctx, task) >= minStuckTime {
			return thread.Name()
		}
	}
	return ""
}

// readCall returns the system call in which a thread is, and its file descriptor, or -1 if it has
// none.
func (root procfs) readCall(ctx context.Context, task string) (name string, file int64, err error) {
	text, err := root.readFile(ctx, task, "syscall")
	if err != nil {
		return "", -1, err
	}
	name, file = parseCall(text)
	return name, file, nil
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
	known, found := sysCalls[number]
	if !found {
		return "system call " + fields[0], -1
	}
	file, err = strconv.ParseInt(strings.TrimPrefix(fields[1], "0x"), 16, 64)
	if err != nil || !known.hasFile {
		file = -1
	}
	return known.name, file
}

// readTracer returns the process that traces a process, or 0 if there is none.
func (root procfs) readTracer(ctx context.Context, number string) (pid int) {
	text, _ := root.readFile(ctx, number, "status")
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, "TracerPid:"); found {
			pid, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return pid
}

// describeFile describes an open file of a process.
func (root procfs) describeFile(ctx context.Context, number string, file int64) string {
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

// describePeer describes the other end of a socket.
func (root procfs) describePeer(ctx context.Context, number, inode string) string {
	for _, kind := range []string{"tcp", "tcp6", "udp", "udp6", "unix"} {
		text, err := root.readFile(ctx, number, "net", kind)
		if err != nil {
			continue
		}
		if words := findSocket(text, kind, inode); words != "" {
			return words
		}
	}
	return "a socket"
}

// findSocket searches a file of /proc/net for a socket, and describes the socket.
func findSocket(text, kind, inode string) string {
	const inetInode, unixInode, unixPath = 9, 6, 7
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if kind == "unix" {
			if len(fields) > unixInode && fields[unixInode] == inode {
				return strings.TrimSpace("a unix socket " + strings.Join(fields[unixPath:], " "))
			}
			continue
		}
		if len(fields) <= inetInode || fields[inetInode] != inode {
			continue
		}
		local, remote := formatAddress(fields[1]), formatAddress(fields[2])
		// State 0A is LISTEN, state 02 is SYN_SENT.
		switch state := fields[3]; {
		case state == "0A":
			return kind[:3] + " connections to " + local
		case state == "02":
			return remote + ", which has not answered yet"
		case strings.HasSuffix(remote, ":0"):
			return kind[:3] + " port " + local
		default:
			return remote
		}
	}
	return ""
}

// formatAddress formats an address of /proc/net: 0100007F:7529 is 127.0.0.1:29993.
func formatAddress(text string) string {
	host, port, _ := strings.Cut(text, ":")
	number, err := strconv.ParseUint(port, 16, 16)
	raw := make([]byte, 0, 16)
	for word := range slices.Chunk([]byte(host), 8) {
		value, bad := strconv.ParseUint(string(word), 16, 32)
		if bad != nil || len(word) != 8 {
			return text
		}
		raw = binary.NativeEndian.AppendUint32(raw, uint32(value))
	}
	ip, ok := netip.AddrFromSlice(raw)
	if err != nil || !ok {
		return text
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(number)).String()
}
