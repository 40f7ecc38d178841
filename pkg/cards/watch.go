package cards

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// watchReady limits how long the start of the driver may be delayed by the start of the watch.
const watchReady = 10 * time.Second

// Watch reads the topology, starts to watch the GPUs, and returns when no further events can be
// missed. If the watch fails, that is only reported. Watch returns an error, the cause of ctx, only
// if ctx ends.
func (c *Cards) Watch(ctx context.Context) error {
	if c.cfg.GPUs == nil {
		return nil
	}
	// If the GPUs could not be inspected, do not create a private directory: no guard process would
	// remove it yet.
	if topology := c.cfg.GPUs.Topology(); topology.GPUs != nil {
		c.learn(topology)
	}
	// Watch in the background. If the watch fails before it is ready, report 0 GPUs.
	ready := make(chan int, 1)
	c.cfg.Background(func(context.Context) {
		err := c.cfg.GPUs.Watch(c.cfg.Life, func(gpus int) { ready <- gpus }, c.befallen)
		select {
		case ready <- 0:
		default:
		}
		if err != nil && c.cfg.Life.Err() == nil {
			c.cfg.Trail.Event(trail.Watch, trail.Fields{Error: err.Error()})
			c.cfg.Log.Warn("cannot watch the GPUs any more: what befalls them is only known by what it does to the driver", zap.Error(err))
		}
	})
	// Wait until the watch is ready, for a limited time.
	late := time.NewTimer(watchReady)
	defer late.Stop()
	select {
	case gpus := <-ready:
		c.cfg.Trail.Event(trail.Watch, trail.Fields{GPUs: &gpus})
	case <-late.C:
		c.cfg.Log.Warn("the watch of the GPUs does not begin", zap.Duration("waited", watchReady))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// befallen receives an event of the watch.
func (c *Cards) befallen(event gpu.Judged) {
	if c.cfg.Life.Err() != nil {
		return
	}
	c.remember(event)
	c.note(event)
}

// note logs an event and reports it. A fatal event ends the run; others are reported to the head.
func (c *Cards) note(event gpu.Judged) {
	c.cfg.Trail.Event(trail.GPU, trail.Fields{GPU: event.String()})
	what := fmt.Sprintf("%s: %s", c.cfg.Name, event)
	if event.Effect == gpu.EffectFatal {
		f := health.Failed(health.GPUFailed, "%s", what)
		f.Report, _ = json.Marshal(event)
		c.cfg.End(f)
		return
	}
	if event.Effect == gpu.EffectIgnore {
		return
	}
	c.cfg.Log.Info("a GPU reports", zap.String("what", what))
	c.noteEvent(what, event)
}

// Limits of the reported events. A node reports at most mostEvents, or fewer if all nodes together
// would exceed jobEvents: a faulty driver causes events on all GPUs at once, and the head reads
// only mostKept. Further events are only in the node's own event log. UnfitEvent is always
// reported.
const (
	mostEvents   = 16
	fewestEvents = 2
	jobEvents    = 1024
)

// eventsOf returns the maximum number of events that each of size nodes reports.
func eventsOf(size int) int { return max(fewestEvents, min(mostEvents, jobEvents/size)) }

// noteEvent reports to the head an event that does not end the run.
func (c *Cards) noteEvent(what string, event gpu.Judged) {
	data, err := json.Marshal(event)
	if err != nil {
		c.cfg.Log.Warn("cannot encode an event", zap.Error(err))
		return
	}
	number := c.count(event)
	if number > eventsOf(c.cfg.Size) {
		return
	}
	record := signal.EventRecord{Header: c.cfg.Header(), What: what, Detail: data}
	if c.Witness != nil {
		c.Witness(record)
	}
	c.cfg.Background(func(context.Context) { // the same goroutine should be able to handle the next event
		c.cfg.Publish(signal.EventName(c.cfg.Rank, c.cfg.Size, number), &record)
	})
}

// count returns the number for an event of this node.
func (c *Cards) count(event gpu.Judged) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if event.Next == gpu.NextUnfit && !c.unfit {
		c.unfit = true
		return signal.UnfitEvent
	}
	c.events++
	return c.events
}
