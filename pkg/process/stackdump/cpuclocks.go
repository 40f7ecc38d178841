package stackdump

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// cpuClocks measures the offsets of the processors' clocks, on which the kernel bases the time at
// which a thread last ran. These clocks differ by minutes, because they exclude time consumed by
// the virtual machine's host and by interrupts.
type cpuClocks struct {
	root procfs

	mu     sync.Mutex
	delays map[int]clockDelay // delays by processor; guarded by mu
}

// clockDelay is the delay of a processor's clock relative to this process's clock.
type clockDelay struct {
	delay time.Duration
	err   error // why the delay is unknown
}

func newCPUClocks(root procfs) *cpuClocks {
	return &cpuClocks{root: root, delays: make(map[int]clockDelay)}
}

// timeSinceRun returns how long a thread has not run, or 0 if unknown.
func (c *cpuClocks) timeSinceRun(ctx context.Context, task string) time.Duration {
	sched, err := c.root.readFile(ctx, task, "sched")
	stat, bad := c.root.readFile(ctx, task, "stat")
	if err != nil || bad != nil {
		return 0
	}
	behind := c.delayOf(ctx, parseProcessor(stat))
	if behind.err != nil {
		return 0
	}
	return max(0, time.Since(clockZero)-behind.delay-parseLastRun(sched))
}

// clockZero is the zero of this process's clock.
var clockZero = time.Now()

// delayOf returns the delay of a processor's clock. To measure it, a temporary thread must run on
// that processor. If a real-time process occupies the processor, the thread may never run; the
// measurement then fails after a timeout. of caches results and failures.
func (c *cpuClocks) delayOf(ctx context.Context, processor int) clockDelay {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, known := c.delays[processor]
	if !known {
		is.delay, is.err = ctxutil.CallBounded(ctx, procReadLag, func() (time.Duration, error) { return c.measureDelay(processor) })
		c.delays[processor] = is
	}
	return is
}

// measureDelay runs the calling thread on a processor, and returns the delay of its clock. The
// thread stays locked to the goroutine, so that it ends with the goroutine.
func (c *cpuClocks) measureDelay(processor int) (time.Duration, error) {
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(processor)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join(string(c.root), "self", "task", strconv.Itoa(unix.Gettid()), "sched"))
	at := parseLastRun(string(text))
	if err == nil && at == 0 {
		err = errors.New("the kernel does not report when a thread last ran")
	}
	return time.Since(clockZero) - at, err
}

// parseProcessor returns the processor on which a thread last ran, from /proc/PID/task/TID/stat, or
// -1 if unknown.
func parseProcessor(text string) int {
	const field = 36 // index counted from the state, which follows the name
	_, rest, _ := strings.Cut(text[strings.LastIndexByte(text, ')')+1:], " ")
	if fields := strings.Fields(rest); len(fields) > field {
		if processor, err := strconv.Atoi(fields[field]); err == nil {
			return processor
		}
	}
	return -1
}

// parseLastRun returns the time at which a thread was last on its processor, from
// /proc/PID/task/TID/sched, or 0 if unknown.
func parseLastRun(text string) time.Duration {
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "se.exec_start" {
			millis, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return time.Duration(millis * float64(time.Millisecond))
		}
	}
	return 0
}
