//go:build linux && cgo

package cuda

/*
#include <stdint.h>
#include <stdlib.h>

// What the calls take are whole numbers and pointers, at most six. On the machines that libcuda is for, 64-bit x86 and
// ARM, each has a register of its own, whatever its type, and one that is not asked for is not looked at.
static int call_words(void *f, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t g) {
	return ((int (*)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t))f)(a, b, c, d, e, g);
}

// A square of square blocks, without shared memory but the kernel's own.
static int call_launch(void *f, void *kernel, unsigned grid, unsigned block, void *stream, void **parameters) {
	return ((int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))f)(
		kernel, grid, grid, 1, block, block, 1, 0, stream, parameters, NULL);
}

// Where calls leave their answers, and what kernels are given: memory that Go does not move.
struct desk {
	uintptr_t word, more;
	char text[32];
	uint64_t first, second, third, right;
	uint32_t side;
	void *product[4], *check[3];
};

static struct desk *desk(void) {
	struct desk *d = calloc(1, sizeof *d);
	if (!d)
		abort();
	void *product[] = {&d->first, &d->second, &d->third, &d->side}, *check[] = {&d->third, &d->right, &d->side};
	for (int i = 0; i < 4; i++)
		d->product[i] = product[i];
	for (int i = 0; i < 3; i++)
		d->check[i] = check[i];
	return d;
}
*/
import "C"

import (
	_ "embed"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:embed product.ptx
var kernels string

// bench is where one GPU works: what was taken of it, and for it. Only its own thread uses it.
type bench struct {
	library
	at      int // ordinal
	device  C.int
	step    Step
	failed  *Failure
	desk    *C.struct_desk
	undo    []func() // gives back what was taken, the last first
	context uintptr
	stream  uintptr
	events  [2]uintptr
	chunk   uintptr // bytes that are copied at a time
	host    uintptr // as much pinned memory: the two matrices, and what does not matter
	out, in uintptr // as much of the GPU's: what goes out, the matrices, and what comes in, later their product
}

// crew are the benches, each with a thread of its own, and what is known of them.
type crew struct {
	*ledger
	benches []*bench
	jobs    []chan func()
}

// work begins with CUDA, and has all devices do one step after the other.
func work(path string, last windows, l *ledger) {
	lib, err := load(path)
	if err != nil {
		l.worked.Init, l.worked.Detail = ours(LibraryNotFound), err.Error()
		return
	}
	l.worked.Loaded = lib.file()
	if l.worked.Init = lib.call("cuInit", func(f unsafe.Pointer) C.int { return C.call_words(f, 0, 0, 0, 0, 0, 0) }); l.worked.Init.Code != 0 {
		return
	}
	count, _ := lib.number("cuDeviceGetCount").Get()
	c := &crew{ledger: l}
	for ordinal := range min(count, mostDevices) {
		device, handle := lib.device(ordinal)
		own := lib
		own.of = fmt.Sprintf(" of device %d", ordinal)
		b := &bench{library: own, at: ordinal, device: handle, step: StepBegin, desk: C.desk()}
		if handle == noHandle {
			b.check("cuDeviceGet", device.UUID.Why)
		}
		l.worked.GPUs = append(l.worked.GPUs, Effort{Device: device, Failed: b.failed})
		c.benches = append(c.benches, b)
		c.jobs = append(c.jobs, make(chan func()))
	}
	var threads sync.WaitGroup
	for i := range c.benches {
		threads.Go(func() {
			runtime.LockOSThread() // for good: the thread is bound to CPUs, and has a context of CUDA's
			for job := range c.jobs[i] {
				job()
			}
		})
	}
	c.run(last)
	for _, jobs := range c.jobs {
		close(jobs)
	}
	threads.Wait()
}

// run is the work itself.
func (c *crew) run(last windows) {
	both := factors()
	c.each(StepBegin, func(b *bench) func(*Effort) { return b.begin(both) })
	c.each(StepTo, func(b *bench) func(*Effort) {
		rate := b.copies(last.to, "cuMemcpyHtoDAsync_v2", b.out, b.host, b.chunk, b.stream)
		return func(e *Effort) { e.To = rate }
	})
	c.each(StepFrom, func(b *bench) func(*Effort) {
		rate := b.copies(last.from, "cuMemcpyDtoHAsync_v2", b.host, b.out, b.chunk, b.stream)
		return func(e *Effort) { e.From = rate }
	})
	c.peers(last.peers)
	c.each(StepProduct, func(b *bench) func(*Effort) { return b.products(last.products) })
	c.all(func(b *bench) {
		for _, undo := range slices.Backward(b.undo) {
			undo()
		}
		C.free(unsafe.Pointer(b.desk))
	})
}

// all has each bench do something, side by side, and waits for all.
func (c *crew) all(do func(b *bench)) {
	var doing sync.WaitGroup
	for i, b := range c.benches {
		doing.Add(1)
		c.jobs[i] <- func() {
			defer doing.Done()
			do(b)
		}
	}
	doing.Wait()
}

// each has all take a step whose work has not failed, and notes what they say of it.
func (c *crew) each(step Step, do func(b *bench) func(*Effort)) {
	c.all(func(b *bench) {
		if b.failed != nil {
			return
		}
		c.note(b.at, func(e *Effort) { e.Doing = step })
		b.step = step
		result := do(b)
		c.note(b.at, func(e *Effort) {
			if e.Doing = ""; b.failed != nil {
				e.Failed = b.failed
				return
			}
			result(e)
		})
	})
}

// well are the ordinals of those whose work has not failed.
func (c *crew) well() (at []int) {
	for _, b := range c.benches {
		if b.failed == nil {
			at = append(at, b.at)
		}
	}
	return at
}

// peers has each copy to each of the others for the same time.
func (c *crew) peers(last time.Duration) {
	all := c.well()
	plan := rounds(len(all))
	if len(plan) == 0 {
		return
	}
	why := make([]map[int]Answer, len(c.benches)) // of each, by peer
	c.each(StepPeers, func(b *bench) func(*Effort) {
		why[b.at] = make(map[int]Answer)
		for _, peer := range all {
			if peer != b.at {
				why[b.at][peer] = b.words("cuCtxEnablePeerAccess", c.benches[peer].context, 0)
			}
		}
		return func(*Effort) {}
	})
	for _, partners := range plan {
		well := c.well()
		c.each(StepPeers, func(b *bench) func(*Effort) {
			to := all[partners[slices.Index(all, b.at)]]
			if to == b.at || !slices.Contains(well, to) {
				return func(*Effort) {}
			}
			peer := c.benches[to]
			rate := b.copies(last/time.Duration(len(plan)), "cuMemcpyPeerAsync", peer.in, peer.context, b.out, b.context, b.chunk, b.stream)
			return func(e *Effort) { e.Peers = append(e.Peers, Reach{Peer: to, Rate: *rate, Why: why[b.at][to]}) }
		})
	}
}

// words calls a function of at most six words.
func (b *bench) words(function string, words ...uintptr) Answer {
	var w [6]C.uintptr_t
	for i, word := range words {
		w[i] = C.uintptr_t(word)
	}
	return b.call(function, func(f unsafe.Pointer) C.int { return C.call_words(f, w[0], w[1], w[2], w[3], w[4], w[5]) })
}

// do calls a function, unless another has failed, and tells whether all is well.
func (b *bench) do(function string, words ...uintptr) bool {
	if b.failed == nil {
		b.check(function, b.words(function, words...))
	}
	return b.failed == nil
}

func (b *bench) check(function string, answer Answer) {
	if answer.Code != 0 {
		b.failed = &Failure{Step: b.step, Function: function, Answer: answer}
	}
}

// take calls a function that leaves a word, and has another give that back at the end. It returns 0 where one has failed.
func (b *bench) take(function, back string, words ...uintptr) uintptr {
	if !b.do(function, append([]uintptr{b.word()}, words...)...) {
		return 0
	}
	word := uintptr(b.desk.word)
	if back != "" {
		b.undo = append(b.undo, func() { b.words(back, word) })
	}
	return word
}

// word is where a call leaves one.
func (b *bench) word() uintptr { return uintptr(unsafe.Pointer(&b.desk.word)) }

// blockingSync is CU_EVENT_BLOCKING_SYNC of cuda.h: a thread that waits for the event sleeps, and keeps no CPU busy.
const blockingSync = 1

// begin takes all that is needed for the work, and puts the matrices into the host's memory.
func (b *bench) begin(both []float32) func(*Effort) {
	b.settle()
	device := uintptr(b.device)
	release := "cuDevicePrimaryCtxRelease_v2" // CUDA 11.0
	if b.lookup(release) == nil {
		release = "cuDevicePrimaryCtxRelease"
	}
	if b.context = b.take("cuDevicePrimaryCtxRetain", "", device); b.failed == nil {
		b.undo = append(b.undo, func() { b.words(release, device) })
	}
	b.do("cuCtxSetCurrent", b.context)
	b.do("cuMemGetInfo_v2", b.word(), uintptr(unsafe.Pointer(&b.desk.more)))
	for b.chunk = mostChunk; b.chunk > leastChunk && spare*2*b.chunk > uintptr(b.desk.word); {
		b.chunk /= 2
	}
	b.stream = b.take("cuStreamCreate", "cuStreamDestroy_v2", 0)
	for i := range b.events {
		b.events[i] = b.take("cuEventCreate", "cuEventDestroy_v2", blockingSync)
	}
	b.host = b.take("cuMemHostAlloc", "cuMemFreeHost", b.chunk, 0)
	b.out = b.take("cuMemAlloc_v2", "cuMemFree_v2", b.chunk)
	b.in = b.take("cuMemAlloc_v2", "cuMemFree_v2", b.chunk)
	if b.failed == nil {
		copy(unsafe.Slice((*float32)(pointer(b.host)), len(both)), both)
	}
	return func(*Effort) {}
}

// settle binds this thread to the CPUs near the GPU, if the kernel tells which, so that the pinned memory is near it too:
// across two sockets all copies are slower, and nothing is wrong with the GPU.
func (b *bench) settle() {
	text := &b.desk.text // 0000:3B:00.0
	answer := b.words("cuDeviceGetPCIBusId", uintptr(unsafe.Pointer(text)), uintptr(len(text)), uintptr(b.device))
	cpus, ok := near("/", strings.ToLower(C.GoString(&text[0])))
	if answer.Code == 0 && ok {
		_ = unix.SchedSetaffinity(0, &cpus) // it fails where a cgroup gives us none of them: then they are what they are
	}
}

// pace has the GPU do something again and again for that long, by its own clock, and returns how often it has done so and
// how long that took. Before that it does it once, which may take longer.
func (b *bench) pace(least time.Duration, do func() bool) (times int, took time.Duration) {
	if !do() || !b.do("cuStreamSynchronize", b.stream) {
		return 0, 0
	}
	began := time.Now()
	for batch := 1; took < least && time.Since(began) < 4*least; {
		b.do("cuEventRecord", b.events[0], b.stream)
		for range batch {
			do()
		}
		b.do("cuEventRecord", b.events[1], b.stream)
		b.do("cuEventSynchronize", b.events[1])
		if !b.do("cuEventElapsedTime", b.word(), b.events[0], b.events[1]) {
			return 0, 0
		}
		lasted := time.Duration(float64(math.Float32frombits(uint32(b.desk.word))) * float64(time.Millisecond))
		if lasted <= 0 { // nothing takes no time
			b.check("cuEventElapsedTime", ours(Unresponsive))
			return 0, 0
		}
		times, took = times+batch, took+lasted
		if lasted < batchTime {
			batch = min(2*batch, mostBatch)
		}
	}
	return times, took
}

const (
	// batchTime is how long the GPU works at least, if it can, until it is asked again: the asking is nothing then.
	batchTime = 50 * time.Millisecond
	mostBatch = 64
)

// copies calls a function for that long that copies a chunk, and returns at what rate in GB/s.
func (b *bench) copies(last time.Duration, function string, words ...uintptr) *float64 {
	times, took := b.pace(last, func() bool { return b.do(function, words...) })
	rate := float64(times) * float64(b.chunk) / 1e9 / took.Seconds()
	return &rate
}

// products has the GPU multiply the matrices for that long, and count the elements that are right after each product.
func (b *bench) products(last time.Duration) func(*Effort) {
	source := C.CString(kernels)
	defer C.free(unsafe.Pointer(source))
	module := b.take("cuModuleLoadData", "cuModuleUnload", uintptr(unsafe.Pointer(source)))
	product, check := b.kernel(module, "product"), b.kernel(module, "check")
	right := b.take("cuMemAlloc_v2", "cuMemFree_v2", 8)
	b.do("cuMemsetD8_v2", right, 0, 8)
	a := C.uint64_t(b.out)
	b.desk.first, b.desk.second, b.desk.third, b.desk.right, b.desk.side = a, a+Side*Side*4, C.uint64_t(b.in), C.uint64_t(right), Side
	launches := uint64(0)
	times, took := b.pace(last, func() bool {
		launches++
		b.launch(product, &b.desk.product[0])
		b.launch(check, &b.desk.check[0])
		return b.failed == nil
	})
	b.do("cuMemcpyDtoH_v2", b.word(), right, 8)
	counted := uint64(b.desk.word)
	return func(e *Effort) {
		rate := float64(times) * 2 * Side * Side * Side / 1e12 / took.Seconds()
		e.Products, e.Rate, e.Wrong = launches, &rate, launches*Side*Side-counted
	}
}

// kernel finds one in the module.
func (b *bench) kernel(module uintptr, name string) uintptr {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return b.take("cuModuleGetFunction", "", module, uintptr(unsafe.Pointer(text)))
}

// launch launches a kernel: a thread an element, in blocks of 16 x 16.
func (b *bench) launch(kernel uintptr, parameters *unsafe.Pointer) {
	const function, block = "cuLaunchKernel", 16
	if b.failed != nil {
		return
	}
	b.check(function, b.call(function, func(f unsafe.Pointer) C.int {
		return C.call_launch(f, pointer(kernel), Side/block, block, pointer(b.stream), parameters)
	}))
}

// pointer is the one that a call has left as a word: C's, which Go does not move.
func pointer(word uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&word)) }
