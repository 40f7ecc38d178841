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

const (
	// clockLooks is how many times the reasons for slower clocks are read, and clockPause the
	// interval. A single reading may coincide with a change of the GPU's performance state.
	clockLooks = 3
	clockPause = 100 * time.Millisecond
)

// comePatience is the timeout for the next GPU to be initialised, or for the next one to have
// answered all queries. It has the same purpose as ProbeDeadline, but is shorter, so that the
// parent gets the facts about the other GPUs, with the name of the call that hangs.
const comePatience = 100 * time.Second

// tellPause is the interval of progress reports while an inspection takes long.
const tellPause = 5 * time.Second

// collector reads everything in Facts from NVML. It lives as long as the process, like NVML itself,
// so that GPUs that hang are not queried again.
type collector struct {
	lib      nvml.Interface
	waits    io.Writer           // gets the names of slow calls
	root     string              // contains proc and sys
	pause    func(time.Duration) // called between readings of the clocks
	patience time.Duration       // timeout for progress: comePatience

	opening sync.Mutex // held while NVML is initialised
	opened  bool       // guarded by [collector.opening]

	mu   sync.Mutex
	open map[*wait]bool // calls that have not returned; nil if tellWaits is not scheduled; guarded by mu
	busy map[int]bool   // GPUs that are being inspected, by index; guarded by mu
}

func newCollector(lib nvml.Interface, waits io.Writer) *collector {
	return &collector{lib: lib, waits: waits, root: "/", pause: time.Sleep, patience: comePatience, busy: map[int]bool{}}
}

// begin opens NVML, which then stays open, so that the driver keeps the GPUs initialised.
func (c *collector) begin() Return {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.opened {
		return Success
	}
	defer c.asking(system0, "nvmlInit_v2")()
	ret := named(c.lib.Init())
	c.opened = ret == Success
	return ret
}

// collect returns the facts. All GPUs are queried concurrently, because one may be slow. A call
// that fails, or that the library lacks, affects only its own reading, and a GPU that hangs only
// its own facts. Progress is reported whenever a GPU has been initialised or has answered all
// queries, and every tellPause.
func (c *collector) collect(tell func(Progress)) Facts {
	facts := Facts{Version: FactsVersion}
	if facts.Init = c.begin(); facts.Init != Success {
		return facts
	}
	s := &inspector{collector: c, slot: system0}
	facts.Driver = ask(s, c.lib.SystemGetDriverVersion, "nvmlSystemGetDriverVersion")
	facts.NVML = ask(s, c.lib.SystemGetNVMLVersion, "nvmlSystemGetNVMLVersion")
	facts.CUDA = convert(ask(s, c.lib.SystemGetCudaDriverVersion, "nvmlSystemGetCudaDriverVersion"), cudaText)
	facts.Count = ask(s, c.lib.DeviceGetCount, "nvmlDeviceGetCount")
	facts.GPUs, facts.Pairs = c.gpus(facts.Count.OrZero(), tell)
	facts.Slots = sysfs{os.DirFS(c.root)}.slots()
	nameLost(facts.GPUs, facts.Slots)
	nameProcesses(facts.GPUs, c.root)
	return facts
}

// system0 is the slot of queries that are not about a GPU.
const system0 = -1

// gpus queries each GPU, and each pair of GPUs with a handle. It gives up once there was no
// progress for the collector's patience. The goroutine of a GPU that hangs remains, because a call
// cannot be ended.
func (c *collector) gpus(count int, tell func(Progress)) (gpus []GPU, pairs []Pair) {
	// Start a goroutine for each GPU. A GPU in which an earlier inspection hangs keeps
	// DRIVER_UNRESPONSIVE.
	came, done := make(chan int, count), make(chan *inspector, count)
	gpus = make([]GPU, count)
	all := make([]*inspector, count) // GPUs that have answered all queries; nil for the others
	asked := 0
	for i := range gpus {
		gpus[i] = GPU{Index: i, Handle: DriverUnresponsive}
		if c.enter(i) {
			asked++
			one := &inspector{collector: c, slot: i, gpu: &GPU{Index: i}}
			go func() {
				defer c.leave(i)
				one.see(func() { came <- i })
				done <- one
			}()
		}
	}
	// Wait until all have answered, or there was no progress for too long.
	late, again := time.NewTimer(c.patience), time.NewTicker(tellPause)
	defer late.Stop()
	defer again.Stop()
	p := Progress{Of: count}
	for tell(p); p.Done < asked; {
		select {
		case <-came:
			p.Came++
			late.Reset(c.patience)
		case one := <-done:
			p.Done++
			late.Reset(c.patience)
			all[one.slot], gpus[one.slot] = one, *one.gpu
		case <-again.C:
		case <-late.C:
			asked = 0
		}
		p.Waits = c.late()
		tell(p)
	}
	for i := range gpus {
		// Name the call that hangs.
		if all[i] == nil {
			gpus[i].Hangs = c.hangs(i)
		}
	}
	return gpus, pairsOf(all)
}

// pairsOf queries the NVLink status of each pair of GPUs with a handle.
func pairsOf(all []*inspector) (pairs []Pair) {
	for a, one := range all {
		for b := a + 1; b < len(all); b++ {
			if other := all[b]; one != nil && other != nil && one.device != nil && other.device != nil {
				pairs = append(pairs, Pair{A: a, B: b, Status: one.linkTo(other)})
			}
		}
	}
	return pairs
}

// enter reports whether a GPU may be inspected, and marks it as busy. It may not while an earlier
// inspection of it has not returned.
func (c *collector) enter(gpu int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[gpu] {
		return false
	}
	c.busy[gpu] = true
	return true
}

// leave marks a GPU as no longer busy.
func (c *collector) leave(gpu int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, gpu)
}

// ask calls call, if the library has all of the named functions of NVML that it needs, and returns
// its value or the reason why there is none.
func ask[T any](i *inspector, call func() (T, nvml.Return), function string, more ...string) Reading[T] {
	name, found := symbol(i.lib, function)
	for _, other := range more {
		_, too := symbol(i.lib, other)
		found = found && too
	}
	if !found {
		return unread[T](FunctionNotFound)
	}
	defer i.asking(i.slot, name)()
	value, ret := call()
	if ret != nvml.SUCCESS {
		return unread[T](named(ret))
	}
	return read(value)
}

// convert applies change to the value of a reading, if there is one.
func convert[T, U any](r Reading[T], change func(T) U) Reading[U] {
	if value, ok := r.Get(); ok {
		return read(change(value))
	}
	return unread[U](r.Why)
}

// or returns the first reading that has a value. It makes each of the older queries only if the
// driver is too old for the one before.
func or[T any](first Reading[T], older ...func() Reading[T]) Reading[T] {
	for _, next := range older {
		switch first.Why {
		case FunctionNotFound, versionMismatch, deprecated, NotSupported:
		default:
			return first
		}
		if other := next(); other.Value != nil || first.Why == FunctionNotFound {
			first = other
		}
	}
	return first
}

// cudaText formats 12080 as 12.8.
func cudaText(version int) string { return fmt.Sprintf("%d.%d", version/1000, version%1000/10) }

// clusterText formats the UUID of an NVLink domain.
func clusterText(id [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// nameLost sets the bus addresses of GPUs that cannot be queried. It uses the addresses on the PCI
// bus that belong to no other GPU, and only if there are as many as GPUs without an address: both
// NVML and sysfs list GPUs in bus order.
func nameLost(gpus []GPU, slots []Slot) {
	var lost []*GPU
	free := slices.Clone(slots)
	for i := range gpus {
		if bus, ok := gpus[i].Bus.Get(); ok {
			free = slices.DeleteFunc(free, func(other Slot) bool { return other.Bus == bus })
		} else {
			lost = append(lost, &gpus[i])
		}
	}
	if len(free) != len(lost) {
		return
	}
	for i, gpu := range lost {
		gpu.Bus = read(free[i].Bus)
	}
}

const (
	waitTold = time.Second  // time after which a call is reported as slow
	waitLook = waitTold / 4 // interval of the checks for slow calls
)

// wait is a call of the library that has not returned.
type wait struct {
	slot int
	call string
	from time.Time
}

func (w *wait) String() string {
	if w.slot == system0 {
		return w.call
	}
	return fmt.Sprintf("%s of GPU %d", w.call, w.slot)
}

// asking records that a call is running. The caller must call answered when the call has returned.
func (c *collector) asking(slot int, function string) (answered func()) {
	w := &wait{slot, function, time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = make(map[*wait]bool)
		time.AfterFunc(waitLook, func() { c.tellWaits("") })
	}
	c.open[w] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, w)
	}
}

// overdue returns the calls that have been running for at least the given time, sorted by GPU and
// start time. The caller must hold mu.
func (c *collector) overdue(after time.Duration) (all []*wait) {
	for w := range c.open {
		if time.Since(w.from) >= after {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *wait) int { return cmp.Or(cmp.Compare(a.slot, b.slot), a.from.Compare(b.from)) })
	return all
}

// late returns the names of the slow calls, separated by commas.
func (c *collector) late() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var late []string
	for _, w := range c.overdue(waitTold) {
		late = append(late, w.String())
	}
	return strings.Join(late, ", ")
}

// hangs returns the name of the call that has not returned for this GPU.
func (c *collector) hangs(gpu int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.overdue(0) {
		if w.slot == gpu {
			return w.call
		}
	}
	return ""
}

// tellWaits writes the names of all slow calls as one line, whenever they differ from last. It
// repeats itself every waitLook until no call is running. The parent keeps the last few lines of a
// child, so that it can report the slow calls if it kills a child without an answer.
func (c *collector) tellWaits(last string) {
	if text := c.late(); text != "" && text != last {
		fmt.Fprintf(c.waits, "waiting for %s\n", text)
		last = text
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) == 0 {
		c.open = nil
		return
	}
	time.AfterFunc(waitLook, func() { c.tellWaits(last) })
}
