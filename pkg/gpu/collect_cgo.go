//go:build linux && cgo

package gpu

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// gpuProgressTimeout is the timeout for the next GPU to be initialised, or for the next one to have
// answered all queries. It has the same purpose as DefaultProbeTimeout, but is shorter, so that the
// parent gets the facts about the other GPUs, with the name of the call that hangs.
const gpuProgressTimeout = 100 * time.Second

const progressInterval = 5 * time.Second

// collector reads everything in Facts from NVML. It lives as long as the process, like NVML itself,
// so that GPUs that hang are not queried again.
type collector struct {
	lib         nvml.Interface
	slowCallLog io.Writer // gets the names of slow calls
	root        string    // contains proc and sys

	initMu      sync.Mutex // held while NVML is initialised
	initialised bool       // guarded by [collector.initMu]

	mu sync.Mutex
	// calls that have not returned; nil if reportSlowCalls is not scheduled; guarded by mu
	openCalls map[*pendingCall]bool
	busyGPUs  map[int]bool // GPUs that are being inspected, by index; guarded by mu
}

func newCollector(lib nvml.Interface, waits io.Writer) *collector {
	return &collector{lib: lib, slowCallLog: waits, root: "/", busyGPUs: map[int]bool{}}
}

// initNVML opens NVML, which then stays open, so that the driver keeps the GPUs initialised.
func (c *collector) initNVML() NVMLReturn {
	c.initMu.Lock()
	defer c.initMu.Unlock()
	if c.initialised {
		return Success
	}
	defer c.trackCall(systemSlot, "nvmlInit_v2")()
	ret := returnName(c.lib.Init())
	c.initialised = ret == Success
	return ret
}

// collectFacts returns the facts. All GPUs are queried concurrently, because one may be slow. A
// call that fails, or that the library lacks, affects only its own reading, and a GPU that hangs
// only its own facts. Progress is reported whenever a GPU has been initialised or has answered all
// queries, and every progressInterval.
func (c *collector) collectFacts(tell func(Progress)) Facts {
	facts := Facts{Version: FactsVersion}
	if facts.Init = c.initNVML(); facts.Init != Success {
		return facts
	}
	s := &inspector{collector: c, slot: systemSlot}
	facts.Driver = callNVML(s, c.lib.SystemGetDriverVersion, "nvmlSystemGetDriverVersion")
	facts.CUDA = mapReading(
		callNVML(s, c.lib.SystemGetCudaDriverVersion, "nvmlSystemGetCudaDriverVersion"), formatCUDAVersion)
	facts.Count = callNVML(s, c.lib.DeviceGetCount, "nvmlDeviceGetCount")
	facts.GPUs, facts.Pairs = c.queryGPUs(facts.Count.OrZero(), tell)
	facts.Slots = sysfs{os.DirFS(c.root)}.readSlots()
	fillLostAddresses(facts.GPUs, facts.Slots)
	addProcessNames(facts.GPUs, c.root)
	return facts
}

// systemSlot is the slot of queries that are not about a GPU.
const systemSlot = -1

// queryGPUs queries each GPU, and each pair of GPUs with a handle. It gives up once there was no
// progress for gpuProgressTimeout. The goroutine of a GPU that hangs remains, because a call
// cannot be ended.
func (c *collector) queryGPUs(count int, tell func(Progress)) (gpus []GPU, pairs []GPUPair) {
	// Start a goroutine for each GPU. A GPU in which an earlier inspection hangs keeps
	// DRIVER_UNRESPONSIVE.
	came, done := make(chan int, count), make(chan *inspector, count)
	gpus = make([]GPU, count)
	all := make([]*inspector, count) // GPUs that have answered all queries; nil for the others
	asked := 0
	for i := range gpus {
		gpus[i] = GPU{Index: i, Handle: DriverUnresponsive}
		if c.tryMarkBusy(i) {
			asked++
			one := &inspector{collector: c, slot: i, gpu: &GPU{Index: i}}
			go func() {
				defer c.clearBusy(i)
				one.inspectDevice(func() { came <- i })
				done <- one
			}()
		}
	}
	// Wait until all have answered, or there was no progress for too long.
	late, again := time.NewTimer(gpuProgressTimeout), time.NewTicker(progressInterval)
	defer late.Stop()
	defer again.Stop()
	p := Progress{Total: count}
	for tell(p); p.Complete < asked; {
		select {
		case <-came:
			p.Initialised++
			late.Reset(gpuProgressTimeout)
		case one := <-done:
			p.Complete++
			late.Reset(gpuProgressTimeout)
			all[one.slot], gpus[one.slot] = one, *one.gpu
		case <-again.C:
		case <-late.C:
			asked = 0
		}
		p.SlowCalls = c.slowCallNames()
		tell(p)
	}
	for i := range gpus {
		// Name the call that hangs.
		if all[i] == nil {
			gpus[i].Hangs = c.hangingCall(i)
		}
	}
	return gpus, queryPairs(all)
}

func queryPairs(all []*inspector) (pairs []GPUPair) {
	for a, one := range all {
		for b := a + 1; b < len(all); b++ {
			if other := all[b]; one != nil && other != nil && one.device != nil && other.device != nil {
				pairs = append(pairs, GPUPair{A: a, B: b, Status: one.nvlinkStatusTo(other)})
			}
		}
	}
	return pairs
}

// tryMarkBusy reports whether a GPU may be inspected, and marks it as busy. It may not while an
// earlier inspection of it has not returned.
func (c *collector) tryMarkBusy(gpu int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busyGPUs[gpu] {
		return false
	}
	c.busyGPUs[gpu] = true
	return true
}

func (c *collector) clearBusy(gpu int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busyGPUs, gpu)
}

// callNVML calls call, if the library has all of the named functions of NVML that it needs, and
// returns its value or the reason why there is none.
func callNVML[T any](i *inspector, call func() (T, nvml.Return), function string, more ...string) Reading[T] {
	name, found := findSymbol(i.lib, function)
	for _, other := range more {
		_, too := findSymbol(i.lib, other)
		found = found && too
	}
	if !found {
		return missingReading[T](FunctionNotFound)
	}
	defer i.trackCall(i.slot, name)()
	value, ret := call()
	if ret != nvml.SUCCESS {
		return missingReading[T](returnName(ret))
	}
	return newReading(value)
}

// mapReading applies change to the value of a reading, if there is one.
func mapReading[T, U any](r Reading[T], change func(T) U) Reading[U] {
	if value, ok := r.Get(); ok {
		return newReading(change(value))
	}
	return missingReading[U](r.Reason)
}

// firstSupported returns the first reading that has a value. It makes each of the older queries
// only if the driver is too old for the one before.
func firstSupported[T any](first Reading[T], older ...func() Reading[T]) Reading[T] {
	for _, next := range older {
		switch first.Reason {
		case FunctionNotFound, versionMismatch, deprecated, NotSupported:
		default:
			return first
		}
		if other := next(); other.Value != nil || first.Reason == FunctionNotFound {
			first = other
		}
	}
	return first
}

func formatCUDAVersion(version int) string {
	return fmt.Sprintf("%d.%d", version/1000, version%1000/10)
}

func formatClusterUUID(id [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// fillLostAddresses sets the bus addresses of GPUs that cannot be queried. It uses the addresses on
// the PCI bus that belong to no other GPU, and only if there are as many as GPUs without an
// address: both NVML and sysfs list GPUs in bus order.
func fillLostAddresses(gpus []GPU, slots []PCISlot) {
	var lost []*GPU
	free := slices.Clone(slots)
	for i := range gpus {
		if bus, ok := gpus[i].Bus.Get(); ok {
			free = slices.DeleteFunc(free, func(other PCISlot) bool { return other.Bus == bus })
		} else {
			lost = append(lost, &gpus[i])
		}
	}
	if len(free) != len(lost) {
		return
	}
	for i, gpu := range lost {
		gpu.Bus = newReading(free[i].Bus)
	}
}

const (
	slowCallThreshold = time.Second           // time after which a call is reported as slow
	slowCallInterval  = slowCallThreshold / 4 // interval of the checks for slow calls
)

type pendingCall struct {
	slot     int
	function string
	started  time.Time
}

func (w *pendingCall) String() string {
	if w.slot == systemSlot {
		return w.function
	}
	return fmt.Sprintf("%s of GPU %d", w.function, w.slot)
}

// trackCall records that a call is running. The caller must call answered when the call has
// returned.
func (c *collector) trackCall(slot int, function string) (answered func()) {
	w := &pendingCall{slot, function, time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.openCalls == nil {
		c.openCalls = make(map[*pendingCall]bool)
		time.AfterFunc(slowCallInterval, func() { c.reportSlowCalls("") })
	}
	c.openCalls[w] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.openCalls, w)
	}
}

// overdueCalls returns the calls that have been running for at least the given time, sorted by GPU
// and start time.
func (c *collector) overdueCalls(after time.Duration) (all []*pendingCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.openCalls {
		if time.Since(w.started) >= after {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *pendingCall) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), a.started.Compare(b.started))
	})
	return all
}

func (c *collector) slowCallNames() string {
	var late []string
	for _, w := range c.overdueCalls(slowCallThreshold) {
		late = append(late, w.String())
	}
	return strings.Join(late, ", ")
}

func (c *collector) hangingCall(gpu int) string {
	for _, w := range c.overdueCalls(0) {
		if w.slot == gpu {
			return w.function
		}
	}
	return ""
}

// reportSlowCalls writes the names of all slow calls as one line, whenever they differ from last.
// It repeats itself every slowCallInterval until no call is running. The parent keeps the last few
// lines of a child, so that it can report the slow calls if it kills a child without a response.
func (c *collector) reportSlowCalls(last string) {
	if text := c.slowCallNames(); text != "" && text != last {
		fmt.Fprintf(c.slowCallLog, "waiting for %s\n", text)
		last = text
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.openCalls) == 0 {
		c.openCalls = nil
		return
	}
	time.AfterFunc(slowCallInterval, func() { c.reportSlowCalls(last) })
}
