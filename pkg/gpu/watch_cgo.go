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
	eventWait   = 500 * time.Millisecond // timeout of each wait for an event, so that the end of the context is detected soon
	eagerTime   = 5 * time.Second        // duration of more frequent polls after an event, because the driver decides on the recovery action later
	failPause   = 100 * time.Millisecond // pause after a failed wait for events; doubled each time
	failMost    = 10 * time.Second
	failedWaits = 12 // consecutive failed waits after which no event can be expected; reached after 43 s
	// hangTold is the time after which a call is reported as hanging. A call to a GPU's own processor
	// (GSP) that gets no answer returns after 45 s, with a more informative error.
	hangTold = 50 * time.Second
)

// The types of events that are watched, from nvmlEventType*. Drivers have the second since they
// have field 230.
const (
	xidEvents      uint64 = nvml.EventTypeXidCriticalError
	recoveryEvents uint64 = nvml.EventTypeGpuRecoveryAction
)

// eventFunctions are the functions of NVML that the watch cannot do without.
var eventFunctions = []string{
	"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo",
	"nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", "nvmlDeviceGetFieldValues",
	"nvmlEventSetCreate", "nvmlEventSetWait", "nvmlEventSetFree",
}

// missing returns the names of the functions that the watch calls and the library lacks. A call of
// a missing function would end the process.
func missing(lib nvml.Interface) (missing []string) {
	for _, function := range eventFunctions {
		if name, found := symbol(lib, function); !found {
			missing = append(missing, name)
		}
	}
	return missing
}

// watcher reports the events of all GPUs, one per line. Every GPU has a goroutine and an event set
// of its own, so that a GPU that hangs does not delay the events of the others.
type watcher struct {
	*collector
	gpus []*watchedGPU
	tell func(line)
	// resumed is set if recovery actions that GPUs already request must be reported, too.
	resumed bool
}

// watchedGPU is a GPU that is watched. All fields except the tally are used only by the GPU's own
// goroutine.
type watchedGPU struct {
	inspector
	tell       func(line)
	set        nvml.EventSet
	registered Return // SUCCESS, or the reason why its events are not reported
	action     int    // recovery action at the last poll
	links      []int  // NVLinks that were active at the last poll
	c2c        int    // active links to the CPU at the last poll
	polled     time.Time
	eager      time.Time // until this time it is polled after each wait

	counting sync.Mutex
	tally    Tally // guarded by [watchedGPU.counting]
}

// watch registers for the events of all GPUs, reports how many GPUs are watched, and reports events
// until the context ends. It returns an error if it cannot continue.
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

// run watches all GPUs until the context ends, or until all GPUs are lost, which is an error.
func (w *watcher) run(ctx context.Context) error {
	// Each GPU registers and then runs in a goroutine of its own.
	registered, ended := make(chan *watchedGPU, len(w.gpus)), make(chan bool, len(w.gpus))
	for _, g := range w.gpus {
		go func() {
			g.begin(w.resumed)
			registered <- g
			g.run(ctx)
			ended <- true
		}()
	}
	// Report the start of the watch, and then heartbeats and hanging calls at intervals.
	w.tellWatching(ctx, registered)
	beats := time.NewTicker(pollPause)
	defer beats.Stop()
	hanging := map[*wait]bool{}
	for left := len(w.gpus); ; {
		select {
		case <-ctx.Done():
			// Wait until the goroutines of all GPUs have ended.
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

// tellWatching reports how many GPUs are watched. It waits until all GPUs have registered, or until
// there was no progress for the collector's patience. GPUs that are not watched are then reported
// as events of KindUnwatched.
func (w *watcher) tellWatching(ctx context.Context, registered <-chan *watchedGPU) {
	watching := 0
	waited := map[*watchedGPU]bool{}
	for _, g := range w.gpus {
		waited[g] = true
	}
	late := time.NewTimer(w.patience)
	defer late.Stop()
	// Collect the results of the registrations, and report each one as progress.
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
	// The GPUs that have not registered in time are not watched either.
	for g := range waited {
		unwatched = append(unwatched, Event{Kind: KindUnwatched, GPU: g.slot, Detail: string(DriverUnresponsive)})
	}
	w.tell(line{Watching: &watching})
	slices.SortFunc(unwatched, func(a, b Event) int { return a.GPU - b.GPU })
	for _, e := range unwatched {
		report(w.tell, e)
	}
}

// tellHanging reports the calls that have not returned for hangTold, except those in its argument,
// which were reported earlier. It returns all of them, as the argument of the next call.
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

// beat sends a heartbeat with the counters of all GPUs.
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

// report sends an event, with the present time.
func report(tell func(line), e Event) {
	e.At = time.Now()
	tell(line{Event: &e})
}

// begin queries the identity and the links of a GPU, and registers for its events. resumed means
// that a recovery action that it already requests must be reported.
func (g *watchedGPU) begin(resumed bool) {
	if g.open(); g.device == nil {
		g.registered = g.gpu.Handle
		return
	}
	g.name()
	if !resumed { // an action that is requested now was reported by the checks before the job
		g.action, _ = g.recovery().Get()
	}
	g.links, g.c2c = g.active(), g.inspector.c2c().OrZero().Active
	g.registered = g.register()
}

// register registers for the events of the GPU. It returns SUCCESS or the reason why that failed.
// It requires support for Xids only, not for recovery actions.
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

// active returns the numbers of the active NVLinks.
func (g *watchedGPU) active() (links []int) {
	for _, link := range g.nvlinks() {
		if link.Active.OrZero() {
			links = append(links, link.Index)
		}
	}
	return links
}

// event returns an event of this GPU.
func (g *watchedGPU) event(kind Kind, detail string) Event {
	return Event{Kind: kind, GPU: g.slot, UUID: g.gpu.UUID.OrZero(), Bus: g.gpu.Bus.OrZero(), Detail: detail}
}

// run waits for an event and polls the GPU, in turn, until the context ends or the GPU is lost. If
// the events of the GPU cannot be received, it is only polled.
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
			g.eager = time.Now().Add(eagerTime) // poll the GPU at once, to find out whether it is lost
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

// unregister ends the registration for events.
func (g *watchedGPU) unregister() {
	if g.set != nil {
		_ = g.set.Free()
		g.set = nil
	}
}

// wait waits for an event of the GPU, for at most eventWait. It returns ERROR_TIMEOUT if there was
// none.
func (g *watchedGPU) wait(ctx context.Context) (nvml.EventData, nvml.Return) {
	if g.set == nil {
		pause.For(ctx, eventWait)
		return nvml.EventData{}, nvml.ERROR_TIMEOUT
	}
	defer g.asking(g.slot, "nvmlEventSetWait_v2")()
	return g.set.Wait(uint32(eventWait.Milliseconds()))
}

// take reports an event of the driver at once, before any other query: a driver with problems may
// hang in that query, and the event would be lost.
func (g *watchedGPU) take(d nvml.EventData) {
	g.eager = time.Now().Add(eagerTime)
	if d.EventType&xidEvents == 0 {
		return // a recovery event only means that the GPU must be polled
	}
	e := g.event(KindXid, "")
	e.Xid = int(min(d.EventData, mostXid))
	report(g.tell, e)
}

// look polls whether the GPU answers, and which recovery action it requests: every pollPause, but
// every eventWait for eagerTime after an event. NVML reports an Xid, but neither the action that it
// requires, nor which links are down. A change is reported once. look returns whether the GPU is
// lost.
func (g *watchedGPU) look() (lost bool) {
	now := time.Now()
	eager := now.Before(g.eager)
	if now.Sub(g.polled) < map[bool]time.Duration{true: eventWait, false: pollPause}[eager] {
		return false
	}
	g.polled = now
	// Query the handle and the recovery action: a lost GPU fails in one of them.
	handle := g.handle() // fails for a lost GPU
	action := unread[int](handle.Why)
	if handle.Value != nil {
		g.device = *handle.Value
		action = g.recovery()
	}
	if action.Why.Gone() {
		report(g.tell, g.event(KindLost, string(action.Why)))
		return true
	}
	// Report a new recovery action.
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
	// After an event look at the links, and otherwise at the counters.
	if eager {
		g.lookAtLinks()
	} else {
		g.count()
	}
	return false
}

// lookAtLinks reports links that have gone down since the last poll. A job that uses such a link
// would wait forever.
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

// slowing is a mask of the unwanted reasons for slower clocks, out of nvmlClocksEventReasons: heat
// (0x20, 0x40) and the power brake (0x80).
const slowing = 0x20 | 0x40 | 0x80

// count updates the counters in the tally.
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
