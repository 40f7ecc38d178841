//go:build linux && cgo

package gpu

import (
	"context"
	"fmt"
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

// eventFunctions are all that the watch calls, each by one of its names.
var eventFunctions = [][]string{
	{"nvmlShutdown"},
	{"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
	{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
	{"nvmlDeviceGetUUID"},
	{"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"},
	{"nvmlDeviceGetSupportedEventTypes"},
	{"nvmlDeviceRegisterEvents"},
	{"nvmlDeviceGetFieldValues"},
	{"nvmlEventSetCreate"},
	{"nvmlEventSetWait_v2", "nvmlEventSetWait"},
	{"nvmlEventSetFree"},
}

// missing names the functions that the watch calls and the library lacks: a call
// of one of them would end the process.
func missing(lib nvml.Interface) (missing []string) {
	for _, names := range eventFunctions {
		if !slices.ContainsFunc(names, func(name string) bool { return has(lib, name) }) {
			missing = append(missing, names[0])
		}
	}
	return missing
}

// watcher tells of what befalls the GPUs, one line each.
type watcher struct {
	lib  nvml.Interface
	set  nvml.EventSet
	gpus []*watchedGPU
	tell func(line) error

	polled time.Time // when all were looked at
	eager  time.Time // until when they are looked at in each round
}

type watchedGPU struct {
	index     int
	handle    nvml.Device
	ret       nvml.Return // where there is no handle: why
	uuid, bus string
	recovery  int // the action that was asked for when we last looked
	lost      bool
}

// watch registers for the events of all GPUs, says so, and tells of them until
// the context ends. The error says why it can't go on.
func watch(ctx context.Context, lib nvml.Interface, tell func(line) error) error {
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
	w := &watcher{lib: lib, set: set, tell: tell}
	var unwatched []Event
	for i := range count {
		g := know(lib, i)
		w.gpus = append(w.gpus, g)
		if ret := w.register(g); ret != nvml.SUCCESS {
			event := g.event(KindUnwatched)
			event.Detail = string(named(ret))
			unwatched = append(unwatched, event)
		}
	}
	watching := count - len(unwatched)
	if err := tell(line{Watching: &watching}); err != nil {
		return err
	}
	for _, event := range unwatched {
		if err := w.report(event); err != nil {
			return err
		}
	}
	return w.run(ctx)
}

// know asks a GPU who it is. A lost one may not know.
func know(lib nvml.Interface, index int) *watchedGPU {
	g := &watchedGPU{index: index}
	if g.handle, g.ret = lib.DeviceGetHandleByIndex(index); g.ret != nvml.SUCCESS {
		return g
	}
	if uuid, ret := g.handle.GetUUID(); ret == nvml.SUCCESS {
		g.uuid = uuid
	}
	if info, ret := g.handle.GetPciInfo(); ret == nvml.SUCCESS {
		g.bus = busText(info)
	}
	// What it asks for already is the checks' affair, before the driver starts.
	if action, ret := g.asksFor(); ret == nvml.SUCCESS {
		g.recovery = action
	}
	return g
}

// asksFor is the recovery action that the GPU asks for.
func (g *watchedGPU) asksFor() (action int, ret nvml.Return) {
	if g.ret != nvml.SUCCESS {
		return 0, g.ret
	}
	return oneField(g.handle, nvml.FI_DEV_GET_GPU_RECOVERY_ACTION)
}

// register asks the driver for the events of a GPU.
func (w *watcher) register(g *watchedGPU) nvml.Return {
	if g.ret != nvml.SUCCESS {
		return g.ret
	}
	events := xidEvents
	if supported, ret := g.handle.GetSupportedEventTypes(); ret == nvml.SUCCESS {
		if events = supported & (xidEvents | recoveryEvents); events&xidEvents == 0 {
			return nvml.ERROR_NOT_SUPPORTED
		}
	}
	ret := g.handle.RegisterEvents(events, w.set)
	if ret != nvml.SUCCESS && events != xidEvents {
		ret = g.handle.RegisterEvents(xidEvents, w.set)
	}
	return ret
}

func (g *watchedGPU) event(kind Kind) Event {
	return Event{Kind: kind, GPU: g.index, UUID: g.uuid, Bus: g.bus}
}

func (w *watcher) report(e Event) error {
	e.At = time.Now()
	return w.tell(line{Event: &e})
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
			if err := w.take(event); err != nil {
				return err
			}
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
		if err := w.look(); err != nil {
			return err
		}
	}
	return nil
}

// take tells of an event of the driver at once, before the GPU is asked
// anything: a driver in trouble may hang, and then this is its last word.
func (w *watcher) take(d nvml.EventData) error {
	w.eager = time.Now().Add(eagerTime)
	if d.EventType&xidEvents == 0 {
		return nil // a recovery event says only that we are to look
	}
	e := w.whose(d.Device)
	e.Xid = int(min(d.EventData, mostXid))
	return w.report(e)
}

// whose is an event of the GPU that a handle is of. It is known without asking a
// GPU that may be lost: NVML gives one handle for each.
func (w *watcher) whose(handle nvml.Device) Event {
	for _, g := range w.gpus {
		if g.ret == nvml.SUCCESS && g.handle == handle {
			return g.event(KindXid)
		}
	}
	unknown := Event{Kind: KindXid, GPU: -1}
	if handle == nil {
		return unknown
	}
	if uuid, ret := handle.GetUUID(); ret == nvml.SUCCESS {
		unknown.UUID = uuid
	}
	for _, g := range w.gpus {
		if g.uuid != "" && g.uuid == unknown.UUID {
			return g.event(KindXid)
		}
	}
	return unknown
}

// look asks all GPUs whether they are there and what they ask for, now and
// then, and more often after an event: NVML tells of an Xid, and not of what the
// GPU needs after it.
func (w *watcher) look() error {
	now := time.Now()
	wait := pollPause
	if now.Before(w.eager) {
		wait = eventWait
	}
	if now.Sub(w.polled) < wait {
		return nil
	}
	w.polled = now
	for _, g := range w.gpus {
		event, is := g.look(w.lib)
		if !is {
			continue
		}
		if err := w.report(event); err != nil {
			return err
		}
	}
	return w.tell(line{Beat: true})
}

// look asks one GPU. It tells of a change, once.
func (g *watchedGPU) look(lib nvml.Interface) (event Event, is bool) {
	if g.lost {
		return Event{}, false
	}
	action := 0
	_, ret := lib.DeviceGetHandleByIndex(g.index) // fails for one that is lost
	if !gone(ret) {
		action, ret = g.asksFor()
	}
	switch {
	case gone(ret):
		g.lost = true
		event = g.event(KindLost)
		event.Detail = string(named(ret))
		return event, true
	case ret != nvml.SUCCESS || action == g.recovery:
		return Event{}, false // older drivers have no such field
	}
	g.recovery = action
	event = g.event(KindRecovery)
	event.Recovery = action
	return event, action != 0
}

// gone tells of an answer that the GPU will give for ever, until somebody acts.
func gone(ret nvml.Return) bool {
	return ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED
}
