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
	// clockLooks is how often the reasons for slower clocks are read, and clockPause the time between: a single reading
	// may fall into a change of state.
	clockLooks = 3
	clockPause = 100 * time.Millisecond
)

// comePatience is how long the next GPU is waited for, or the next that has answered all: what ProbeDeadline is for, and
// less than that, so that the others' facts arrive with the name of the one that hangs.
const comePatience = 100 * time.Second

// tellPause is between two words about a look that takes long.
const tellPause = 5 * time.Second

// collector asks NVML all that Facts hold. It stays, as NVML does: what hangs is asked nothing more.
type collector struct {
	lib      nvml.Interface
	waits    io.Writer           // gets the names of calls that take long
	root     string              // of /proc and /sys
	pause    func(time.Duration) // between looks at the clocks
	patience time.Duration

	opening sync.Mutex // held while NVML begins
	opened  bool       // guarded by opening

	mu   sync.Mutex
	open map[*wait]bool // the calls that have not returned, nil where nobody looks at them; guarded by mu
	busy map[int]bool   // GPUs that are being looked at, by index; guarded by mu
}

func newCollector(lib nvml.Interface, waits io.Writer) *collector {
	return &collector{lib: lib, waits: waits, root: "/", pause: time.Sleep, patience: comePatience, busy: map[int]bool{}}
}

// begin opens NVML, which then stays open: with it the driver keeps the GPUs attached.
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

// collect fills Facts. All GPUs are asked at the same time, as one may be slow. A call that fails, or that the library
// lacks, costs only its own reading, and a GPU that hangs its own facts. tell hears how far it has got, each time that a
// GPU has come or has answered all, and now and then.
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

// system0 is the slot of questions about no GPU.
const system0 = -1

// gpus asks each GPU, and each pair of those that have a handle. It waits as long as they come. The goroutine of one
// that hangs stays: nobody can end a call.
func (c *collector) gpus(count int, tell func(Progress)) (gpus []GPU, pairs []Pair) {
	came, done := make(chan int, count), make(chan *inspector, count)
	gpus = make([]GPU, count)
	all := make([]*inspector, count) // those that are done
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
		if all[i] == nil {
			gpus[i].Hangs = c.hangs(i)
		}
	}
	return gpus, pairsOf(all)
}

// pairsOf asks for each pair of GPUs.
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

// enter tells whether a GPU may be looked at: not while an earlier look hangs in it.
func (c *collector) enter(gpu int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[gpu] {
		return false
	}
	c.busy[gpu] = true
	return true
}

func (c *collector) leave(gpu int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, gpu)
}

// ask makes a call that takes those functions of the library, if it has them.
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

// convert changes the value of a reading, if there is one.
func convert[T, U any](r Reading[T], change func(T) U) Reading[U] {
	if value, ok := r.Get(); ok {
		return read(change(value))
	}
	return unread[U](r.Why)
}

// or returns the first of several readings that has a value. It asks for the next only if the driver is too old for the
// one before it.
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

// cudaText is 12.8 for 12080.
func cudaText(version int) string { return fmt.Sprintf("%d.%d", version/1000, version%1000/10) }

// clusterText is how the UUID of an NVLink domain is written.
func clusterText(id [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// nameLost fills in the addresses of GPUs that can't be asked, if as many addresses on the bus belong to no other GPU:
// both NVML and sysfs list GPUs in the order of the bus.
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
	waitTold = time.Second  // how long a call may take before it is named as one that is waited for
	waitLook = waitTold / 4 // between two looks at what is waited for
)

// wait is a call that has not returned.
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

// asking notes a call until it has returned: call answered then.
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

// overdue are the calls that have not returned after so long, by their GPUs.
func (c *collector) overdue(after time.Duration) (all []*wait) {
	for w := range c.open {
		if time.Since(w.from) >= after {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *wait) int { return cmp.Or(cmp.Compare(a.slot, b.slot), a.from.Compare(b.from)) })
	return all
}

// late names the calls that take long.
func (c *collector) late() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var late []string
	for _, w := range c.overdue(waitTold) {
		late = append(late, w.String())
	}
	return strings.Join(late, ", ")
}

// hangs names the call that a GPU does not return from.
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

// tellWaits names all calls that take long in one line, once for each change, as long as there are calls: the parent,
// which kills a child that says nothing, finds them in the child's last lines, of which it keeps a few.
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
