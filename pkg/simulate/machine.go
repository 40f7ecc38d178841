package simulate

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// machineMonitor measures the resources of this machine that the daemons use.
type machineMonitor struct {
	start, gate usageReading // readings when the daemons start, and when the gate opens

	// The maximum values of all samples; read after sampling has ended.
	heap, goroutines int64
}

// usageReading has the time and the used processor time at one moment.
type usageReading struct {
	at           time.Time
	processTime  time.Duration // processor time of this process
	machineTicks cpuTicks      // time of all processes of the machine
}

// takeReading takes a reading.
func takeReading() usageReading { return usageReading{time.Now(), processorTime(), readTicks()} }

// sampleInterval is the interval at which the heap and the goroutines are sampled.
const sampleInterval = 20 * time.Millisecond

// startSampling frees unused memory, and samples the process until the returned function is called.
func (m *machineMonitor) startSampling() (stop func()) {
	debug.FreeOSMemory()
	// Reset the peak size, which may be that of an earlier run.
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	ctx, cancel := context.WithCancel(context.Background())
	var sampling sync.WaitGroup
	sampling.Go(func() { m.sampleUntilDone(ctx) })
	return sync.OnceFunc(func() {
		cancel()
		sampling.Wait()
	})
}

// sampleUntilDone samples the process until ctx ends.
func (m *machineMonitor) sampleUntilDone(ctx context.Context) {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	looks := time.NewTicker(sampleInterval)
	defer looks.Stop()
	for {
		metrics.Read(heap)
		m.heap = max(m.heap, int64(heap[0].Value.Uint64()))
		m.goroutines = max(m.goroutines, int64(runtime.NumGoroutine()))
		select {
		case <-ctx.Done():
			return
		case <-looks.C:
		}
	}
}

// machineUse returns the measurements. The sampling must have ended.
func (m *machineMonitor) machineUse() MachineUse {
	result := MachineUse{Memory: peakMemory(), Heap: m.heap, Goroutines: m.goroutines}
	if !m.gate.at.IsZero() {
		result.Processor = m.gate.processTime - m.start.processTime
		result.Busy = busyFraction(result.Processor, m.gate.at.Sub(m.start.at))
		result.Others = othersFraction(m.start.machineTicks, m.gate.machineTicks, result.Processor)
	}
	return result
}

// busyFraction returns a processor time as a fraction of what all cores offer in the given time.
func busyFraction(processor, took time.Duration) float64 {
	return processor.Seconds() / took.Seconds() / float64(runtime.GOMAXPROCS(0))
}

// cpuTicks is the time of all processors of the machine, in clock ticks.
type cpuTicks struct{ busy, all int64 }

// tickDuration is the unit of /proc/stat: USER_HZ, which is 100 on all platforms of Linux.
const tickDuration = time.Second / 100

// othersFraction returns the fraction of the machine's processor time that other processes used.
func othersFraction(before, after cpuTicks, own time.Duration) float64 {
	all := float64(after.all - before.all)
	if all <= 0 {
		return 0
	}
	return max(0, float64(after.busy-before.busy)-float64(own)/float64(tickDuration)) / all
}

// readTicks returns the processor time since the machine started; zero if the kernel does not
// report it.
func readTicks() cpuTicks {
	data, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(data), "\n")
	return parseTicks(line)
}

// parseTicks parses the first line of /proc/stat: cpu, user, nice, system, idle, iowait, irq,
// softirq, steal. The time of guests is already included in user and nice.
func parseTicks(line string) (t cpuTicks) {
	const idle, iowait, steal = 4, 5, 8
	for i, field := range strings.Fields(line) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil || i > steal {
			continue
		}
		t.all += n
		if i != idle && i != iowait {
			t.busy += n
		}
	}
	return t
}

// processorTime returns the processor time that this process has used on all cores.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// peakMemory returns the peak resident size of this process in bytes; 0 if the kernel does not
// report it.
func peakMemory() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "\nVmHWM:")
	size, _, _ := strings.Cut(rest, " kB")
	kilobytes, _ := strconv.ParseInt(strings.TrimSpace(size), 10, 64)
	return kilobytes << 10
}
