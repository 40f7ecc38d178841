//go:build linux && cgo

package gpu

import (
	"fmt"
	"io"
	"maps"
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

// collector asks NVML all that Facts hold, once.
type collector struct {
	lib   nvml.Interface
	waits io.Writer           // gets the names of calls that take long
	root  string              // of /proc and /sys
	pause func(time.Duration) // between looks at the clocks

	mu   sync.Mutex
	open map[int]wait // by slot: nil where nobody looks at them; guarded by mu
}

// collect fills Facts. All GPUs are asked at the same time, as one may be slow. A call that fails, or that the library
// lacks, costs only its own reading.
func (c *collector) collect() Facts {
	facts := Facts{Version: FactsVersion}
	answered := c.asking(system0, "nvmlInit_v2")
	facts.Init = named(c.lib.Init())
	if answered(); facts.Init != Success {
		return facts
	}
	s := &inspector{collector: c, slot: system0}
	facts.Driver = ask(s, c.lib.SystemGetDriverVersion, "nvmlSystemGetDriverVersion")
	facts.NVML = ask(s, c.lib.SystemGetNVMLVersion, "nvmlSystemGetNVMLVersion")
	facts.CUDA = convert(ask(s, c.lib.SystemGetCudaDriverVersion, "nvmlSystemGetCudaDriverVersion"), cudaText)
	facts.Count = ask(s, c.lib.DeviceGetCount, "nvmlDeviceGetCount")
	facts.GPUs, facts.Pairs = c.gpus(facts.Count.OrZero())
	facts.Slots = sysfs{os.DirFS(c.root)}.slots()
	nameLost(facts.GPUs, facts.Slots)
	nameProcesses(facts.GPUs, c.root)
	_ = ask(s, func() (struct{}, nvml.Return) { return struct{}{}, c.lib.Shutdown() }, "nvmlShutdown")
	return facts
}

// system0 is the slot of questions about no GPU.
const system0 = -1

// gpus asks each GPU, and each pair of those that have a handle.
func (c *collector) gpus(count int) (gpus []GPU, pairs []Pair) {
	gpus = make([]GPU, count)
	all := make([]*inspector, count)
	for i := range gpus {
		all[i] = &inspector{collector: c, slot: i, gpu: &gpus[i]}
		gpus[i].Index = i
	}
	side(all, func(one *inspector) { one.open(); one.lookAtClocks() })
	began := time.Now()
	side(all, (*inspector).inspect)
	for look := 1; look < clockLooks; look++ {
		c.pause(time.Duration(look)*clockPause - time.Since(began))
		side(all, (*inspector).lookAtClocks)
	}
	for a, one := range all {
		for b := a + 1; b < len(all); b++ {
			if one.device != nil && all[b].device != nil {
				pairs = append(pairs, Pair{A: a, B: b, Status: one.linkTo(all[b])})
			}
		}
	}
	return gpus, pairs
}

// side does one thing for all GPUs at the same time.
func side(all []*inspector, do func(*inspector)) {
	var wg sync.WaitGroup
	for _, one := range all {
		wg.Go(func() { do(one) })
	}
	wg.Wait()
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
	call string
	from time.Time
}

// asking notes a call until it has returned: call answered then.
func (c *collector) asking(slot int, function string) (answered func()) {
	if slot != system0 {
		function += fmt.Sprintf(" of GPU %d", slot)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = make(map[int]wait)
		time.AfterFunc(waitLook, func() { c.tellWaits("") })
	}
	c.open[slot] = wait{function, time.Now()}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, slot)
	}
}

// tellWaits names all calls that take long in one line, once for each change, as long as there are calls: the parent,
// which kills a child that says nothing, finds them in the child's last lines, of which it keeps a few.
func (c *collector) tellWaits(last string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var late []string
	for _, slot := range slices.Sorted(maps.Keys(c.open)) {
		if w := c.open[slot]; time.Since(w.from) >= waitTold {
			late = append(late, w.call)
		}
	}
	if text := strings.Join(late, ", "); text != "" && text != last {
		fmt.Fprintf(c.waits, "waiting for %s\n", text)
		last = text
	}
	if len(c.open) == 0 {
		c.open = nil
		return
	}
	time.AfterFunc(waitLook, func() { c.tellWaits(last) })
}
