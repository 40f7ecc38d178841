//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
)

const (
	// timeout of each wait for an event, so that the end of the context is detected soon
	eventWaitTimeout = 500 * time.Millisecond
	// duration of more frequent polls after an event, because the driver decides on the recovery
	// action later
	eagerPollPeriod = 5 * time.Second
	// pause after a failed wait for events; doubled each time
	minFailPause = 100 * time.Millisecond
	maxFailPause = 10 * time.Second
	// consecutive failed waits after which no event can be expected; reached after 43 s
	maxFailedWaits = 12
	// hangThreshold is the time after which a call is reported as hanging. A call to a GPU's own
	// processor (GSP) that gets no answer returns after 45 s, with a more informative error.
	hangThreshold = 50 * time.Second
)

// The types of events that are watched, from nvmlEventType*. Drivers have the second since they
// have field 230.
const (
	xidEventMask      uint64 = nvml.EventTypeXidCriticalError
	recoveryEventMask uint64 = nvml.EventTypeGpuRecoveryAction
)

// requiredFunctions are the functions of NVML that the watch cannot do without.
var requiredFunctions = []string{
	"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo",
	"nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", "nvmlDeviceGetFieldValues",
	"nvmlEventSetCreate", "nvmlEventSetWait", "nvmlEventSetFree",
}

// missingFunctions returns the names of the functions that the watch calls and the library lacks. A
// call of a missing function would end the process.
func missingFunctions(lib nvml.Interface) (missing []string) {
	for _, function := range requiredFunctions {
		if name, found := findSymbol(lib, function); !found {
			missing = append(missing, name)
		}
	}
	return missing
}

// watchedGPU is a GPU that is watched. Its fields are used only by its own goroutine.
type watchedGPU struct {
	inspector
	send         func(message)
	eventSet     nvml.EventSet
	registration NVMLReturn // SUCCESS, or the reason why its events are not reported
	lastAction   int        // recovery action at the last poll
	activeLinks  []int      // NVLinks that were active at the last poll
	activeC2C    int        // active links to the CPU at the last poll
	lastPoll     time.Time
	eagerUntil   time.Time // until this time it is polled after each wait
}

// watchGPUs registers for the events of all GPUs, reports how many GPUs are watched, and reports
// events, one per line, until the context ends. Every GPU has a goroutine and an event set of its
// own, so that a GPU that hangs does not delay the events of the others. watchGPUs returns an error
// if it cannot continue, also if all GPUs are lost.
func watchGPUs(ctx context.Context, c *collector, what request, tell func(message)) error {
	if missing := missingFunctions(c.lib); len(missing) > 0 {
		return fmt.Errorf("the NVML library lacks %s: the NVIDIA driver is too old", strings.Join(missing, ", "))
	}
	count, ret := c.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("cannot count the GPUs: %s", returnName(ret))
	}
	gpus := make(map[*watchedGPU]bool)
	registered, ended := make(chan *watchedGPU, count), make(chan bool, count)
	for i := range count {
		one := inspector{collector: c, slot: i, gpu: &GPU{Index: i}}
		g := &watchedGPU{inspector: one, send: tell}
		gpus[g] = true
		go func() {
			g.startWatch(what == requestResume)
			registered <- g
			g.run(ctx)
			ended <- true
		}()
	}
	// Report the start of the watch, and then heartbeats and hanging calls at intervals.
	reportWatching(ctx, gpus, registered, tell)
	beats := time.NewTicker(pollInterval)
	defer beats.Stop()
	hanging := map[*pendingCall]bool{}
	for left := count; ; {
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
			hanging = c.reportHanging(hanging, tell)
			tell(message{Heartbeat: true})
		}
	}
}

// reportWatching reports how many GPUs are watched. It waits until all GPUs have registered, or
// until there was no progress for gpuProgressTimeout. GPUs that are not watched are then
// reported as events of KindUnwatched.
func reportWatching(
	ctx context.Context, waited map[*watchedGPU]bool, registered <-chan *watchedGPU,
	tell func(message),
) {
	watching, total := 0, len(waited)
	late := time.NewTimer(gpuProgressTimeout)
	defer late.Stop()
	// Collect the results of the registrations, and report each one as progress.
	var unwatched []Event
	for over := false; len(waited) > 0 && !over; {
		select {
		case g := <-registered:
			delete(waited, g)
			late.Reset(gpuProgressTimeout)
			tell(message{Progress: &Progress{Initialised: total - len(waited), Total: total}})
			if g.registration == Success {
				watching++
			} else {
				unwatched = append(unwatched, g.newEvent(KindUnwatched, string(g.registration)))
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
	tell(message{Watching: &watching})
	slices.SortFunc(unwatched, func(a, b Event) int { return a.GPU - b.GPU })
	for _, e := range unwatched {
		sendEvent(tell, e)
	}
}

// reportHanging reports the calls that have not returned for hangThreshold, except those in its
// argument, which were reported earlier. It returns all of them, as the argument of the next call.
func (c *collector) reportHanging(
	reported map[*pendingCall]bool, tell func(message),
) map[*pendingCall]bool {
	hanging := map[*pendingCall]bool{}
	for _, call := range c.overdueCalls(hangThreshold) {
		if hanging[call] = true; !reported[call] && call.slot != systemSlot {
			sendEvent(tell, Event{Kind: KindSilent, GPU: call.slot,
				Detail: fmt.Sprintf("%s has not returned for %v", call.function, hangThreshold)})
		}
	}
	return hanging
}

func sendEvent(tell func(message), e Event) {
	e.At = time.Now()
	tell(message{Event: &e})
}

// startWatch queries the identity and the links of a GPU, and registers for its events. resumed
// means that a recovery action that it already requests must be reported.
func (g *watchedGPU) startWatch(resumed bool) {
	if g.openDevice(); g.device == nil {
		g.registration = g.gpu.Handle
		return
	}
	g.queryAddress()
	if !resumed { // an action that is requested now was reported by the checks before the job
		g.lastAction, _ = g.recoveryAction().Get()
	}
	g.activeLinks, g.activeC2C = g.activeNVLinks(), g.inspector.c2cLinks().OrZero().Active
	g.registration = g.registerEvents()
}

// registerEvents registers for the events of the GPU. It returns SUCCESS or the reason why that
// failed. It requires support for Xids only, not for recovery actions.
func (g *watchedGPU) registerEvents() NVMLReturn {
	defer g.trackCall(g.slot, "nvmlDeviceRegisterEvents")()
	set, ret := g.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return returnName(ret)
	}
	events := xidEventMask
	if supported, ret := g.device.GetSupportedEventTypes(); ret == nvml.SUCCESS {
		if events = supported & (xidEventMask | recoveryEventMask); events&xidEventMask == 0 {
			_ = set.Free()
			return NotSupported
		}
	}
	ret = g.device.RegisterEvents(events, set)
	if ret != nvml.SUCCESS && events != xidEventMask {
		ret = g.device.RegisterEvents(xidEventMask, set)
	}
	if ret != nvml.SUCCESS {
		_ = set.Free()
		return returnName(ret)
	}
	g.eventSet = set
	return Success
}

func (g *watchedGPU) activeNVLinks() (links []int) {
	for _, link := range g.queryNVLinks() {
		if link.Active.OrZero() {
			links = append(links, link.Index)
		}
	}
	return links
}

func (g *watchedGPU) newEvent(kind EventKind, detail string) Event {
	return Event{Kind: kind, GPU: g.slot, UUID: g.gpu.UUID.OrZero(), Bus: g.gpu.Bus.OrZero(), Detail: detail}
}

// run waits for an event and polls the GPU, in turn, until the context ends or the GPU is lost. If
// the events of the GPU cannot be received, it is only polled.
func (g *watchedGPU) run(ctx context.Context) {
	defer g.unregisterEvents()
	g.lastPoll = time.Now()
	failed := 0
	for ctx.Err() == nil {
		switch event, ret := g.awaitEvent(ctx); ret {
		case nvml.SUCCESS:
			failed = 0
			g.handleEvent(event)
		case nvml.ERROR_TIMEOUT:
			failed = 0
		default:
			// poll the GPU at once, to find out whether it is lost
			g.eagerUntil = time.Now().Add(eagerPollPeriod)
			if failed++; failed < maxFailedWaits {
				ctxutil.SleepContext(ctx, min(minFailPause<<(failed-1), maxFailPause))
			} else {
				sendEvent(g.send, g.newEvent(KindUnwatched,
					fmt.Sprintf("%d consecutive waits returned %s", failed, returnName(ret))))
				g.unregisterEvents()
			}
		}
		if lost := g.pollGPU(); lost {
			return
		}
	}
}

func (g *watchedGPU) unregisterEvents() {
	if g.eventSet != nil {
		_ = g.eventSet.Free()
		g.eventSet = nil
	}
}

// awaitEvent waits for an event of the GPU, for at most eventWaitTimeout. It returns ERROR_TIMEOUT
// if there was none.
func (g *watchedGPU) awaitEvent(ctx context.Context) (nvml.EventData, nvml.Return) {
	if g.eventSet == nil {
		ctxutil.SleepContext(ctx, eventWaitTimeout)
		return nvml.EventData{}, nvml.ERROR_TIMEOUT
	}
	defer g.trackCall(g.slot, "nvmlEventSetWait_v2")()
	return g.eventSet.Wait(uint32(eventWaitTimeout.Milliseconds()))
}

// handleEvent reports an event of the driver at once, before any other query: a driver with
// problems may hang in that query, and the event would be lost.
func (g *watchedGPU) handleEvent(d nvml.EventData) {
	g.eagerUntil = time.Now().Add(eagerPollPeriod)
	if d.EventType&xidEventMask == 0 {
		return // a recovery event only means that the GPU must be polled
	}
	e := g.newEvent(KindXid, "")
	e.Xid = int(min(d.EventData, maxXid))
	sendEvent(g.send, e)
}

// pollGPU polls whether the GPU answers, and which recovery action it requests: every pollInterval,
// but every eventWaitTimeout for eagerPollPeriod after an event. NVML reports an Xid, but neither
// the action that it requires, nor which links are down. A change is reported once. pollGPU returns
// whether the GPU is lost.
func (g *watchedGPU) pollGPU() (lost bool) {
	now := time.Now()
	eager := now.Before(g.eagerUntil)
	if now.Sub(g.lastPoll) < map[bool]time.Duration{true: eventWaitTimeout, false: pollInterval}[eager] {
		return false
	}
	g.lastPoll = now
	// Query the handle and the recovery action: a lost GPU fails in one of them.
	handle := g.queryHandle() // fails for a lost GPU
	action := missingReading[int](handle.Reason)
	if handle.Value != nil {
		g.device = *handle.Value
		action = g.recoveryAction()
	}
	if action.Reason.IsPermanentLoss() {
		sendEvent(g.send, g.newEvent(KindLost, string(action.Reason)))
		return true
	}
	// Report a new recovery action.
	if wanted, ok := action.Get(); ok && wanted != g.lastAction { // older drivers have no such field
		if g.lastAction = wanted; wanted != 0 {
			e := g.newEvent(KindRecovery, "")
			e.Recovery = wanted
			sendEvent(g.send, e)
		}
	}
	if g.device != nil && eager {
		g.pollLinks()
	}
	return false
}

// pollLinks reports links that have gone down since the last poll. A job that uses such a link
// would wait forever.
func (g *watchedGPU) pollLinks() {
	now := g.activeNVLinks()
	down := slices.DeleteFunc(slices.Clone(g.activeLinks), func(link int) bool { return slices.Contains(now, link) })
	if len(down) > 0 {
		list := strings.Trim(strings.ReplaceAll(fmt.Sprint(down), " ", ", "), "[]")
		sendEvent(g.send, g.newEvent(KindLink, textutil.PluralForm(len(down), "link")+" "+list))
	}
	g.activeLinks = now
	part, ok := g.inspector.c2cLinks().Get()
	if ok && part.Active < g.activeC2C {
		sendEvent(g.send, g.newEvent(KindC2C, fmt.Sprintf("%d of %d are active", part.Active, part.Total)))
	}
	if ok {
		g.activeC2C = part.Active
	}
}
