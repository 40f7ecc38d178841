//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	eventWait   = 500 * time.Millisecond // so the end is seen soon
	eagerTime   = 5 * time.Second        // after an event a GPU is looked at more often: the action is settled later
	failPause   = 100 * time.Millisecond // after a wait that failed; doubled each time
	failMost    = 10 * time.Second
	failedWaits = 12 // in a row: then no event is to be hoped for. It takes 43 s
	// hangTold is how long a call may take before its GPU is told of: what asks a GPU's own processor (GSP) in vain
	// returns after 45 s, with an error that says more.
	hangTold = 50 * time.Second
)

// Two of nvmlEventType*. The second came with drivers that have field 230.
const (
	xidEvents      uint64 = nvml.EventTypeXidCriticalError
	recoveryEvents uint64 = nvml.EventTypeGpuRecoveryAction
)

// eventFunctions are all that the watch can't do without.
var eventFunctions = []string{
	"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo",
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

// watcher tells of what befalls the GPUs, one line each. Every GPU has a goroutine and events of its own: one that hangs
// keeps nobody from hearing of the others.
type watcher struct {
	*collector
	gpus []*watchedGPU
	tell func(line)
	// resumed says that what the GPUs ask for by now is to be told as well.
	resumed bool
}

// watchedGPU is one that is watched. But for the tally its fields are used by its own goroutine.
type watchedGPU struct {
	inspector
	tell       func(line)
	set        nvml.EventSet
	registered Return // SUCCESS, or why its events are not told
	action     int    // that was asked for when we last looked
	links      []int  // NVLinks that were active when we last looked
	c2c        int    // links to the CPU that were
	polled     time.Time
	eager      time.Time // until when it is looked at in each round

	counting sync.Mutex
	tally    Tally // guarded by counting
}

// watch registers for the events of all GPUs, says so, and tells of them until the context ends. The error says why it
// can't go on.
func watch(ctx context.Context, c *collector, what question, tell func(line)) error {
	if missing := missing(c.lib); len(missing) > 0 {
		return fmt.Errorf("the library lacks %s: its driver is too old", strings.Join(missing, ", "))
	}
	count, ret := c.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("the GPUs can't be counted: %s", named(ret))
	}
	w := &watcher{collector: c, tell: tell, resumed: what == askResume}
	for i := range count {
		w.gpus = append(w.gpus, &watchedGPU{inspector: inspector{collector: c, slot: i, gpu: &GPU{Index: i}}, tell: tell})
	}
	return w.run(ctx)
}

// run has all GPUs watched until the context ends, or until none is left.
func (w *watcher) run(ctx context.Context) error {
	registered, ended := make(chan *watchedGPU, len(w.gpus)), make(chan bool, len(w.gpus))
	for _, g := range w.gpus {
		go func() {
			g.begin(w.resumed)
			registered <- g
			g.run(ctx)
			ended <- true
		}()
	}
	w.tellWatching(ctx, registered)
	beats := time.NewTicker(pollPause)
	defer beats.Stop()
	hanging := map[*wait]bool{}
	for left := len(w.gpus); ; {
		select {
		case <-ctx.Done():
			for ; left > 0; left-- {
				<-ended
			}
			return nil
		case <-ended:
			if left--; left == 0 && ctx.Err() == nil {
				return errors.New("all GPUs are lost")
			}
		case <-beats.C:
			hanging = w.tellHanging(hanging)
			w.beat()
		}
	}
}

// tellWatching says how many GPUs are watched once all are, or once the rest has not come for long.
func (w *watcher) tellWatching(ctx context.Context, registered <-chan *watchedGPU) {
	watching := 0
	waited := map[*watchedGPU]bool{}
	for _, g := range w.gpus {
		waited[g] = true
	}
	late := time.NewTimer(w.patience)
	defer late.Stop()
	var unwatched []Event
	for over := false; len(waited) > 0 && !over; {
		select {
		case g := <-registered:
			delete(waited, g)
			late.Reset(w.patience)
			w.tell(line{Came: &Progress{Came: len(w.gpus) - len(waited), Of: len(w.gpus)}})
			if g.registered == Success {
				watching++
			} else {
				unwatched = append(unwatched, g.event(KindUnwatched, string(g.registered)))
			}
		case <-late.C:
			over = true
		case <-ctx.Done():
			return
		}
	}
	for g := range waited {
		unwatched = append(unwatched, Event{Kind: KindUnwatched, GPU: g.slot, Detail: string(DriverUnresponsive)})
	}
	w.tell(line{Watching: &watching})
	slices.SortFunc(unwatched, func(a, b Event) int { return a.GPU - b.GPU })
	for _, e := range unwatched {
		report(w.tell, e)
	}
}

// tellHanging tells, once, of calls that do not return, and returns those that it has told of.
func (w *watcher) tellHanging(told map[*wait]bool) map[*wait]bool {
	w.mu.Lock()
	late := w.overdue(hangTold)
	w.mu.Unlock()
	hanging := map[*wait]bool{}
	for _, call := range late {
		if hanging[call] = true; !told[call] && call.slot != system0 {
			report(w.tell, Event{Kind: KindSilent, GPU: call.slot, Detail: fmt.Sprintf("%s has not returned for %v", call.call, hangTold)})
		}
	}
	return hanging
}

// beat says that the watch goes on.
func (w *watcher) beat() {
	b := &beat{}
	for _, g := range w.gpus {
		g.counting.Lock()
		if g.tally.Looks > 0 {
			b.Tallies = append(b.Tallies, g.tally)
		}
		g.counting.Unlock()
	}
	w.tell(line{Beat: b})
}

// report tells of an event.
func report(tell func(line), e Event) {
	e.At = time.Now()
	tell(line{Event: &e})
}

// begin asks a GPU who it is, and the driver for its events. A lost one may not know.
func (g *watchedGPU) begin(resumed bool) {
	if g.open(); g.device == nil {
		g.registered = g.gpu.Handle
		return
	}
	g.name()
	if !resumed { // what it asks for already is the checks' affair, before the driver starts
		g.action, _ = g.recovery().Get()
	}
	g.links, g.c2c = g.active(), g.inspector.c2c().OrZero().Active
	g.registered = g.register()
}

// register asks the driver for the events of a GPU.
func (g *watchedGPU) register() Return {
	defer g.asking(g.slot, "nvmlDeviceRegisterEvents")()
	set, ret := g.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return named(ret)
	}
	events := xidEvents
	if supported, ret := g.device.GetSupportedEventTypes(); ret == nvml.SUCCESS {
		if events = supported & (xidEvents | recoveryEvents); events&xidEvents == 0 {
			_ = set.Free()
			return NotSupported
		}
	}
	ret = g.device.RegisterEvents(events, set)
	if ret != nvml.SUCCESS && events != xidEvents {
		ret = g.device.RegisterEvents(xidEvents, set)
	}
	if ret != nvml.SUCCESS {
		_ = set.Free()
		return named(ret)
	}
	g.set = set
	return Success
}

// active are the NVLinks that are.
func (g *watchedGPU) active() (links []int) {
	for _, link := range g.nvlinks() {
		if link.Active.OrZero() {
			links = append(links, link.Index)
		}
	}
	return links
}

func (g *watchedGPU) event(kind Kind, detail string) Event {
	return Event{Kind: kind, GPU: g.slot, UUID: g.gpu.UUID.OrZero(), Bus: g.gpu.Bus.OrZero(), Detail: detail}
}

// run waits for events and looks at the GPU, in turn, until the context ends or the GPU is lost. One whose events the
// driver does not tell is looked at all the same.
func (g *watchedGPU) run(ctx context.Context) {
	defer g.unregister()
	g.polled = time.Now()
	failed := 0
	for ctx.Err() == nil {
		switch event, ret := g.wait(ctx); ret {
		case nvml.SUCCESS:
			failed = 0
			g.take(event)
		case nvml.ERROR_TIMEOUT:
			failed = 0
		default:
			g.eager = time.Now().Add(eagerTime) // if it is lost, the look at it tells
			if failed++; failed < failedWaits {
				pause.For(ctx, min(failPause<<(failed-1), failMost))
			} else {
				report(g.tell, g.event(KindUnwatched, fmt.Sprintf("%d waits in a row have returned %s", failed, named(ret))))
				g.unregister()
			}
		}
		if lost := g.look(); lost {
			return
		}
	}
}

func (g *watchedGPU) unregister() {
	if g.set != nil {
		_ = g.set.Free()
		g.set = nil
	}
}

// wait waits for an event of the GPU.
func (g *watchedGPU) wait(ctx context.Context) (nvml.EventData, nvml.Return) {
	if g.set == nil {
		pause.For(ctx, eventWait)
		return nvml.EventData{}, nvml.ERROR_TIMEOUT
	}
	defer g.asking(g.slot, "nvmlEventSetWait_v2")()
	return g.set.Wait(uint32(eventWait.Milliseconds()))
}

// take tells of an event of the driver at once, before the GPU is asked anything: a driver in trouble may hang, and
// then this is its last word.
func (g *watchedGPU) take(d nvml.EventData) {
	g.eager = time.Now().Add(eagerTime)
	if d.EventType&xidEvents == 0 {
		return // a recovery event says only that we are to look
	}
	e := g.event(KindXid, "")
	e.Xid = int(min(d.EventData, mostXid))
	report(g.tell, e)
}

// look asks the GPU whether it is there and what it asks for, now and then, and more often after an event: NVML tells of
// an Xid, and not of what the GPU needs after it, nor of which links are lost. It tells of a change, once.
func (g *watchedGPU) look() (lost bool) {
	now := time.Now()
	eager := now.Before(g.eager)
	if now.Sub(g.polled) < map[bool]time.Duration{true: eventWait, false: pollPause}[eager] {
		return false
	}
	g.polled = now
	handle := g.handle() // fails for a GPU that is lost
	action := unread[int](handle.Why)
	if handle.Value != nil {
		g.device = *handle.Value
		action = g.recovery()
	}
	if action.Why.Gone() {
		report(g.tell, g.event(KindLost, string(action.Why)))
		return true
	}
	if wanted, ok := action.Get(); ok && wanted != g.action { // older drivers have no such field
		if g.action = wanted; wanted != 0 {
			e := g.event(KindRecovery, "")
			e.Recovery = wanted
			report(g.tell, e)
		}
	}
	if g.device == nil {
		return false
	}
	if eager {
		g.lookAtLinks()
	} else {
		g.count()
	}
	return false
}

// lookAtLinks tells of links that are down and were not. A job that uses one would wait for ever.
func (g *watchedGPU) lookAtLinks() {
	now := g.active()
	down := slices.DeleteFunc(slices.Clone(g.links), func(link int) bool { return slices.Contains(now, link) })
	if len(down) > 0 {
		list := strings.Trim(strings.ReplaceAll(fmt.Sprint(down), " ", ", "), "[]")
		report(g.tell, g.event(KindLink, prose.Noun(len(down), "link")+" "+list))
	}
	g.links = now
	part, ok := g.inspector.c2c().Get()
	if ok && part.Active < g.c2c {
		report(g.tell, g.event(KindC2C, fmt.Sprintf("%d of %d are active", part.Active, part.All)))
	}
	if ok {
		g.c2c = part.Active
	}
}

// slowing are the reasons for slower clocks that are nobody's wish: bits of nvmlClocksEventReasons for heat (0x20, 0x40)
// and the power brake (0x80).
const slowing = 0x20 | 0x40 | 0x80

// count adds to the tally.
func (g *watchedGPU) count() {
	reasons, ok := g.reasons().Get()
	field := func(id uint32) Reading[int] {
		return ask(&g.inspector, func() (int, nvml.Return) { return oneField(g.device, id, 0) }, "nvmlDeviceGetFieldValues")
	}
	recoveries := field(nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL)
	replays := ask(&g.inspector, g.device.GetPcieReplayCounter, "nvmlDeviceGetPcieReplayCounter")
	rows := convert(g.remapped(), func(r Remapped) int { return r.Corrected + r.Uncorrected })
	g.counting.Lock()
	defer g.counting.Unlock()
	g.tally.GPU, g.tally.UUID = g.slot, g.gpu.UUID.OrZero()
	g.tally.Replays, g.tally.Remapped, g.tally.Recoveries = replays, rows, recoveries
	if ok {
		g.tally.Looks++
		if reasons&slowing != 0 {
			g.tally.Slowed++
		}
	}
}
