package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// gpuWatchReadyTimeout limits how long the start of the driver may be delayed by the start of the
// watch.
const gpuWatchReadyTimeout = 10 * time.Second

// StartWatch reads the topology, starts to watch the GPUs, and returns when no further events can
// be missed. If the watch fails, that is only reported. StartWatch returns an error, the cause of ctx,
// only if ctx ends.
func (c *GPUMonitor) StartWatch(ctx context.Context) error {
	if c.cfg.GPUs == nil {
		return nil
	}
	// If the GPUs could not be inspected, do not create a private directory: no guard process would
	// remove it yet.
	if topology := c.cfg.GPUs.Topology(); topology.GPUs != nil {
		c.storeTopology(topology)
	}
	// Watch in the background. If the watch fails before it is ready, report 0 GPUs.
	ready := make(chan int, 1)
	c.cfg.Background(func(context.Context) {
		err := c.cfg.GPUs.Watch(c.cfg.RunCtx, func(gpus int) { ready <- gpus }, c.handleEvent)
		select {
		case ready <- 0:
		default:
		}
		if err != nil && c.cfg.RunCtx.Err() == nil {
			c.cfg.Events.WriteEvent(eventlog.GPUWatch, eventlog.Fields{Error: err.Error()})
			c.cfg.Log.Warn("cannot watch the GPUs any more: their faults are seen only if "+
				"the driver fails", zap.Error(err))
		}
	})
	// Wait until the watch is ready, for a limited time.
	late := time.NewTimer(gpuWatchReadyTimeout)
	defer late.Stop()
	select {
	case gpus := <-ready:
		c.cfg.Events.WriteEvent(eventlog.GPUWatch, eventlog.Fields{GPUs: &gpus})
	case <-late.C:
		c.cfg.Log.Warn("cannot start the GPU watch", zap.Duration("waited", gpuWatchReadyTimeout))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// handleEvent logs an event of the watch and reports it. A fatal event ends the run; others are
// reported to the head.
func (c *GPUMonitor) handleEvent(event gpu.ClassifiedEvent) {
	if c.cfg.RunCtx.Err() != nil {
		return
	}
	c.cfg.Events.WriteEvent(eventlog.GPUEvent, eventlog.Fields{GPU: event.String()})
	what := fmt.Sprintf("%s: %s", c.cfg.Name, event)
	if event.Effect == gpu.EffectFatal {
		f := health.NewFailure(health.GPUFailed, "%s", what)
		f.Report, _ = json.Marshal(event)
		c.cfg.CancelRun(f)
		return
	}
	if event.Effect == gpu.EffectIgnore {
		return
	}
	c.cfg.Log.Info("a GPU reports", zap.String("what", what))
	c.reportEvent(what, event)
}

// reportEvent reports to the head an event that does not end the run.
func (c *GPUMonitor) reportEvent(what string, event gpu.ClassifiedEvent) {
	data, err := json.Marshal(event)
	if err != nil {
		c.cfg.Log.Warn("cannot encode an event", zap.Error(err))
		return
	}
	rec := record.Event{Header: c.cfg.Header(), Message: what, Detail: data}
	c.cfg.NodeEvents.report(rec, event.Next == gpu.NextUnfit)
}
