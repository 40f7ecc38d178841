package readiness

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/kmsg"
)

// kernelEvent is what the kernel's log says, as an event of one of those GPUs, or of an NVSwitch. is is false for what
// is none: what befalls another job's GPU, and errors of PCIe that the driver has no word about.
func kernelEvent(e kmsg.Event, gpus []gpu.GPU) (event gpu.Event, is bool) {
	event = gpu.Event{GPU: -1, Bus: e.Bus, Severity: e.Severity, Detail: e.Detail}
	if e.Kind == kmsg.KindSXid {
		event.Kind, event.Xid = gpu.KindSXid, e.Number
		return event, true
	}
	at := slices.IndexFunc(gpus, func(g gpu.GPU) bool { return g.Bus.Value != nil && *g.Bus.Value == e.Bus })
	if at < 0 {
		return event, false
	}
	event.GPU, event.UUID = gpus[at].Index, gpus[at].UUID.OrZero()
	switch e.Kind {
	case kmsg.KindXid:
		event.Kind, event.Xid = gpu.KindXid, e.Number
	case kmsg.KindLost:
		event.Kind, event.Detail = gpu.KindLost, string(gpu.GPUIsLost)
	default:
		return event, false
	}
	return event, true
}

// hearsay is what the driver (by NVML) and the kernel's log say of the same things: each is told once, and again where
// the second word is worse. The kernel names the severity of an Xid, which NVML does not, and it may be read by few.
type hearsay struct {
	mu   sync.Mutex // held while it is told: one at a time
	told map[matter]word
	tell func(gpu.Judged)
}

// matter is what an event is about.
type matter struct {
	kind gpu.Kind
	bus  string
	xid  int
}

// word is what was last said about a matter.
type word struct {
	kernel bool // by whom
	effect gpu.Effect
	at     time.Time
}

// sameWithin is within which time two words are about the same: the driver writes its line and tells NVML at once.
const sameWithin = 5 * time.Second

// hear tells an event unless the other side has told it.
func (h *hearsay) hear(e gpu.Judged, kernel bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := matter{e.Kind, e.Bus, e.Xid}
	last, known := h.told[key]
	if known && last.kernel != kernel && time.Since(last.at) < sameWithin && (e.Effect != gpu.EffectFatal || last.effect == gpu.EffectFatal) {
		return
	}
	h.told[key] = word{kernel, e.Effect, time.Now()}
	h.tell(e)
}

// followKernel tells what the kernel's log says from now on, until ctx ends, where it may be read. Whether it may is
// told by the check of the log.
func (g *GPUs) followKernel(ctx context.Context, gpus []gpu.GPU, tell func(gpu.Event)) {
	var repeats gpu.Repeats
	_ = kmsg.Follow(ctx, g.Root, func(said kmsg.Event) {
		if e, is := kernelEvent(said, gpus); is {
			e.At = time.Now()
			if e, new := repeats.Pass(e, e.At); new {
				tell(e)
			}
		}
	})
}
