//go:build linux && cgo

package gpu

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/bringupd/bringupd/pkg/pause"
)

const (
	eventWait   = 500 * time.Millisecond // so the end is seen soon
	eagerTime   = 5 * time.Second        // after an event GPUs are looked at more often: the action is settled later
	failPause   = 100 * time.Millisecond // after a wait that failed; doubled each time
	failMost    = 10 * time.Second
	failedWaits = 12 // in a row: then no event is to be hoped for. It takes 43 s
)

// Two of nvmlEventType*. The second came with drivers that have field 230.
const (
	xidEvents      uint64 = nvml.EventTypeXidCriticalError
	recoveryEvents uint64 = nvml.EventTypeGpuRecoveryAction
)

// eventFunctions are all that the watch calls.
var eventFunctions = []string{
	"nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo",
	"nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", "nvmlDeviceGetFieldValues",
	"nvmlEventSetCreate", "nvmlEventSetWait", "nvmlEventSetFree",
}

// missing names the functions that the watch calls and the library lacks: a call of one of them would end the process.
func missing(lib nvml.Interface) (missing []string) {
	for _, function := range eventFunctions {
		if name, found := symbol(lib, function); !found {
			missing = append(missing, name)
		}
	}
	return missing
}

// watcher tells of what befalls the GPUs, one line each.
type watcher struct {
	set  nvml.EventSet
	gpus []*watchedGPU
	tell func(line)

	polled time.Time // when all were looked at
	eager  time.Time // until when they are looked at in each round
}

type watchedGPU struct {
	inspector
	registered Return // SUCCESS, or why its events are not told
	action     int    // that was asked for when we last looked
	lost       bool
}

// watch registers for the events of all GPUs, says so, and tells of them until the context ends. The error says why it
// can't go on.
func watch(ctx context.Context, lib nvml.Interface, tell func(line)) error {
	if missing := missing(lib); len(missing) > 0 {
		return fmt.Errorf("the library lacks %s: its driver is too old", strings.Join(missing, ", "))
	}
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("the GPUs can't be counted: %s", named(ret))
	}
	set, ret := lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("there is no set of events: %s", named(ret))
	}
	defer func() { _ = set.Free() }()
	w := &watcher{set: set, tell: tell}
	c := &collector{lib: lib, waits: io.Discard}
	watching := 0
	for i := range count {
		g := &watchedGPU{inspector: inspector{collector: c, slot: i, gpu: &GPU{Index: i}}}
		g.know()
		if g.registered = g.register(set); g.registered == Success {
			watching++
		}
		w.gpus = append(w.gpus, g)
	}
	tell(line{Watching: &watching})
	for _, g := range w.gpus {
		if g.registered != Success {
			w.report(g.event(KindUnwatched, string(g.registered)))
		}
	}
	return w.run(ctx)
}

// know asks a GPU who it is. A lost one may not know.
func (g *watchedGPU) know() {
	if g.open(); g.device != nil {
		g.name()
		// What it asks for already is the checks' affair, before the driver starts.
		g.action, _ = g.recovery().Get()
	}
}

// register asks the driver for the events of a GPU.
func (g *watchedGPU) register(set nvml.EventSet) Return {
	if g.device == nil {
		return g.gpu.Handle
	}
	events := xidEvents
	if supported, ret := g.device.GetSupportedEventTypes(); ret == nvml.SUCCESS {
		if events = supported & (xidEvents | recoveryEvents); events&xidEvents == 0 {
			return NotSupported
		}
	}
	ret := g.device.RegisterEvents(events, set)
	if ret != nvml.SUCCESS && events != xidEvents {
		ret = g.device.RegisterEvents(xidEvents, set)
	}
	return named(ret)
}

func (g *watchedGPU) event(kind Kind, detail string) Event {
	return Event{Kind: kind, GPU: g.slot, UUID: g.gpu.UUID.OrZero(), Bus: g.gpu.Bus.OrZero(), Detail: detail}
}

func (w *watcher) report(e Event) {
	e.At = time.Now()
	w.tell(line{Event: &e})
}

// run waits for events and looks at the GPUs, in turn.
func (w *watcher) run(ctx context.Context) error {
	w.polled = time.Now()
	failed := 0
	for ctx.Err() == nil {
		event, ret := w.set.Wait(uint32(eventWait.Milliseconds()))
		switch ret {
		case nvml.SUCCESS:
			failed = 0
			w.take(event)
		case nvml.ERROR_TIMEOUT:
			failed = 0
		default:
			// Whoever is lost, the look at the GPUs tells.
			w.eager = time.Now().Add(eagerTime)
			if failed++; failed >= failedWaits {
				return fmt.Errorf("the driver tells of no events any more: %d waits in a row have returned %s", failed, named(ret))
			}
			pause.For(ctx, min(failPause<<(failed-1), failMost))
		}
		w.look()
	}
	return nil
}

// take tells of an event of the driver at once, before the GPU is asked anything: a driver in trouble may hang, and
// then this is its last word.
func (w *watcher) take(d nvml.EventData) {
	w.eager = time.Now().Add(eagerTime)
	if d.EventType&xidEvents == 0 {
		return // a recovery event says only that we are to look
	}
	e := w.whose(d.Device)
	e.Xid = int(min(d.EventData, mostXid))
	w.report(e)
}

// whose is an event of the GPU that a handle is of. It is known without asking a GPU that may be lost: NVML gives one
// handle for each.
func (w *watcher) whose(handle nvml.Device) Event {
	unknown := Event{Kind: KindXid, GPU: -1}
	if handle == nil {
		return unknown
	}
	at := slices.IndexFunc(w.gpus, func(g *watchedGPU) bool { return g.device == handle })
	if at < 0 {
		if uuid, ret := handle.GetUUID(); ret == nvml.SUCCESS {
			unknown.UUID = uuid
		}
		at = slices.IndexFunc(w.gpus, func(g *watchedGPU) bool {
			return unknown.UUID != "" && g.gpu.UUID.OrZero() == unknown.UUID
		})
	}
	if at < 0 {
		return unknown
	}
	return w.gpus[at].event(KindXid, "")
}

// look asks all GPUs whether they are there and what they ask for, now and then, and more often after an event: NVML
// tells of an Xid, and not of what the GPU needs after it.
func (w *watcher) look() {
	now := time.Now()
	wait := pollPause
	if now.Before(w.eager) {
		wait = eventWait
	}
	if now.Sub(w.polled) < wait {
		return
	}
	w.polled = now
	for _, g := range w.gpus {
		if event, is := g.look(); is {
			w.report(event)
		}
	}
	w.tell(line{Beat: true})
}

// look asks one GPU. It tells of a change, once.
func (g *watchedGPU) look() (event Event, is bool) {
	if g.lost {
		return Event{}, false
	}
	now := unread[int](g.handle().Why) // fails for one that is lost
	if !now.Why.Gone() {
		now = g.recovery()
	}
	action, ok := now.Get()
	switch {
	case now.Why.Gone():
		g.lost = true
		return g.event(KindLost, string(now.Why)), true
	case !ok || action == g.action:
		return Event{}, false // older drivers have no such field
	}
	g.action = action
	event = g.event(KindRecovery, "")
	event.Recovery = action
	return event, action != 0
}
