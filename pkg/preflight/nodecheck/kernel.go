package nodecheck

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/kmsg"
)

// convertKernelEvent converts an event of the kernel log to an event of one of the GPUs or of an
// NVSwitch. The second result is false for all others: events of another job's GPU, and PCIe errors
// for which the driver has no event.
func convertKernelEvent(e kmsg.Event, gpus []gpu.GPU) (event gpu.Event, is bool) {
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

// eventMerger merges the events of two sources, the driver (through NVML) and the kernel log. It
// passes each event on once, and again if the second source reports a worse effect. The kernel log
// includes the severity of an Xid, which NVML does not, but it is not always readable.
type eventMerger struct {
	// held while an event is passed on, so that calls are serialised
	mu          sync.Mutex
	lastReports map[eventKey]eventReport  // last report of each event
	emit        func(gpu.ClassifiedEvent) // receives the events
}

// eventKey identifies an event, independently of the source.
type eventKey struct {
	kind gpu.EventKind
	bus  string
	xid  int
}

// eventReport is the last report of an event.
type eventReport struct {
	fromKernel bool // true if the kernel log has reported it
	effect     gpu.Effect
	at         time.Time
}

// duplicateWindow is the maximum time between two reports of the same event. The driver writes its
// log line and notifies NVML at the same time.
const duplicateWindow = 5 * time.Second

// passEvent passes an event on, unless the other source has just reported it with an effect that is
// not less severe. kernel says that the event is from the kernel log.
func (h *eventMerger) passEvent(e gpu.ClassifiedEvent, kernel bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := eventKey{e.Kind, e.Bus, e.Xid}
	last, known := h.lastReports[key]
	if known && last.fromKernel != kernel && time.Since(last.at) < duplicateWindow && (e.Effect != gpu.EffectFatal || last.effect == gpu.EffectFatal) {
		return
	}
	h.lastReports[key] = eventReport{kernel, e.Effect, time.Now()}
	h.emit(e)
}

// followKernelLog passes on each new event in the kernel log until ctx ends. It does nothing if the
// log is not readable; the check of the log reports that.
func (g *GPUs) followKernelLog(ctx context.Context, gpus []gpu.GPU, tell func(gpu.Event)) {
	var repeats gpu.RepeatFilter
	_ = kmsg.FollowEvents(ctx, g.Root, func(said kmsg.Event) {
		if e, is := convertKernelEvent(said, gpus); is {
			e.At = time.Now()
			if e, new := repeats.FilterEvent(e, e.At); new {
				tell(e)
			}
		}
	})
}
