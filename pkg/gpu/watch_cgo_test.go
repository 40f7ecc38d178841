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

// fakeEvents is NVML with only the functions that the watch uses. Its answers may be changed at any
// time.
type fakeEvents struct {
	nvml.Interface
	nvml.ExtendedInterface
	sync.Mutex
	init, count, create nvml.Return
	missing             []string
	gpus                []*fakeEventGPU
	fails               nvml.Return   // result of each wait, at once
	sets                int           // event sets that are not freed
	longest             time.Duration // longest timeout of a wait
}

func newFakeEvents(gpus int) *fakeEvents {
	f := &fakeEvents{}
	for i := range gpus {
		id := string(rune('0' + i))
		g := &fakeEventGPU{
			fake: f, uuid: "GPU-" + id, supported: xidEventMask | recoveryEventMask | 0x4,
			links: 18, events: make(chan nvml.EventData, 100_000),
		}
		for at, c := range "00000000:3" + id + ":00.0" {
			g.pci.BusId[at] = int8(c)
		}
		f.gpus = append(f.gpus, g)
	}
	return f
}

func (f *fakeEvents) Init() nvml.Return                  { return f.init }
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
	f.Lock()
	defer f.Unlock()
	f.sets++
	return &fakeEventSet{fake: f}, f.create
}

// happens makes the driver report an event of a GPU.
func (f *fakeEvents) happens(gpu int, kind, data uint64) {
	f.gpus[gpu].events <- nvml.EventData{Device: f.gpus[gpu], EventType: kind, EventData: data}
}

// fakeEventSet belongs to the GPU that was registered with it.
type fakeEventSet struct {
	fake *fakeEvents
	gpu  *fakeEventGPU
}

func (s *fakeEventSet) Free() nvml.Return {
	s.fake.set(func() { s.fake.sets-- })
	return nvml.SUCCESS
}

func (s *fakeEventSet) Wait(milliseconds uint32) (nvml.EventData, nvml.Return) {
	limit := time.Duration(milliseconds) * time.Millisecond
	var fails nvml.Return
	var hangs time.Duration
	s.fake.set(func() {
		fails, hangs = s.fake.fails, s.gpu.hangs
		s.fake.longest = max(s.fake.longest, limit)
	})
	time.Sleep(hangs)
	if fails != nvml.SUCCESS {
		return nvml.EventData{}, fails
	}
	select {
	case e := <-s.gpu.events:
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
	links, c2c             int // number of active ones
	events                 chan nvml.EventData
	hangs                  time.Duration // before each wait
}

func (g *fakeEventGPU) GetNvLinkState(link int) (nvml.EnableState, nvml.Return) {
	if link >= 18 {
		return 0, nvml.ERROR_INVALID_ARGUMENT
	}
	active := nvml.FEATURE_DISABLED
	g.fake.set(func() {
		if link < g.links {
			active = nvml.FEATURE_ENABLED
		}
	})
	return active, nvml.SUCCESS
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
	values[0].ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_INT)
	value := 5 // a count
	switch values[0].FieldId {
	case nvml.FI_DEV_GET_GPU_RECOVERY_ACTION:
		g.asked++
		value = g.recovery
	case nvml.FI_DEV_C2C_LINK_COUNT:
		value = 2
	case nvml.FI_DEV_C2C_LINK_GET_STATUS:
		value = map[bool]int{true: 1}[int(values[0].ScopeId) < g.c2c]
	}
	binary.NativeEndian.PutUint32(values[0].Value[:], uint32(value))
	return g.field
}
func (g *fakeEventGPU) RegisterEvents(events uint64, set nvml.EventSet) nvml.Return {
	if g.only != 0 && events != g.only {
		return nvml.ERROR_NOT_SUPPORTED
	}
	if g.register == nvml.SUCCESS {
		g.registered = events
		set.(*fakeEventSet).gpu = g
	}
	return g.register
}

func (f *fakeEvents) set(change func()) {
	f.Lock()
	defer f.Unlock()
	change()
}

// heard is the list of messages that a watch has sent so far.
type heard struct {
	sync.Mutex
	begin time.Time
	lines []message
	at    []time.Duration // since the beginning
}

func (h *heard) tell(l message) {
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

// watchingFirst reports whether the number of watched GPUs was sent before any event.
func (h *heard) watchingFirst() bool {
	for _, line := range h.lines {
		if line.Watching != nil || line.Event != nil {
			return line.Watching != nil
		}
	}
	return false
}

// last returns the time of the last event.
func (h *heard) last() (at time.Duration) {
	for i, line := range h.lines {
		if line.Event != nil {
			at = h.at[i]
		}
	}
	return at
}

// watched runs the watch with the fake while during runs, and returns how it ended.
func watched(t *testing.T, f *fakeEvents, during func(h *heard)) (told *heard, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h := &heard{begin: time.Now()}
	ended := make(chan error, 1)
	go func() { ended <- watchGPUs(ctx, newCollector(f, io.Discard), requestWatch, h.tell) }()
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
	lost := func(why NVMLReturn) Event {
		return as(gpu1, func(e *Event) { e.Kind, e.Detail = KindLost, string(why) })
	}
	for name, c := range map[string]struct {
		before func(f *fakeEvents)
		during func(f *fakeEvents)
		want   []Event
		told   time.Duration // latest time of the last event
	}{
		"nothing": {during: func(*fakeEvents) { time.Sleep(time.Hour) }},
		"an Xid": {
			during: func(f *fakeEvents) { f.happens(1, xidEventMask, 79) },
			want:   []Event{xid(79)},
		},
		"a number that is none": {
			during: func(f *fakeEvents) { f.happens(1, xidEventMask, 1<<63) },
			want:   []Event{xid(maxXid)},
		},
		"links are lost with it": {
			during: func(f *fakeEvents) {
				f.happens(1, xidEventMask, 145)
				time.Sleep(2 * time.Second)
				f.set(func() { f.gpus[1].links = 16 })
			},
			want: []Event{xid(145), as(gpu1, func(e *Event) { e.Kind, e.Detail = KindLink, "links 16, 17" })},
			told: 3 * time.Second,
		},
		"the link to the CPU is lost with it": {
			before: func(f *fakeEvents) { f.gpus[1].c2c = 2 },
			during: func(f *fakeEvents) {
				f.happens(1, xidEventMask, 173)
				f.set(func() { f.gpus[1].c2c = 1 })
			},
			want: []Event{xid(173), as(gpu1, func(e *Event) { e.Kind, e.Detail = KindC2C, "1 of 2 are active" })},
			told: time.Second,
		},
		"links go without a word": { // no job may end because of an event that the driver does not report
			during: func(f *fakeEvents) { f.set(func() { f.gpus[1].links = 16 }) },
		},
		"a call that hangs": {
			during: func(f *fakeEvents) {
				f.set(func() { f.gpus[1].hangs = 2 * time.Minute })
				time.Sleep(hangThreshold + 2*pollInterval)
				f.happens(0, xidEventMask, 45)
				f.set(func() { f.gpus[1].hangs = 0 })
			},
			want: []Event{
				{Kind: KindSilent, GPU: 1, Detail: "nvmlEventSetWait_v2 has not returned for 50s"},
				{Kind: KindXid, Xid: 45, GPU: 0, UUID: "GPU-0", Bus: "0000:30:00.0"},
			},
		},
		"what we have not asked for": {
			during: func(f *fakeEvents) { f.happens(1, 0x4, 0) },
		},
		"asks for a reset, after the event": {
			during: func(f *fakeEvents) {
				f.happens(1, xidEventMask, 154)
				time.Sleep(2 * time.Second)
				f.set(func() { f.gpus[1].recovery = 1 })
			},
			want: []Event{xid(154), recovery(1)},
			told: 3 * time.Second,
		},
		"asks for a reset, by an event": {
			during: func(f *fakeEvents) {
				f.set(func() { f.gpus[1].recovery = 1 })
				f.happens(1, recoveryEventMask, 0)
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
			during: func(f *fakeEvents) { f.happens(1, xidEventMask, 154) },
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
			during: func(f *fakeEvents) { f.happens(1, xidEventMask, 154) },
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
				f.happens(0, xidEventMask, 45)
			},
			want: []Event{lost(GPUIsLost), {Kind: KindXid, Xid: 45, GPU: 0, UUID: "GPU-0", Bus: "0000:30:00.0"}},
		},
		"can't be looked up for a while": {
			during: func(f *fakeEvents) { f.set(func() { f.gpus[1].reach = nvml.ERROR_UNKNOWN }) },
		},
		"can't be watched": {
			before: func(f *fakeEvents) { f.gpus[1].register = nvml.ERROR_NOT_SUPPORTED },
			during: func(f *fakeEvents) { f.happens(0, xidEventMask, 45) },
			want: []Event{
				as(gpu1, func(e *Event) { e.Kind, e.Detail = KindUnwatched, string(NotSupported) }),
				{Kind: KindXid, Xid: 45, GPU: 0, UUID: "GPU-0", Bus: "0000:30:00.0"},
			},
		},
		"lost before": {
			before: func(f *fakeEvents) { f.gpus[1].reach = nvml.ERROR_GPU_IS_LOST },
			during: func(*fakeEvents) {},
			want: []Event{{Kind: KindUnwatched, GPU: 1, Detail: string(GPUIsLost)},
				{Kind: KindLost, GPU: 1, Detail: string(GPUIsLost)}},
		},
		"has no Xids": {
			before: func(f *fakeEvents) { f.gpus[1].supported = recoveryEventMask },
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
				if !told.watchingFirst() {
					t.Errorf("the first lines are %+v", told.lines)
				}
				if at := told.last(); c.told > 0 && at > c.told {
					t.Errorf("told after %v", at)
				}
				if f.longest > eventWaitTimeout || f.sets != 0 {
					t.Errorf("waited for %v at a time; %d sets are left", f.longest, f.sets)
				}
			})
		})
	}
}

// TestWatchRegistersFirst verifies that all GPUs are registered before the number of watched GPUs
// is sent: the parent starts the job's driver then.
func TestWatchRegistersFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEvents(4)
		f.gpus[1].supported = xidEventMask // an older driver
		f.gpus[2].only = xidEventMask      // claims support, but fails
		f.gpus[3].register = nvml.ERROR_GPU_IS_LOST
		var registered []uint64
		ctx, cancel := context.WithCancel(t.Context())
		err := watchGPUs(ctx, newCollector(f, io.Discard), requestWatch, func(l message) {
			if l.Watching == nil {
				return
			}
			if *l.Watching != 3 {
				t.Errorf("%d are watched", *l.Watching)
			}
			for _, g := range f.gpus {
				registered = append(registered, g.registered)
			}
			cancel()
		})
		if diff := cmp.Diff([]uint64{xidEventMask | recoveryEventMask, xidEventMask, xidEventMask,
			0}, registered); diff != "" {
			t.Error(diff)
		}
		if err != nil || f.sets != 0 {
			t.Errorf("it ends with %v; %d sets are left", err, f.sets)
		}
	})
}

// TestWatchDoesNotWaitForAGPU verifies that a GPU that cannot be registered in time is reported as
// unwatched, and that the others are watched.
func TestWatchDoesNotWaitForAGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEvents(3)
		release := make(chan struct{})
		h := &heard{begin: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- watchGPUs(ctx, newCollector(hangingEvents{f, 2, release}, io.Discard), requestWatch, h.tell)
		}()
		time.Sleep(2 * gpuProgressTimeout)
		f.happens(0, xidEventMask, 45)
		time.Sleep(time.Minute)
		close(release)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []Event{
			{Kind: KindUnwatched, GPU: 2, Detail: string(DriverUnresponsive)},
			{Kind: KindSilent, GPU: 2, Detail: "nvmlDeviceGetHandleByIndex_v2 has not returned for 50s"},
			{Kind: KindXid, Xid: 45, GPU: 0, UUID: "GPU-0", Bus: "0000:30:00.0"},
		}
		if diff := cmp.Diff(want, h.events()); diff != "" || !h.watchingFirst() {
			t.Error(diff)
		}
	})
}

// TestWatchResumes verifies that a watch that follows one that died reports the recovery actions
// that the GPUs require by now.
func TestWatchResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEvents(2)
		f.gpus[1].recovery = 2
		h := &heard{begin: time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := watchGPUs(ctx, newCollector(f, io.Discard), requestResume, h.tell); err != nil {
			t.Error(err)
		}
		want := []Event{{Kind: KindRecovery, Recovery: 2, GPU: 1, UUID: "GPU-1", Bus: "0000:31:00.0"}}
		if diff := cmp.Diff(want, h.events()); diff != "" {
			t.Error(diff)
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
	} {
		f := newFakeEvents(1)
		c.change(f)
		err := watchGPUs(t.Context(), newCollector(f, io.Discard), requestWatch,
			func(l message) { t.Errorf("%s: told %+v", name, l) })
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWatchGivesUp verifies that a wait that fails at once does not use up CPU time, and that a
// watch whose waits always fail is not reported as working. The GPU is polled nevertheless.
func TestWatchGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEvents(1)
		f.fails = nvml.ERROR_UNKNOWN
		told, err := watched(t, f, func(h *heard) {
			time.Sleep(2 * time.Minute)
			f.set(func() { f.gpus[0].recovery = 1 })
			time.Sleep(time.Minute)
		})
		gpu0 := Event{GPU: 0, UUID: "GPU-0", Bus: "0000:30:00.0"}
		unwatched, recovery := gpu0, gpu0
		unwatched.Kind, unwatched.Detail = KindUnwatched, "12 consecutive waits returned UNKNOWN"
		recovery.Kind, recovery.Recovery = KindRecovery, 1
		if diff := cmp.Diff([]Event{unwatched, recovery}, told.events()); diff != "" || err != nil {
			t.Error(diff, err)
		}
	})
}

// TestWatchUnderAFlood verifies that a GPU with a thousand failures per second is polled as often
// as any other.
func TestWatchUnderAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEvents(1)
		const all = 10_000
		told, err := watched(t, f, func(*heard) {
			for range all {
				f.happens(0, xidEventMask, 31)
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

// TestWatchBeats verifies that, without events, the parent receives heartbeats as long as the
// driver answers.
func TestWatchBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, err := watched(t, newFakeEvents(1), func(*heard) { time.Sleep(time.Hour) })
		if err != nil {
			t.Error(err)
		}
		for i := 1; i < len(told.at); i++ {
			if gap := told.at[i] - told.at[i-1]; gap > defaultSilenceTimeout/4 {
				t.Errorf("silent for %v", gap)
			}
		}
		if len(told.lines) > 400 {
			t.Errorf("%d lines", len(told.lines))
		}
	})
}

// TestChildEndsWithItsInput verifies that the child ends with its standard input, even if the
// driver hangs.
func TestChildEndsWithItsInput(t *testing.T) {
	for name, hangs := range map[string]bool{"the driver answers": false, "the driver hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeEvents(1)
				d := nvmlLibrary{collector: newCollector(f, io.Discard)}
				release := make(chan struct{})
				if hangs {
					d.lib = hangingEvents{f, 0, release}
				}
				in, parent := io.Pipe()
				ended := make(chan int, 1)
				begin := time.Now()
				go func() { ended <- serveRequests(d, in, io.Discard) }()
				_, _ = parent.Write(message{Request: requestWatch}.encodeLine())
				time.Sleep(time.Minute)
				parent.Close()
				if code := <-ended; (code != 0) != hangs {
					t.Errorf("ends with code %d", code)
				}
				if took := time.Since(begin) - time.Minute; took > childGracePeriod {
					t.Errorf("ends after %v", took)
				}
				close(release)
				synctest.Wait()
			})
		})
	}
}

// hangingEvents is a library that does not return the handle of a GPU until release.
type hangingEvents struct {
	*fakeEvents
	gpu     int
	release chan struct{}
}

func (h hangingEvents) DeviceGetHandleByIndex(index int) (nvml.Device, nvml.Return) {
	if index == h.gpu {
		<-h.release
	}
	return h.fakeEvents.DeviceGetHandleByIndex(index)
}

func TestChildTellsWhyItEnds(t *testing.T) {
	for name, c := range map[string]struct {
		asked []byte
		says  string
	}{
		"no question": {[]byte("look\n"), "invalid message"},
		"another's":   {message{Request: "sing"}.encodeLine(), "sing"},
		"of tomorrow": {[]byte(`{"v":3,"request":"inspect"}` + "\n"), "version 3"},
	} {
		f := newFakeEvents(1)
		f.init = nvml.ERROR_DRIVER_NOT_LOADED
		in, parent := io.Pipe()
		go func() { _, _ = parent.Write(c.asked) }()
		var out strings.Builder
		if code := serveRequests(nvmlLibrary{collector: newCollector(f, io.Discard)}, in, &out); code != 1 {
			t.Errorf("%s: ends with code %d", name, code)
		}
		parent.Close()
		l, err := decodeMessage([]byte(out.String()))
		if err != nil || !strings.Contains(l.EndReason, c.says) {
			t.Errorf("%s: says %q: %v", name, out.String(), err)
		}
	}
}

// TestWatchThatCannotBe verifies that a watch that is impossible is reported in the answer, and
// that the child still answers other requests.
func TestWatchThatCannotBe(t *testing.T) {
	f := newFakeEvents(1)
	f.init = nvml.ERROR_DRIVER_NOT_LOADED
	in, parent := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan int, 1)
	go func() { ended <- serveRequests(nvmlLibrary{collector: newCollector(f, io.Discard)}, in, out) }()
	said := bufio.NewScanner(answers)
	for n, ask := range []request{requestWatch, requestInspection, requestResume} {
		_, _ = parent.Write(message{Number: n, Request: ask}.encodeLine())
		if !said.Scan() {
			t.Fatal("it says no more")
		}
		l, err := decodeMessage(said.Bytes())
		if err != nil || l.Number != n || (ask == requestInspection) != (l.Facts != nil) ||
			ask != requestInspection && !strings.Contains(l.EndReason, "DRIVER_NOT_LOADED") {
			t.Errorf("to %s it says %q: %v", ask, said.Text(), err)
		}
	}
	parent.Close()
	if code := <-ended; code != 0 {
		t.Errorf("it ends with code %d", code)
	}
}

// TestChildEndsUnheard verifies that a child whose output is no longer read ends.
func TestChildEndsUnheard(t *testing.T) {
	in, parent := io.Pipe()
	defer parent.Close()
	answers, out := io.Pipe()
	answers.Close()
	go func() { _, _ = parent.Write(message{Request: requestWatch}.encodeLine()) }()
	if code := serveRequests(nvmlLibrary{newCollector(newFakeEvents(1), io.Discard)}, in, out); code != 1 {
		t.Errorf("it ends with code %d", code)
	}
}
