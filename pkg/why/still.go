package why

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

	"github.com/bringupd/bringupd/pkg/pause"
)

// clocks are those of the processors by which the kernel tells when a thread last ran. They differ by minutes, since time
// that the machine's host or interrupts have taken does not count.
type clocks struct {
	root procfs

	mu     sync.Mutex
	behind map[int]behind // by processor; guarded by mu
}

// behind is how far a processor's clock is behind ours.
type behind struct {
	by  time.Duration
	err error // it is not known
}

func newClocks(root procfs) *clocks {
	return &clocks{root: root, behind: make(map[int]behind)}
}

// still is for how long a thread has not run; 0 where the kernel does not tell.
func (c *clocks) still(ctx context.Context, task string) time.Duration {
	sched, err := c.root.read(ctx, task, "sched")
	stat, bad := c.root.read(ctx, task, "stat")
	if err != nil || bad != nil {
		return 0
	}
	behind := c.of(ctx, processorIn(stat))
	if behind.err != nil {
		return 0
	}
	return max(0, time.Since(epoch)-behind.by-lastRun(sched))
}

// epoch is what our own clock counts from.
var epoch = time.Now()

// of returns how far a processor's clock is behind ours. To read it we run there for a moment, on a thread that ends with
// it: where somebody keeps the processor for himself that may never be.
func (c *clocks) of(ctx context.Context, processor int) behind {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, known := c.behind[processor]
	if !known {
		is.by, is.err = pause.Bounded(ctx, lookLag, func() (time.Duration, error) { return c.runOn(processor) })
		c.behind[processor] = is
	}
	return is
}

// runOn runs on a processor, and returns how far its clock is behind ours.
func (c *clocks) runOn(processor int) (time.Duration, error) {
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(processor)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join(string(c.root), "self", "task", strconv.Itoa(unix.Gettid()), "sched"))
	at := lastRun(string(text))
	if err == nil && at == 0 {
		err = errors.New("the kernel does not tell when a thread last ran")
	}
	return time.Since(epoch) - at, err
}

// processorIn is the processor that a thread ran on last, in the text of its file stat; -1 where it is not told.
func processorIn(text string) int {
	const field = 36 // behind the name
	_, rest, _ := strings.Cut(text[strings.LastIndexByte(text, ')')+1:], " ")
	if fields := strings.Fields(rest); len(fields) > field {
		if processor, err := strconv.Atoi(fields[field]); err == nil {
			return processor
		}
	}
	return -1
}

// lastRun is when a thread was on its processor last, in the text of its file sched; 0 where it is not told.
func lastRun(text string) time.Duration {
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "se.exec_start" {
			millis, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return time.Duration(millis * float64(time.Millisecond))
		}
	}
	return 0
}
