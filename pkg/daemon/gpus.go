package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// watchReady is how long the driver may have to wait for the watch.
const watchReady = 10 * time.Second

// watchGPUs begins to watch this node's GPUs, and returns when nothing will be
// missed any more. A watch that does not work is told of, and stops nobody.
func (c *cards) watchGPUs(ctx context.Context) error {
	if c.cfg.GPUs == nil {
		return nil
	}
	ready := make(chan int, 1)
	c.background(func(context.Context) {
		err := c.cfg.GPUs.Watch(c.life, func(gpus int) { ready <- gpus }, c.befallen)
		select {
		case ready <- 0:
		default:
		}
		if err != nil && c.life.Err() == nil {
			c.trail.Event(trail.Watch, trail.Fields{Error: err.Error()})
			c.log.Warn("cannot watch the GPUs any more: what befalls them is only known by what it does to the driver", zap.Error(err))
		}
	})
	late := time.NewTimer(watchReady)
	defer late.Stop()
	select {
	case gpus := <-ready:
		c.trail.Event(trail.Watch, trail.Fields{GPUs: &gpus})
	case <-late.C:
		c.log.Warn("the watch of the GPUs does not begin", zap.Duration("waited", watchReady))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// befallen takes in what has befallen a GPU.
func (c *cards) befallen(event gpu.Judged) {
	if c.life.Err() != nil {
		return
	}
	c.trail.Event(trail.GPU, trail.Fields{GPU: event.String()})
	what := fmt.Sprintf("%s: %s", c.name(c.id.Rank), event)
	if event.Effect == gpu.EffectFatal {
		f := health.Failed(health.GPUFailed, "%s", what)
		f.Report, _ = json.Marshal(event)
		c.end(f)
		return
	}
	if event.Effect == gpu.EffectIgnore {
		return
	}
	c.log.Info("a GPU reports", zap.String("what", what))
	c.noteEvent(what, event)
}

// A node tells of mostEvents, or of fewer where all nodes together would tell of
// more than jobEvents: a driver that goes wrong does so on all GPUs at once, and
// the head reads mostKept. What comes after them is in the node's own timeline
// alone.
const (
	mostEvents   = 16
	fewestEvents = 2
	jobEvents    = 1024
)

// eventsOf is how many events each of size nodes tells of.
func eventsOf(size int) int { return max(fewestEvents, min(mostEvents, jobEvents/size)) }

// noteEvent tells the head of something that ends nothing.
func (c *cards) noteEvent(what string, detail any) {
	data, err := json.Marshal(detail)
	if err != nil {
		c.log.Warn("cannot encode an event", zap.Error(err))
		return
	}
	c.mu.Lock()
	c.events++
	number := c.events
	c.mu.Unlock()
	if number > eventsOf(c.id.Size) {
		return
	}
	record := signal.EventRecord{Header: c.header(), What: what, Detail: data}
	if c.witness != nil {
		c.witness(record)
	}
	c.background(func(context.Context) { // whoever has seen it is to see the next one
		c.logged(c.publish(signal.Nodes, signal.EventName(c.id.Rank, c.id.Size, number), &record, false))
	})
}

// mostKept is how many events a result bears.
const mostKept = 100

// followEvents reads what befalls the nodes, on its own: a hundred events on a slow
// share must not keep the head from the failure that comes with them.
func (h *head) followEvents(ctx context.Context) {
	_, _ = h.nodes.Follow(ctx, func(l signal.Listing) bool {
		h.readEvents(ctx, l)
		return false
	})
}

// readEvents reads what a look at Nodes shows for the first time.
func (h *head) readEvents(ctx context.Context, l signal.Listing) {
	c := &h.chronicle
	for rank, numbers := range l.Events() {
		if rank == 0 {
			continue // our own: see witness
		}
		for _, number := range numbers {
			name := signal.EventName(rank, h.id.Size, number)
			if c.read[name] || len(c.read) >= mostKept {
				continue
			}
			ctx, cancel := context.WithTimeoutCause(ctx, h.tempo.Silent, errDeadline)
			var record signal.EventRecord
			err := h.dir.Read(ctx, signal.Nodes, name, &record)
			cancel()
			if h.work.Err() != nil || hangs(err) {
				return // the next look shows it again
			}
			if c.read == nil {
				c.read = make(map[string]bool)
			}
			c.read[name] = true
			if err != nil {
				h.log.Warn("cannot read what befell a node", zap.Int("of", rank), zap.Error(err))
				continue
			}
			h.trail.Event(trail.Befell, trail.Fields{Of: &rank, What: record.What})
			c.keep(record)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks = l.Looks
}

// hearEvents takes one more look where the driver has failed on GPUs: what it has
// died of may have been told a moment later. It tells whether the run goes on.
func (h *head) hearEvents(ctx context.Context) bool {
	if h.compared.found.Load() {
		h.nodes.Nudge()
		h.deaths.hear()
		h.catchUp(h.nodes.Last().Looks)
	}
	return ctx.Err() == nil
}

// catchUp waits a moment until all is read that a look has shown.
func (h *head) catchUp(look int) {
	for end := time.Now().Add(sickShare); !h.chronicle.caughtUp(look) && time.Now().Before(end); {
		if !pause.For(h.work, eventPause) {
			return
		}
	}
}
