package gpu

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	eventWait   = 500 * time.Millisecond // so the end is seen soon
	pollPause   = 10 * time.Second       // between two looks at all GPUs
	eagerTime   = 5 * time.Second        // after an event GPUs are looked at more often: the action is settled later
	failPause   = 100 * time.Millisecond // after a wait that failed; doubled each time
	failMost    = 10 * time.Second
	failedWaits = 12 // in a row: then no event is to be hoped for. It takes 43 s
)

// watcher tells of what befalls the GPUs, one line each.
type watcher struct {
	set  eventSet
	gpus []*watchedGPU
	tell func(watchLine) error

	polled time.Time // when all were looked at
	eager  time.Time // until when they are looked at in each round
}

type watchedGPU struct {
	eventGPU
	index     int
	uuid, bus string
	recovery  int // the action that was asked for when we last looked
	lost      bool
}

// watch registers for the events of all GPUs, says so, and tells of them until
// the context ends. The error says why it can't go on.
func watch(ctx context.Context, lib eventLibrary, tell func(watchLine) error) error {
	if missing := lib.Missing(); len(missing) > 0 {
		return fmt.Errorf("the library lacks %s: its driver is too old", strings.Join(missing, ", "))
	}
	handles, ret := lib.EventGPUs()
	if ret != Success {
		return fmt.Errorf("the GPUs can't be counted: %s", ret)
	}
	set, ret := lib.EventSet()
	if ret != Success {
		return fmt.Errorf("there is no set of events: %s", ret)
	}
	defer set.Free()
	w := &watcher{set: set, tell: tell}
	for i, handle := range handles {
		w.gpus = append(w.gpus, know(i, handle))
	}
	unwatched := w.register()
	watching := len(handles) - len(unwatched)
	if err := tell(watchLine{Watching: &watching}); err != nil {
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
func know(index int, handle eventGPU) *watchedGPU {
	g := &watchedGPU{eventGPU: handle, index: index}
	if uuid, ret := handle.UUID(); ret == Success {
		g.uuid = uuid
	}
	if bus, ret := handle.Bus(); ret == Success {
		g.bus = busText(bus)
	}
	// What it asks for already is the checks' affair, before the driver starts.
	if action, ret := handle.Recovery(); ret == Success {
		g.recovery = action
	}
	return g
}

// register asks the driver for the events of all GPUs. It returns an event for
// each GPU whose events can't be had.
func (w *watcher) register() (unwatched []Event) {
	for _, g := range w.gpus {
		if ret := w.registerOne(g); ret != Success {
			event := g.event(KindUnwatched)
			event.Detail = string(ret)
			unwatched = append(unwatched, event)
		}
	}
	return unwatched
}

func (w *watcher) registerOne(g *watchedGPU) Return {
	events := xidEvents
	if supported, ret := g.Supported(); ret == Success {
		if events = supported & (xidEvents | recoveryEvents); events&xidEvents == 0 {
			return NotSupported
		}
	}
	ret := w.set.Register(g.index, events)
	if ret != Success && events != xidEvents {
		ret = w.set.Register(g.index, xidEvents)
	}
	return ret
}

func (g *watchedGPU) event(kind Kind) Event {
	return Event{Kind: kind, GPU: g.index, UUID: g.uuid, Bus: g.bus}
}

func (w *watcher) report(e Event) error {
	e.At = time.Now()
	return w.tell(watchLine{Event: &e})
}

// run waits for events and looks at the GPUs, in turn.
func (w *watcher) run(ctx context.Context) error {
	w.polled = time.Now()
	failed := 0
	for ctx.Err() == nil {
		event, ret := w.set.Wait(eventWait)
		switch ret {
		case Success:
			failed = 0
			if err := w.take(event); err != nil {
				return err
			}
		case timedOut:
			failed = 0
		default:
			// Whoever is lost, the look at the GPUs tells.
			w.eager = time.Now().Add(eagerTime)
			if failed++; failed >= failedWaits {
				return fmt.Errorf("the driver tells of no events any more: %d waits in a row have returned %s", failed, ret)
			}
			pause(ctx, min(failPause<<(failed-1), failMost))
		}
		if err := w.look(); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for that long, or for the end of the context.
func pause(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// take tells of an event of the driver at once, before the GPU is asked
// anything: a driver in trouble may hang, and then this is its last word.
func (w *watcher) take(d driverEvent) error {
	w.eager = time.Now().Add(eagerTime)
	if d.kind&xidEvents == 0 {
		return nil // a recovery event says only that we are to look
	}
	e := Event{Kind: KindXid, GPU: -1, UUID: d.uuid}
	if d.gpu >= 0 && d.gpu < len(w.gpus) {
		e = w.gpus[d.gpu].event(KindXid)
	} else if d.uuid != "" {
		for _, g := range w.gpus {
			if g.uuid == d.uuid {
				e = g.event(KindXid)
			}
		}
	}
	e.Xid = int(min(d.data, mostXid))
	return w.report(e)
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
		event, is := g.look()
		if !is {
			continue
		}
		if err := w.report(event); err != nil {
			return err
		}
	}
	return w.tell(watchLine{Beat: true})
}

// look asks one GPU. It tells of a change, once.
func (g *watchedGPU) look() (event Event, is bool) {
	if g.lost {
		return Event{}, false
	}
	action, ret := 0, g.Reach()
	if !gone(ret) {
		action, ret = g.Recovery()
	}
	switch {
	case gone(ret):
		g.lost = true
		event = g.event(KindLost)
		event.Detail = string(ret)
		return event, true
	case ret != Success || action == g.recovery:
		return Event{}, false // older drivers have no such field
	}
	g.recovery = action
	event = g.event(KindRecovery)
	event.Recovery = action
	return event, action != 0
}

// gone tells of an answer that the GPU will give for ever, until somebody acts.
func gone(ret Return) bool { return ret == GPUIsLost || ret == ResetRequired }
