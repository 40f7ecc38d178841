package gpu

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeEvents is NVML, as the watch sees it. What it says may be changed at any
// time.
type fakeEvents struct {
	sync.Mutex
	init, count, create Return
	missing             []string
	gpus                []*fakeEventGPU
	events              chan driverEvent
	fails               Return // each wait, at once
	freed, shut         bool
	longest             time.Duration // that a wait was to last
}

func newFakeEvents(gpus int) *fakeEvents {
	f := &fakeEvents{init: Success, count: Success, create: Success, events: make(chan driverEvent, 100_000)}
	for i := range gpus {
		id := string(rune('0' + i))
		f.gpus = append(f.gpus, &fakeEventGPU{
			fake: f, uuid: "GPU-" + id, bus: "00000000:3" + id + ":00.0",
			reach: Success, supported: xidEvents | recoveryEvents | 0x4, register: Success, field: Success,
		})
	}
	return f
}

func (f *fakeEvents) Init() Return { return f.init }
func (f *fakeEvents) Shutdown() Return {
	f.shut = true
	return Success
}
func (f *fakeEvents) Missing() []string { return f.missing }
func (f *fakeEvents) EventGPUs() (gpus []eventGPU, ret Return) {
	for _, g := range f.gpus {
		gpus = append(gpus, g)
	}
	return gpus, f.count
}
func (f *fakeEvents) EventSet() (eventSet, Return) { return (*fakeEventSet)(f), f.create }

type fakeEventSet fakeEvents

func (s *fakeEventSet) Free() Return {
	s.freed = true
	return Success
}

func (s *fakeEventSet) Register(gpu int, events uint64) Return {
	g := s.gpus[gpu]
	if g.only != 0 && events != g.only {
		return NotSupported
	}
	if g.register == Success {
		g.registered = events
	}
	return g.register
}

func (s *fakeEventSet) Wait(limit time.Duration) (driverEvent, Return) {
	s.Lock()
	fails := s.fails
	s.longest = max(s.longest, limit)
	s.Unlock()
	if fails != "" {
		return driverEvent{}, fails
	}
	select {
	case e := <-s.events:
		return e, Success
	case <-time.After(limit):
		return driverEvent{}, timedOut
	}
}

type fakeEventGPU struct {
	fake                     *fakeEvents
	uuid, bus                string
	reach, register, field   Return
	supported, only          uint64
	registered               uint64
	recovery, asked, reached int
}

func (g *fakeEventGPU) Reach() Return {
	g.fake.Lock()
	defer g.fake.Unlock()
	g.reached++
	return g.reach
}
func (g *fakeEventGPU) UUID() (string, Return)      { return g.uuid, Success }
func (g *fakeEventGPU) Bus() (string, Return)       { return g.bus, Success }
func (g *fakeEventGPU) Supported() (uint64, Return) { return g.supported, Success }
func (g *fakeEventGPU) Recovery() (int, Return) {
	g.fake.Lock()
	defer g.fake.Unlock()
	g.asked++
	return g.recovery, g.field
}

func (f *fakeEvents) set(change func()) {
	f.Lock()
	defer f.Unlock()
	change()
}

// heard are the lines that a watch has told so far.
type heard struct {
	sync.Mutex
	begin time.Time
	lines []watchLine
	at    []time.Duration // since the beginning
}

func (h *heard) tell(line watchLine) error {
	h.Lock()
	defer h.Unlock()
	h.lines = append(h.lines, line)
	h.at = append(h.at, time.Since(h.begin))
	return nil
}

func (h *heard) events() (events []Event) {
	h.Lock()
	defer h.Unlock()
	for _, line := range h.lines {
		if line.Event != nil {
			e := *line.Event
			e.At = time.Time{}
			events = append(events, e)
		}
	}
	return events
}

// last is when the last event was told.
func (h *heard) last() (at time.Duration) {
	for i, line := range h.lines {
		if line.Event != nil {
			at = h.at[i]
		}
	}
	return at
}

// watched runs the watch over the fake while during runs, and returns how it
// ended.
func watched(t *testing.T, f *fakeEvents, during func(h *heard)) (told *heard, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h := &heard{begin: time.Now()}
	ended := make(chan error, 1)
	go func() { ended <- watch(ctx, f, h.tell) }()
	synctest.Wait() // all are registered
	during(h)
	synctest.Wait()
	cancel()
	return h, <-ended
}

func TestWatchLoop(t *testing.T) {
	gpu1 := Event{GPU: 1, UUID: "GPU-1", Bus: "0000:31:00.0"}
	as := func(e Event, change func(*Event)) Event {
		change(&e)
		return e
	}
	xid := func(number int) Event { return as(gpu1, func(e *Event) { e.Kind, e.Xid = KindXid, number }) }
	recovery := func(action int) Event {
		return as(gpu1, func(e *Event) { e.Kind, e.Recovery = KindRecovery, action })
	}
	lost := func(why Return) Event {
		return as(gpu1, func(e *Event) { e.Kind, e.Detail = KindLost, string(why) })
	}
	for name, c := range map[string]struct {
		before func(f *fakeEvents)
		during func(f *fakeEvents)
		want   []Event
		told   time.Duration // at the latest, for the last
	}{
		"nothing": {during: func(*fakeEvents) { time.Sleep(time.Hour) }},
		"an Xid": {
			during: func(f *fakeEvents) { f.events <- driverEvent{gpu: 1, kind: xidEvents, data: 79} },
			want:   []Event{xid(79)},
		},
		"of a handle that we do not know": {
			during: func(f *fakeEvents) { f.events <- driverEvent{gpu: -1, uuid: "GPU-1", kind: xidEvents, data: 79} },
			want:   []Event{xid(79)},
		},
		"of a GPU that we do not know": {
			during: func(f *fakeEvents) { f.events <- driverEvent{gpu: -1, uuid: "MIG-1", kind: xidEvents, data: 79} },
			want:   []Event{{Kind: KindXid, Xid: 79, GPU: -1, UUID: "MIG-1"}},
		},
		"of nobody knows whom": {
			during: func(f *fakeEvents) { f.events <- driverEvent{gpu: -1, kind: xidEvents, data: 79} },
			want:   []Event{{Kind: KindXid, Xid: 79, GPU: -1}},
		},
		"of no such index": {
			during: func(f *fakeEvents) { f.events <- driverEvent{gpu: 8, kind: xidEvents, data: 79} },
			want:   []Event{{Kind: KindXid, Xid: 79, GPU: -1}},
		},
		"a number that is none": {
			during: func(f *fakeEvents) { f.events <- driverEvent{gpu: 1, kind: xidEvents, data: 1 << 63} },
			want:   []Event{xid(mostXid)},
		},
		"what we have not asked for": {
			during: func(f *fakeEvents) { f.events <- driverEvent{gpu: 1, kind: 0x4} },
		},
		"asks for a reset, after the event": {
			during: func(f *fakeEvents) {
				f.events <- driverEvent{gpu: 1, kind: xidEvents, data: 154}
				time.Sleep(2 * time.Second)
				f.set(func() { f.gpus[1].recovery = 1 })
			},
			want: []Event{xid(154), recovery(1)},
			told: 3 * time.Second,
		},
		"asks for a reset, by an event": {
			during: func(f *fakeEvents) {
				f.set(func() { f.gpus[1].recovery = 1 })
				f.events <- driverEvent{gpu: 1, kind: recoveryEvents}
			},
			want: []Event{recovery(1)},
			told: time.Second,
		},
		"asks for a reset, without any": {
			during: func(f *fakeEvents) { f.set(func() { f.gpus[1].recovery = 1 }) },
			want:   []Event{recovery(1)},
			told:   11 * time.Second,
		},
		"asked for it before": {
			before: func(f *fakeEvents) { f.gpus[1].recovery = 1 },
			during: func(f *fakeEvents) { f.events <- driverEvent{gpu: 1, kind: xidEvents, data: 154} },
			want:   []Event{xid(154)},
		},
		"asks for more": {
			before: func(f *fakeEvents) { f.gpus[1].recovery = 1 },
			during: func(f *fakeEvents) { f.set(func() { f.gpus[1].recovery = 2 }) },
			want:   []Event{recovery(2)},
		},
		"asks, does not, and does again": {
			during: func(f *fakeEvents) {
				for _, action := range []int{1, 0, 1} {
					f.set(func() { f.gpus[1].recovery = action })
					time.Sleep(15 * time.Second)
				}
			},
			want: []Event{recovery(1), recovery(1)},
		},
		"an older driver, which has no such field": {
			before: func(f *fakeEvents) { f.gpus[1].field, f.gpus[1].recovery = NotSupported, 1 },
			during: func(f *fakeEvents) { f.events <- driverEvent{gpu: 1, kind: xidEvents, data: 154} },
			want:   []Event{xid(154)},
		},
		"lost": {
			during: func(f *fakeEvents) { f.set(func() { f.gpus[1].reach = GPUIsLost }) },
			want:   []Event{lost(GPUIsLost)},
			told:   11 * time.Second,
		},
		"lost, as the field tells": {
			during: func(f *fakeEvents) { f.set(func() { f.gpus[1].field = GPUIsLost }) },
			want:   []Event{lost(GPUIsLost)},
		},
		"needs a reset": {
			during: func(f *fakeEvents) { f.set(func() { f.gpus[1].reach = ResetRequired }) },
			want:   []Event{lost(ResetRequired)},
		},
		"lost, and each wait says so for a while": {
			during: func(f *fakeEvents) {
				f.set(func() { f.fails, f.gpus[1].reach = GPUIsLost, GPUIsLost })
				time.Sleep(5 * time.Second)
				f.set(func() { f.fails = "" })
				f.events <- driverEvent{gpu: 0, kind: xidEvents, data: 45}
			},
			want: []Event{lost(GPUIsLost), {Kind: KindXid, Xid: 45, GPU: 0, UUID: "GPU-0", Bus: "0000:30:00.0"}},
		},
		"can't be looked up for a while": {
			during: func(f *fakeEvents) { f.set(func() { f.gpus[1].reach = UnknownError }) },
		},
		"can't be watched": {
			before: func(f *fakeEvents) { f.gpus[1].register = NotSupported },
			during: func(f *fakeEvents) { f.events <- driverEvent{gpu: 0, kind: xidEvents, data: 45} },
			want: []Event{
				as(gpu1, func(e *Event) { e.Kind, e.Detail = KindUnwatched, string(NotSupported) }),
				{Kind: KindXid, Xid: 45, GPU: 0, UUID: "GPU-0", Bus: "0000:30:00.0"},
			},
		},
		"has no Xids": {
			before: func(f *fakeEvents) { f.gpus[1].supported = recoveryEvents },
			during: func(*fakeEvents) {},
			want:   []Event{as(gpu1, func(e *Event) { e.Kind, e.Detail = KindUnwatched, string(NotSupported) })},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeEvents(2)
				if c.before != nil {
					c.before(f)
				}
				told, err := watched(t, f, func(*heard) {
					c.during(f)
					time.Sleep(time.Minute)
				})
				if err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(c.want, told.events()); diff != "" {
					t.Error(diff)
				}
				if told.lines[0].Watching == nil {
					t.Errorf("the first line is %+v", told.lines[0])
				}
				if at := told.last(); c.told > 0 && at > c.told {
					t.Errorf("told after %v", at)
				}
				if f.longest > eventWait || !f.freed {
					t.Errorf("waited for %v at a time; freed: %v", f.longest, f.freed)
				}
			})
		})
	}
}

// The parent starts the job's driver at the first line: all must be registered.
func TestWatchRegistersFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEvents(4)
		f.gpus[1].supported = xidEvents // an older driver
		f.gpus[2].only = xidEvents      // says that it can, and can't
		f.gpus[3].register = GPUIsLost
		registered := func() (events []uint64) {
			for _, g := range f.gpus {
				events = append(events, g.registered)
			}
			return events
		}
		want := []uint64{xidEvents | recoveryEvents, xidEvents, xidEvents, 0}
		err := watch(t.Context(), f, func(line watchLine) error {
			if line.Watching == nil || *line.Watching != 3 {
				t.Errorf("the first line is %+v", line)
			}
			if diff := cmp.Diff(want, registered()); diff != "" {
				t.Error(diff)
			}
			return io.ErrClosedPipe
		})
		if !errors.Is(err, io.ErrClosedPipe) || !f.freed {
			t.Errorf("goes on with nobody listening: %v", err)
		}
	})
}

func TestWatchCannotBegin(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakeEvents)
		says   string
	}{
		"too old":  {func(f *fakeEvents) { f.missing = []string{"nvmlEventSetCreate"} }, "nvmlEventSetCreate"},
		"no count": {func(f *fakeEvents) { f.count = UnknownError }, "UNKNOWN"},
		"no set":   {func(f *fakeEvents) { f.create = OperatingSystem }, "OPERATING_SYSTEM"},
	} {
		f := newFakeEvents(1)
		c.change(f)
		err := watch(t.Context(), f, func(line watchLine) error {
			t.Errorf("%s: told %+v", name, line)
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A wait that fails at once must not take the node's time, and one that fails
// for ever must not look like a watch.
func TestWatchGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEvents(1)
		f.fails = UnknownError
		begin := time.Now()
		err := watch(t.Context(), f, func(watchLine) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "12 waits in a row have returned UNKNOWN") {
			t.Error(err)
		}
		if took := time.Since(begin); took < 20*time.Second || took > 2*time.Minute {
			t.Errorf("gives up after %v", took)
		}
	})
}

// A GPU that fails a thousand times a second is looked at as often as any.
func TestWatchUnderAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEvents(1)
		const all = 10_000
		told, err := watched(t, f, func(*heard) {
			for range all {
				f.events <- driverEvent{gpu: 0, kind: xidEvents, data: 31}
				time.Sleep(time.Millisecond)
			}
		})
		if err != nil || len(told.events()) != all {
			t.Errorf("%d events are told: %v", len(told.events()), err)
		}
		if f.gpus[0].asked > 40 || f.gpus[0].asked < 10 {
			t.Errorf("the GPU was asked %d times in 10 s", f.gpus[0].asked)
		}
	})
}

// While nothing happens the parent hears that the driver answers.
func TestWatchBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, err := watched(t, newFakeEvents(1), func(*heard) { time.Sleep(time.Hour) })
		if err != nil {
			t.Error(err)
		}
		for i := 1; i < len(told.at); i++ {
			if gap := told.at[i] - told.at[i-1]; gap > WatchSilence/4 {
				t.Errorf("silent for %v", gap)
			}
		}
		if len(told.lines) > 400 {
			t.Errorf("%d lines", len(told.lines))
		}
	})
}

// The child ends with its standard input, also where the driver hangs.
func TestWatchMainEndsWithItsInput(t *testing.T) {
	for name, hangs := range map[string]bool{"the driver answers": false, "the driver hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeEvents(1)
				var lib eventLibrary = f
				release := make(chan struct{})
				if hangs {
					lib = hangingEvents{f, release}
				}
				in, parent := io.Pipe()
				ended := make(chan int, 1)
				begin := time.Now()
				go func() { ended <- watchMain(t.Context(), lib, "", in, io.Discard) }()
				time.Sleep(time.Minute)
				parent.Close()
				if code := <-ended; (code != 0) != hangs {
					t.Errorf("ends with code %d", code)
				}
				if took := time.Since(begin) - time.Minute; took > watchGrace {
					t.Errorf("ends after %v", took)
				}
				close(release)
				synctest.Wait()
				if !f.shut {
					t.Error("NVML is not shut down")
				}
			})
		})
	}
}

// hangingEvents is a library whose set of events can't be made until release.
type hangingEvents struct {
	*fakeEvents
	release chan struct{}
}

func (h hangingEvents) EventSet() (eventSet, Return) {
	<-h.release
	return h.fakeEvents.EventSet()
}

func TestWatchMainTellsWhy(t *testing.T) {
	f := newFakeEvents(1)
	f.init = DriverNotLoaded
	in, parent := io.Pipe()
	defer parent.Close()
	var out strings.Builder
	if code := watchMain(t.Context(), f, "", in, &out); code != 1 {
		t.Errorf("ends with code %d", code)
	}
	line, err := decodeWatchLine([]byte(out.String()))
	if err != nil || !strings.Contains(line.Ended, "DRIVER_NOT_LOADED") || f.shut {
		t.Errorf("says %q: %v; shut down: %v", out.String(), err, f.shut)
	}
}
