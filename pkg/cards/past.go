package cards

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/history"
	"github.com/bringupd/bringupd/pkg/pause"
)

const (
	// recallTime is the timeout for reading earlier records. Nothing else waits for it.
	recallTime = 10 * time.Second
	// keepTime is the timeout for writing this run's record. At its end, the daemon does not wait
	// longer for an unresponsive file system.
	keepTime = 5 * time.Second
)

// memory is the state for the record of this run.
type memory struct {
	befell []gpu.Judged
	told   chan struct{} // closed when all events of the GPUs were reported; nil if there is nothing to report
	kept   chan struct{} // closed when the record was written or writing was given up; nil if no record is written
}

// mostRemembered limits the stored events. A GPU has few different events, and frequent ones are
// counted instead.
const mostRemembered = 256

// remember stores an event for later runs.
func (c *Cards) remember(event gpu.Judged) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.befell) < mostRemembered {
		c.befell = append(c.befell, event)
	}
}

// Checked receives the findings of the node's checks. It starts a background task that reads the
// records of earlier runs, reports what has changed, and monitors the counters of the GPUs until
// the run ends. If the file system is unresponsive, only this task is affected.
func (c *Cards) Checked(run string, found []check.Finding) {
	if c.cfg.GPUs == nil || c.cfg.Past == nil {
		return
	}
	devices, slots := c.cfg.GPUs.Devices()
	if len(devices) == 0 {
		return
	}
	// Settle and Kept wait until the task closes these channels.
	told, kept := make(chan struct{}), make(chan struct{})
	c.mu.Lock()
	c.told, c.kept = told, kept
	c.mu.Unlock()
	// Read the earlier records and report changes and repeated problems. Then monitor until the end.
	c.cfg.Background(func(ctx context.Context) {
		defer close(kept)
		past, err := c.recall()
		if err != nil && c.cfg.Life.Err() == nil {
			c.cfg.Log.Info("cannot compare the devices of this node with those of earlier runs", zap.Error(err))
		}
		for _, news := range past.News(devices, slots) {
			c.tell(gpu.KindChanged, news)
		}
		seen := history.WithFindings(devices, found)
		suspects := past.Suspects(run, time.Now(), seen)
		c.suspect(past, append(past.Late(), suspects...), seen)
		seen, suspects = c.live(past, run, found, suspects)
		close(told)
		if err == nil {
			c.keep(ctx, past.Next(run, time.Now(), seen, slots, suspects))
		}
	})
}

// liveLook is the interval at which counters are read. gpud counts slowdowns over the same period
// (components/accelerator/nvidia/hw-slowdown). An event that a worker finds only at its end may be
// too late for the result.
const liveLook = 10 * time.Minute

// live reports remarkable counters of the GPUs, when they first become remarkable and at the end of
// the run. It returns the devices at the end of the run with their events, and all suspicions about
// them, including the known ones.
func (c *Cards) live(past history.Record, run string, found []check.Finding, known []history.Suspicion) (
	seen []history.Device, suspects []history.Suspicion,
) {
	told := make(map[string]bool)
	for over := false; !over; {
		// Wait, then add the events and findings to the current counters.
		over = !pause.For(c.cfg.Life, liveLook)
		devices, _ := c.cfg.GPUs.Devices()
		c.mu.Lock()
		befell := c.befell
		c.mu.Unlock()
		seen = history.WithEvents(history.WithFindings(devices, found), befell)
		for _, d := range seen {
			if what := d.Course.Told(); what != "" && (over || !told[d.ID]) {
				told[d.ID] = true
				c.tell(gpu.KindCourse, history.News{Device: d.Device(), What: what})
			}
		}
		// Report new suspicions only.
		suspects = past.Suspects(run, time.Now(), seen)
		fresh := slices.DeleteFunc(slices.Clone(suspects), func(s history.Suspicion) bool { return slices.ContainsFunc(known, s.Like) })
		c.suspect(past, fresh, seen)
		known = append(known, fresh...)
	}
	return seen, suspects
}

// suspect reports suspicions that an earlier run had as well. The node is then one of the bad nodes
// of this run.
func (c *Cards) suspect(past history.Record, found []history.Suspicion, devices []history.Device) {
	for _, again := range past.Again(found, devices) {
		c.tell(gpu.KindSuspect, again)
	}
}

// tell reports an event that is derived from the history, not from the watch.
func (c *Cards) tell(kind gpu.Kind, news history.News) {
	event := gpu.Judged{
		Event: gpu.Event{
			At: time.Now(), Kind: kind, GPU: news.Device.Index, UUID: news.Device.UUID, Bus: news.Device.Bus, Name: news.Device.Name,
		},
		XidVerdict: gpu.XidVerdict{Effect: gpu.EffectWarn, Next: gpu.NextFit, Meaning: news.What},
	}
	if kind == gpu.KindSuspect {
		event.Next, event.Action = gpu.NextUnfit, "drain the node, and test the device"
	}
	c.note(event)
}

// Settle waits until all events of this node's GPUs were reported, and no longer than within. The
// run must have ended.
func (c *Cards) Settle(within time.Duration) {
	c.mu.Lock()
	told := c.told
	c.mu.Unlock()
	if told != nil {
		pause.Until(told, within)
	}
}

// Kept waits until the record of this run was written, and no longer than within. The run must have
// ended. Without this wait, a daemon with nothing else to do could exit before the record is
// written.
func (c *Cards) Kept(within time.Duration) {
	c.mu.Lock()
	kept := c.kept
	c.mu.Unlock()
	if kept != nil {
		pause.Until(kept, within)
	}
}

// recall reads and merges the last records of this host.
func (c *Cards) recall() (past history.Record, err error) {
	ctx, cancel := context.WithTimeoutCause(c.cfg.Life, recallTime, health.ErrDeadline)
	defer cancel()
	texts, err := c.cfg.Past().Recall(ctx, history.Records)
	return history.Read(texts), err
}

// keep writes the record of this run for later runs.
func (c *Cards) keep(ctx context.Context, record history.Record) {
	data, err := json.Marshal(record)
	if err == nil {
		ctx, cancel := context.WithTimeoutCause(ctx, keepTime, health.ErrDeadline)
		defer cancel()
		err = c.cfg.Past().Keep(ctx, append(data, '\n'))
	}
	if err != nil {
		c.cfg.Log.Info("cannot leave for later runs what this one has seen of the devices", zap.Error(err))
	}
}
