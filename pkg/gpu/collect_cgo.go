//go:build linux && cgo

package gpu

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const (
	// clockLooks are how often the reasons for slower clocks are looked at, and clockPause the time between: one look
	// may fall into a change of state.
	clockLooks = 3
	clockPause = 100 * time.Millisecond
)

// collector asks NVML all that Facts hold, once.
type collector struct {
	lib   nvml.Interface
	waits io.Writer           // is told of calls that do not return
	root  string              // of /proc and /sys
	pause func(time.Duration) // between looks at the clocks
}

// collect fills Facts. The GPUs are asked side by side, as one may take its time; each call that the library lacks, or
// that fails, costs its own reading and no other.
func (c *collector) collect() Facts {
	facts := Facts{Version: FactsVersion}
	answered := c.asking(system0, sourceInit)
	facts.Init = named(c.lib.Init())
	if answered(); facts.Init != Success {
		return facts
	}
	s := &inspector{collector: c, slot: system0}
	facts.Driver = ask(s, c.lib.SystemGetDriverVersion, "nvmlSystemGetDriverVersion")
	facts.NVML = ask(s, c.lib.SystemGetNVMLVersion, "nvmlSystemGetNVMLVersion")
	facts.CUDA = convert(ask(s, c.lib.SystemGetCudaDriverVersion, "nvmlSystemGetCudaDriverVersion"), cudaText)
	facts.Count = ask(s, c.lib.DeviceGetCount, "nvmlDeviceGetCount")
	facts.GPUs, facts.Pairs = c.gpus(facts.Count.value())
	nameLost(facts.GPUs, sysfs{os.DirFS(c.root)}.gpuBuses())
	nameProcesses(facts.GPUs, c.root)
	_ = ask(s, func() (struct{}, nvml.Return) { return struct{}{}, c.lib.Shutdown() }, "nvmlShutdown")
	return facts
}

// system0 is the slot of questions that are of no GPU.
const system0 = -1

// gpus asks each GPU, those that can't be had too, and each two of them.
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

// or returns the first of several readings. Each further one is asked for only where the driver was too old for the
// questions before it.
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

// nameLost gives the GPUs that can't be asked their addresses, where there are as many on the bus that no other GPU
// has: both orders are that of the bus.
func nameLost(gpus []GPU, buses []string) {
	var lost []*GPU
	free := slices.Clone(buses)
	for i := range gpus {
		if bus, ok := gpus[i].Bus.Get(); ok {
			free = slices.DeleteFunc(free, func(other string) bool { return other == bus })
		} else {
			lost = append(lost, &gpus[i])
		}
	}
	if len(free) != len(lost) {
		return
	}
	for i, gpu := range lost {
		gpu.Bus = read(free[i])
	}
}

// waitTold is after which time it is told that a question has no answer yet.
const waitTold = time.Second

// asking says what is asked, where that takes long: who ends this process for its silence finds it in its last words.
// What it returns is called with the answer.
func (c *collector) asking(slot int, function string) (answered func() bool) {
	if slot != system0 {
		function += fmt.Sprintf(" of GPU %d", slot)
	}
	return time.AfterFunc(waitTold, func() { fmt.Fprintf(c.waits, "waiting for %s\n", function) }).Stop
}
