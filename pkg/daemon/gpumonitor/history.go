package gpumonitor

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/history"
	"github.com/bringupd/bringupd/pkg/health"
)

const (
	// historyReadTimeout is the timeout for reading earlier records. Nothing else waits for it.
	historyReadTimeout = 10 * time.Second
	// historyWriteTimeout is the timeout for writing this run's record. At its end, the daemon does
	// not wait longer for an unresponsive file system.
	historyWriteTimeout = 5 * time.Second
)

// runHistory is the state for the record of this run.
type runHistory struct {
	gpuEvents []gpu.ClassifiedEvent
	// closed when all events of the GPUs were reported; nil if there is nothing to report
	reported chan struct{}
	// closed when the record was written or writing was given up; nil if no record is written
	saved chan struct{}
}

// maxStoredEvents limits the stored events. A GPU has few different events, and frequent ones are
// counted instead.
const maxStoredEvents = 256

// StartHistory receives the findings of the node's checks. It starts a background task that reads
// the records of earlier runs, reports what has changed, and monitors the counters of the GPUs
// until the run ends. If the file system is unresponsive, only this task is affected.
func (c *Monitor) StartHistory(run string, found []check.Finding) {
	if c.cfg.GPUs == nil || c.cfg.History == nil {
		return
	}
	devices, slots := c.cfg.GPUs.Devices()
	if len(devices) == 0 {
		return
	}
	// Settle and AwaitSaved wait until the task closes these channels.
	told, kept := make(chan struct{}), make(chan struct{})
	c.mu.Lock()
	c.reported, c.saved = told, kept
	c.mu.Unlock()
	// Read the earlier records and report changes and repeated problems. Then monitor until the end.
	c.cfg.Background(func(ctx context.Context) {
		defer close(kept)
		reading, cancel := context.WithTimeoutCause(c.cfg.RunCtx, historyReadTimeout, health.ErrDeadline)
		texts, err := c.cfg.History().ReadRecent(reading, history.MaxRecords)
		cancel()
		past := history.MergeRecords(texts)
		if err != nil && c.cfg.RunCtx.Err() == nil {
			c.cfg.Log.Info("cannot compare the devices of this node with those of earlier runs", zap.Error(err))
		}
		for _, news := range past.Changes(devices, slots) {
			c.reportDerived(gpu.KindChanged, news)
		}
		seen := history.WithFindings(devices, found)
		suspects := past.FindSuspicions(run, time.Now(), seen)
		c.reportSuspicions(past, append(past.LateSuspicions(), suspects...), seen)
		seen, suspects = c.monitorCounters(past, run, found, suspects)
		close(told)
		if err == nil {
			c.saveHistory(ctx, past.NextRecord(run, time.Now(), seen, slots, suspects))
		}
	})
}

// counterInterval is the interval at which counters are read. gpud counts slowdowns over the same
// period (components/accelerator/nvidia/hw-slowdown). An event that a worker finds only at its end
// may be too late for the result.
const counterInterval = 10 * time.Minute

// monitorCounters reports remarkable counters of the GPUs, when they first become remarkable and at
// the end of the run. It returns the devices at the end of the run with their events, and all
// suspicions about them, including the known ones.
func (c *Monitor) monitorCounters(past history.Record, run string, found []check.Finding, known []history.Suspicion) (
	seen []history.Device, suspects []history.Suspicion,
) {
	told := make(map[string]bool)
	for over := false; !over; {
		// Wait, then add the events and findings to the current counters.
		over = !ctxutil.SleepContext(c.cfg.RunCtx, counterInterval)
		devices, _ := c.cfg.GPUs.Devices()
		c.mu.Lock()
		befell := c.gpuEvents
		c.mu.Unlock()
		seen = history.WithEvents(history.WithFindings(devices, found), befell)
		for _, d := range seen {
			if what := d.Counters.SummaryText(); what != "" && (over || !told[d.ID]) {
				told[d.ID] = true
				c.reportDerived(gpu.KindCounters, history.Change{Device: d.CheckDevice(), What: what})
			}
		}
		// Report new suspicions only.
		suspects = past.FindSuspicions(run, time.Now(), seen)
		fresh := slices.DeleteFunc(slices.Clone(suspects), func(s history.Suspicion) bool { return slices.ContainsFunc(known, s.IsSame) })
		c.reportSuspicions(past, fresh, seen)
		known = append(known, fresh...)
	}
	return seen, suspects
}

// reportSuspicions reports suspicions that an earlier run had as well. The node is then one of the
// bad nodes of this run.
func (c *Monitor) reportSuspicions(past history.Record, found []history.Suspicion, devices []history.Device) {
	for _, again := range past.RepeatedSuspicions(found, devices) {
		c.reportDerived(gpu.KindSuspect, again)
	}
}

// reportDerived reports an event that is derived from the history, not from the watch.
func (c *Monitor) reportDerived(kind gpu.EventKind, news history.Change) {
	event := gpu.ClassifiedEvent{
		Event: gpu.Event{
			At: time.Now(), Kind: kind, GPU: news.Device.Index, UUID: news.Device.UUID, Bus: news.Device.Bus, Name: news.Device.Name,
		},
		EventVerdict: gpu.EventVerdict{Effect: gpu.EffectWarn, Next: gpu.NextFit, Meaning: news.What},
	}
	if kind == gpu.KindSuspect {
		event.Next, event.Action = gpu.NextUnfit, "drain the node, and test the device"
	}
	c.recordEvent(event)
}

// AwaitReports waits until all events of this node's GPUs were reported, and no longer than within.
// The run must have ended.
func (c *Monitor) AwaitReports(within time.Duration) {
	c.mu.Lock()
	told := c.reported
	c.mu.Unlock()
	if told != nil {
		ctxutil.AwaitDoneFor(told, within)
	}
}

// AwaitSaved waits until the record of this run was written, and no longer than within. The run
// must have ended. Without this wait, a daemon with nothing else to do could exit before the record
// is written.
func (c *Monitor) AwaitSaved(within time.Duration) {
	c.mu.Lock()
	kept := c.saved
	c.mu.Unlock()
	if kept != nil {
		ctxutil.AwaitDoneFor(kept, within)
	}
}

// saveHistory writes the record of this run for later runs.
func (c *Monitor) saveHistory(ctx context.Context, record history.Record) {
	data, err := json.Marshal(record)
	if err == nil {
		ctx, cancel := context.WithTimeoutCause(ctx, historyWriteTimeout, health.ErrDeadline)
		defer cancel()
		err = c.cfg.History().SaveRecord(ctx, append(data, '\n'))
	}
	if err != nil {
		c.cfg.Log.Info("cannot record the device history for later runs", zap.Error(err))
	}
}
