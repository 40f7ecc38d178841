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

// watchReady is how long the driver may have to wait for the watch.
const watchReady = 10 * time.Second

// Watch learns where the GPUs sit, begins to watch them, and returns when nothing
// will be missed any more. A watch that does not work is told of, and stops
// nobody: its error is the cause that ctx has ended by.
func (c *Cards) Watch(ctx context.Context) error {
	if c.cfg.GPUs == nil {
		return nil
	}
	// Where nobody could look there is nothing to keep a directory for, which no
	// guard removes yet.
	if topology := c.cfg.GPUs.Topology(); topology.GPUs != nil {
		c.learn(topology)
	}
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

// befallen takes in what has befallen a GPU.
func (c *Cards) befallen(event gpu.Judged) {
	if c.cfg.Life.Err() != nil {
		return
	}
	c.remember(event)
	c.note(event)
}

// note tells of an event: here, and the head.
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

// A node tells of mostEvents, or of fewer where all nodes together would tell of
// more than jobEvents: a driver that goes wrong does so on all GPUs at once, and
// the head reads mostKept. What comes after them is in the node's own timeline
// alone; UnfitEvent is told besides.
const (
	mostEvents   = 16
	fewestEvents = 2
	jobEvents    = 1024
)

// eventsOf is how many events each of size nodes tells of, at most.
func eventsOf(size int) int { return max(fewestEvents, min(mostEvents, jobEvents/size)) }

// noteEvent tells the head of something that ends nothing.
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
	c.cfg.Background(func(context.Context) { // whoever has seen it is to see the next one
		c.cfg.Publish(signal.EventName(c.cfg.Rank, c.cfg.Size, number), &record)
	})
}

// count returns the number of an event of this node's.
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
