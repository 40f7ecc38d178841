package peerlink

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// benchBeat is the heartbeat interval of the benchmarks. Their workers run in a separate process,
// so that their cost is not counted. One of them answers for all: worker 1 sends a notification
// back when the last worker has received one.
const benchBeat = 1250 * time.Millisecond

func benchConfig(size int) Config {
	return Config{Key: testKey, Nodes: size, HeartbeatInterval: benchBeat}
}

// BenchmarkHead connects many workers and notifies them all, b.N times. It reports the head's costs
// while it is idle: memory per worker, without the kernel's, and CPU time.
func BenchmarkHead(b *testing.B) {
	for _, workers := range []int{64, 1024, 4096} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) { benchHead(b, workers) })
	}
}

func benchHead(b *testing.B, workers int) {
	listener, err := TCP{}.Listen()
	if err != nil {
		b.Fatal(err)
	}
	seen := &benchPeers{answers: make(chan struct{}, 1)}
	before := inUse()
	h := NewHead(benchConfig(workers+1), listener, seen)
	stop := run(b, h.Run)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	many := startHelper(b, fmt.Sprintf("workers %d 127.0.0.1:%s", workers, port))
	begin := time.Now()
	until(b, "all are connected", func() bool { return seen.connected.Load() == int64(workers) })
	connecting := time.Since(begin)

	begin, used, heard := time.Now(), cpuTime(), seen.heard.Load()
	<-time.After(4 * benchBeat)
	took, used, heard := time.Since(begin), cpuTime()-used, seen.heard.Load()-heard
	memory := inUse() - before

	for b.Loop() {
		h.NotifyWorkers()
		<-seen.answers
	}
	if gone := seen.gone.Load(); gone > 0 {
		b.Errorf("%d were lost", gone)
	}
	b.ReportMetric(float64(connecting.Milliseconds()), "ms-to-connect")
	b.ReportMetric(100*float64(used)/float64(took), "cpu-%")
	b.ReportMetric(float64(heard)/took.Seconds(), "beats/s")
	b.ReportMetric(float64(memory)/float64(workers), "B/worker")
	many.kill()
	stop()
}

// BenchmarkLinks makes all links of a job, with both ends in this process. For each link it reports
// the memory of both ends (heap and stacks, without the kernel's) once they are idle, and the CPU
// time that both ends needed to connect.
func BenchmarkLinks(b *testing.B) {
	for _, workers := range []int{64, 1024, 4096} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) {
			for b.Loop() {
				benchLinks(b, workers)
			}
		})
	}
}

func benchLinks(b *testing.B, workers int) {
	listener, err := TCP{}.Listen()
	if err != nil {
		b.Fatal(err)
	}
	seen := &benchPeers{answers: make(chan struct{}, 1)}
	before, used := inUse(), cpuTime()
	stops := []func(){run(b, NewHead(benchConfig(workers+1), listener, seen).Run)}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	begin := time.Now()
	for node := 1; node <= workers; node++ {
		w := NewWorker(benchConfig(workers+1), node, TCP{}, []string{"127.0.0.1:" + port}, &benchHeadPeer{}, well)
		stops = append(stops, run(b, w.Run))
	}
	until(b, "all are connected", func() bool { return seen.connected.Load() == int64(workers) })
	took, used := time.Since(begin), cpuTime()-used
	<-time.After(2 * benchBeat)
	b.ReportMetric(float64(inUse()-before)/float64(workers), "B/link")
	b.ReportMetric(float64(took.Milliseconds()), "ms-to-connect")
	b.ReportMetric(float64(used.Microseconds())/float64(workers), "cpu-µs/link")
	for _, stop := range stops {
		stop()
	}
}

// inUse returns the memory in use by the heap and the stacks.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second one shrinks stacks that the first has found to be large
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type benchPeers struct {
	connected, heard, gone atomic.Int64
	answers                chan struct{}
}

func (p *benchPeers) WorkerConnected(int)         { p.connected.Add(1) }
func (p *benchPeers) WorkerHeartbeat(int, bool)   { p.heard.Add(1) }
func (p *benchPeers) WorkerNotified(int)          { p.answers <- struct{}{} }
func (p *benchPeers) WorkerExit(int)              {}
func (p *benchPeers) WorkerGone(int, CloseReason) { p.gone.Add(1) }

// helpMany simulates all the workers: "workers 4096 127.0.0.1:1234".
func helpMany(ctx context.Context, what string) int {
	fields := strings.Fields(what)
	size, err := strconv.Atoi(fields[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	many := &benchHeadPeer{size: int64(size)}
	var tasks sync.WaitGroup
	for node := 1; node <= size; node++ {
		w := NewWorker(benchConfig(size+1), node, TCP{}, fields[2:], many, well)
		if node == 1 {
			many.first = w
		}
		tasks.Go(func() { w.Run(ctx) })
	}
	tasks.Wait()
	return 0
}

type benchHeadPeer struct {
	size   int64
	nudged atomic.Int64
	first  *Worker
}

func (p *benchHeadPeer) HeadConnected()         {}
func (p *benchHeadPeer) HeadGone(CloseReason)   {}
func (p *benchHeadPeer) DuplicateDaemon(string) {}
func (p *benchHeadPeer) HeadHeartbeat(nudge bool) {
	if nudge && p.nudged.Add(1)%p.size == 0 {
		p.first.NotifyHead()
	}
}

// untilInputEnds returns a context that ends with the standard input.
func untilInputEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString(0)
		cancel()
	}()
	return ctx
}
