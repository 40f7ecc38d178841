//go:build linux && cgo

package gpu

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// fakeEvents is NVML, as the watch sees it: it can't be asked for more. What it
// says may be changed at any time.
type fakeEvents struct {
	nvml.Interface
	nvml.ExtendedInterface
	sync.Mutex
	init, count, create nvml.Return
	missing             []string
	gpus                []*fakeEventGPU
	events              chan nvml.EventData
	fails               nvml.Return // each wait, at once
	freed, shut         bool
	longest             time.Duration // that a wait was to last
}

func newFakeEvents(gpus int) *fakeEvents {
	f := &fakeEvents{events: make(chan nvml.EventData, 100_000)}
	for i := range gpus {
		id := string(rune('0' + i))
		g := &fakeEventGPU{fake: f, uuid: "GPU-" + id, supported: xidEvents | recoveryEvents | 0x4}
		for at, c := range "00000000:3" + id + ":00.0" {
			g.pci.BusId[at] = int8(c)
		}
		f.gpus = append(f.gpus, g)
	}
	return f
}

func (f *fakeEvents) Init() nvml.Return { return f.init }
func (f *fakeEvents) Shutdown() nvml.Return {
	f.shut = true
	return nvml.SUCCESS
}
func (f *fakeEvents) Extensions() nvml.ExtendedInterface { return f }
func (f *fakeEvents) LookupSymbol(symbol string) error {
	if slices.Contains(f.missing, symbol) {
		return errors.New("no such symbol")
	}
	return nil
}
func (f *fakeEvents) DeviceGetCount() (int, nvml.Return) { return len(f.gpus), f.count }
func (f *fakeEvents) DeviceGetHandleByIndex(index int) (nvml.Device, nvml.Return) {
	f.Lock()
	defer f.Unlock()
	if ret := f.gpus[index].reach; ret != nvml.SUCCESS {
		return nil, ret
	}
	return f.gpus[index], nvml.SUCCESS
}
func (f *fakeEvents) EventSetCreate() (nvml.EventSet, nvml.Return) {
	return (*fakeEventSet)(f), f.create
}

// event is one that the driver tells of a GPU.
func (f *fakeEvents) event(gpu int, kind, data uint64) nvml.EventData {
	return nvml.EventData{Device: f.gpus[gpu], EventType: kind, EventData: data}
}

type fakeEventSet fakeEvents

func (s *fakeEventSet) Free() nvml.Return {
	s.freed = true
	return nvml.SUCCESS
}

func (s *fakeEventSet) Wait(milliseconds uint32) (nvml.EventData, nvml.Return) {
	limit := time.Duration(milliseconds) * time.Millisecond
	s.Lock()
	fails := s.fails
	s.longest = max(s.longest, limit)
	s.Unlock()
	if fails != nvml.SUCCESS {
		return nvml.EventData{}, fails
	}
	select {
	case e := <-s.events:
		return e, nvml.SUCCESS
	case <-time.After(limit):
		return nvml.EventData{}, nvml.ERROR_TIMEOUT
	}
}

type fakeEventGPU struct {
	nvml.Device
	fake                   *fakeEvents
	uuid                   string
	pci                    nvml.PciInfo
	reach, register, field nvml.Return
	supported, only        uint64
	registered             uint64
	recovery, asked        int
}

func (g *fakeEventGPU) GetUUID() (string, nvml.Return) {
	if g.uuid == "" {
		return "", nvml.ERROR_NOT_SUPPORTED
	}
	return g.uuid, nvml.SUCCESS
}
func (g *fakeEventGPU) GetPciInfo() (nvml.PciInfo, nvml.Return) { return g.pci, nvml.SUCCESS }
func (g *fakeEventGPU) GetSupportedEventTypes() (uint64, nvml.Return) {
	return g.supported, nvml.SUCCESS
}
func (g *fakeEventGPU) GetFieldValues(values []nvml.FieldValue) nvml.Return {
	g.fake.Lock()
	defer g.fake.Unlock()
	g.asked++
	values[0].ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_INT)
	binary.NativeEndian.PutUint32(values[0].Value[:], uint32(g.recovery))
	return g.field
}
func (g *fakeEventGPU) RegisterEvents(events uint64, _ nvml.EventSet) nvml.Return {
	if g.only != 0 && events != g.only {
		return nvml.ERROR_NOT_SUPPORTED
	}
	if g.register == nvml.SUCCESS {
		g.registered = events
	}
	return g.register
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
	lines []line
	at    []time.Duration // since the beginning
}

func (h *heard) tell(l line) {
	h.Lock()
	defer h.Unlock()
	h.lines = append(h.lines, l)
	h.at = append(h.at, time.Since(h.begin))
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
			during: func(f *fakeEvents) { f.events <- f.event(1, xidEvents, 79) },
			want:   []Event{xid(79)},
		},
		"of a handle that we do not know": {
			during: func(f *fakeEvents) {
				f.events <- nvml.EventData{Device: &fakeEventGPU{uuid: "GPU-1"}, EventType: xidEvents, EventData: 79}
			},
			want: []Event{xid(79)},
		},
		"of a GPU that we do not know": {
			during: func(f *fakeEvents) {
				f.events <- nvml.EventData{Device: &fakeEventGPU{uuid: "MIG-1"}, EventType: xidEvents, EventData: 79}
			},
			want: []Event{{Kind: KindXid, Xid: 79, GPU: -1, UUID: "MIG-1"}},
		},
		"of nobody knows whom": {
			during: func(f *fakeEvents) { f.events <- nvml.EventData{EventType: xidEvents, EventData: 79} },
			want:   []Event{{Kind: KindXid, Xid: 79, GPU: -1}},
		},
		"of a GPU without a name": {
			during: func(f *fakeEvents) {
				f.events <- nvml.EventData{Device: &fakeEventGPU{}, EventType: xidEvents, EventData: 79}
			},
			want: []Event{{Kind: KindXid, Xid: 79, GPU: -1}},
		},
		"a number that is none": {
			during: func(f *fakeEvents) { f.events <- f.event(1, xidEvents, 1<<63) },
			want:   []Event{xid(mostXid)},
		},
		"what we have not asked for": {
			during: func(f *fakeEvents) { f.events <- f.event(1, 0x4, 0) },
		},
		"asks for a reset, after the event": {
			during: func(f *fakeEvents) {
				f.events <- f.event(1, xidEvents, 154)
				time.Sleep(2 * time.Second)
				f.set(func() { f.gpus[1].recovery = 1 })
			},
			want: []Event{xid(154), recovery(1)},
			told: 3 * time.Second,
		},
		"asks for a reset, by an event": {
			during: func(f *fakeEvents) {
				f.set(func() { f.gpus[1].recovery = 1 })
				f.events <- f.event(1, recoveryEvents, 0)
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
			during: func(f *fakeEvents) { f.events <- f.event(1, xidEvents, 154) },
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
			before: func(f *fakeEvents) { f.gpus[1].field, f.gpus[1].recovery = nvml.ERROR_NOT_SUPPORTED, 1 },
			during: func(f *fakeEvents) { f.events <- f.event(1, xidEvents, 154) },
			want:   []Event{xid(154)},
		},
		"lost": {
			during: func(f *fakeEvents) { f.set(func() { f.gpus[1].reach = nvml.ERROR_GPU_IS_LOST }) },
			want:   []Event{lost(GPUIsLost)},
			told:   11 * time.Second,
		},
		"lost, as the field tells": {
			during: func(f *fakeEvents) { f.set(func() { f.gpus[1].field = nvml.ERROR_GPU_IS_LOST }) },
			want:   []Event{lost(GPUIsLost)},
		},
		"needs a reset": {
			during: func(f *fakeEvents) { f.set(func() { f.gpus[1].reach = nvml.ERROR_RESET_REQUIRED }) },
			want:   []Event{lost(ResetRequired)},
		},
		"lost, and each wait says so for a while": {
			during: func(f *fakeEvents) {
				f.set(func() { f.fails, f.gpus[1].reach = nvml.ERROR_GPU_IS_LOST, nvml.ERROR_GPU_IS_LOST })
				time.Sleep(5 * time.Second)
				f.set(func() { f.fails = nvml.SUCCESS })
				f.events <- f.event(0, xidEvents, 45)
			},
			want: []Event{lost(GPUIsLost), {Kind: KindXid, Xid: 45, GPU: 0, UUID: "GPU-0", Bus: "0000:30:00.0"}},
		},
		"can't be looked up for a while": {
			during: func(f *fakeEvents) { f.set(func() { f.gpus[1].reach = nvml.ERROR_UNKNOWN }) },
		},
		"can't be watched": {
			before: func(f *fakeEvents) { f.gpus[1].register = nvml.ERROR_NOT_SUPPORTED },
			during: func(f *fakeEvents) { f.events <- f.event(0, xidEvents, 45) },
			want: []Event{
				as(gpu1, func(e *Event) { e.Kind, e.Detail = KindUnwatched, string(NotSupported) }),
				{Kind: KindXid, Xid: 45, GPU: 0, UUID: "GPU-0", Bus: "0000:30:00.0"},
			},
		},
		"lost before": {
			before: func(f *fakeEvents) { f.gpus[1].reach = nvml.ERROR_GPU_IS_LOST },
			during: func(*fakeEvents) {},
			want:   []Event{{Kind: KindUnwatched, GPU: 1, Detail: string(GPUIsLost)}, {Kind: KindLost, GPU: 1, Detail: string(GPUIsLost)}},
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
		f.gpus[3].register = nvml.ERROR_GPU_IS_LOST
		registered := func() (events []uint64) {
			for _, g := range f.gpus {
				events = append(events, g.registered)
			}
			return events
		}
		want := []uint64{xidEvents | recoveryEvents, xidEvents, xidEvents, 0}
		ctx, cancel := context.WithCancel(t.Context())
		first := true
		err := watch(ctx, f, func(l line) {
			if first && (l.Watching == nil || *l.Watching != 3) {
				t.Errorf("the first line is %+v", l)
			}
			if diff := cmp.Diff(want, registered()); diff != "" {
				t.Error(diff)
			}
			first = false
			cancel()
		})
		if err != nil || !f.freed || first {
			t.Errorf("it ends with %v; freed: %v", err, f.freed)
		}
	})
}

func TestWatchCannotBegin(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakeEvents)
		says   string
	}{
		"too old":  {func(f *fakeEvents) { f.missing = []string{"nvmlEventSetCreate"} }, "nvmlEventSetCreate"},
		"no count": {func(f *fakeEvents) { f.count = nvml.ERROR_UNKNOWN }, "UNKNOWN"},
		"no set":   {func(f *fakeEvents) { f.create = nvml.ERROR_OPERATING_SYSTEM }, "OPERATING_SYSTEM"},
	} {
		f := newFakeEvents(1)
		c.change(f)
		err := watch(t.Context(), f, func(l line) { t.Errorf("%s: told %+v", name, l) })
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
		f.fails = nvml.ERROR_UNKNOWN
		begin := time.Now()
		err := watch(t.Context(), f, func(line) {})
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
				f.events <- f.event(0, xidEvents, 31)
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
			if gap := told.at[i] - told.at[i-1]; gap > watchSilence/4 {
				t.Errorf("silent for %v", gap)
			}
		}
		if len(told.lines) > 400 {
			t.Errorf("%d lines", len(told.lines))
		}
	})
}

// The child ends with its standard input, also where the driver hangs.
func TestChildEndsWithItsInput(t *testing.T) {
	for name, hangs := range map[string]bool{"the driver answers": false, "the driver hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeEvents(1)
				d := nvmlDriver{lib: f}
				release := make(chan struct{})
				if hangs {
					d.lib = hangingEvents{f, release}
				}
				in, parent := io.Pipe()
				ended := make(chan int, 1)
				begin := time.Now()
				go func() { ended <- serve(d, in, io.Discard) }()
				_, _ = parent.Write(line{Ask: askWatch}.encode())
				time.Sleep(time.Minute)
				parent.Close()
				if code := <-ended; (code != 0) != hangs {
					t.Errorf("ends with code %d", code)
				}
				if took := time.Since(begin) - time.Minute; took > childGrace {
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

func (h hangingEvents) EventSetCreate() (nvml.EventSet, nvml.Return) {
	<-h.release
	return h.fakeEvents.EventSetCreate()
}

func TestChildTellsWhyItEnds(t *testing.T) {
	for name, c := range map[string]struct {
		asked []byte
		says  string
	}{
		"no driver":   {line{Ask: askWatch}.encode(), "DRIVER_NOT_LOADED"},
		"no question": {[]byte("look\n"), "no line"},
		"another's":   {line{Ask: "sing"}.encode(), "sing"},
		"of tomorrow": {[]byte(`{"v":2,"ask":"look"}` + "\n"), "version 2"},
	} {
		f := newFakeEvents(1)
		f.init = nvml.ERROR_DRIVER_NOT_LOADED
		in, parent := io.Pipe()
		go func() { _, _ = parent.Write(c.asked) }()
		var out strings.Builder
		if code := serve(nvmlDriver{lib: f}, in, &out); code != 1 {
			t.Errorf("%s: ends with code %d", name, code)
		}
		parent.Close()
		l, err := decodeLine([]byte(out.String()))
		if err != nil || !strings.Contains(l.Ended, c.says) || f.shut {
			t.Errorf("%s: says %q: %v; shut down: %v", name, out.String(), err, f.shut)
		}
	}
}

// A child that nobody listens to goes on with nothing.
func TestChildEndsUnheard(t *testing.T) {
	in, parent := io.Pipe()
	defer parent.Close()
	answers, out := io.Pipe()
	answers.Close()
	go func() { _, _ = parent.Write(line{Ask: askWatch}.encode()) }()
	if code := serve(manyAnswers{}, in, out); code != 1 {
		t.Errorf("it ends with code %d", code)
	}
}

// One child answers one question after the other, and both at a time.
func TestChildAnswersAll(t *testing.T) {
	in, parent := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan int, 1)
	go func() { ended <- serve(manyAnswers{}, in, out) }()
	said := bufio.NewScanner(answers)
	for _, ask := range []question{askLook, askWatch, askLook} {
		_, _ = parent.Write(line{Ask: ask}.encode())
		if !said.Scan() {
			t.Fatal("it says no more")
		}
		l, err := decodeLine(said.Bytes())
		if err != nil || (ask == askLook) != (l.Facts != nil) || (ask == askWatch) != (l.Watching != nil) {
			t.Errorf("to %s it says %q: %v", ask, said.Text(), err)
		}
	}
	parent.Close()
	if code := <-ended; code != 0 {
		t.Errorf("it ends with code %d", code)
	}
}

type manyAnswers struct{}

func (manyAnswers) look() Facts { return Facts{Version: FactsVersion, Init: DriverNotLoaded} }

func (manyAnswers) watch(ctx context.Context, tell func(line)) error {
	tell(line{Watching: new(8)})
	<-ctx.Done()
	return nil
}
