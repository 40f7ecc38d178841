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
	// recallTime is how long the past may take to be read, which nobody waits for.
	recallTime = 10 * time.Second
	// keepTime is how long it may take to leave this run for later ones: the
	// daemon's end waits no longer for a share that is known to hang.
	keepTime = 5 * time.Second
)

// memory is what this run is to be remembered by.
type memory struct {
	befell []gpu.Judged
	told   chan struct{} // closed when what the GPUs have gone through is told; nil where nothing is to be told
	kept   chan struct{} // closed when that is left for later runs, or given up; nil where nothing is to be left
}

// mostRemembered bounds the events that are remembered: a GPU has a few kinds of
// them, and those that come often are counted.
const mostRemembered = 256

// remember takes an event down for later runs.
func (c *Cards) remember(event gpu.Judged) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.befell) < mostRemembered {
		c.befell = append(c.befell, event)
	}
}

// Checked takes in what the checks have said of this node. From then on its past
// is read, beside all else; what is new is told, and when the run ends what the
// GPUs have gone through. A share that does not play along costs that alone.
func (c *Cards) Checked(run string, found []check.Finding) {
	if c.cfg.GPUs == nil || c.cfg.Past == nil {
		return
	}
	devices, slots := c.cfg.GPUs.Devices()
	if len(devices) == 0 {
		return
	}
	told, kept := make(chan struct{}), make(chan struct{})
	c.mu.Lock()
	c.told, c.kept = told, kept
	c.mu.Unlock()
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

// liveLook lies between two looks at what the GPUs go through: over as long gpud
// counts slowdowns, too (components/accelerator/nvidia/hw-slowdown). What only
// the end of a worker shows may come too late for the result.
const liveLook = 10 * time.Minute

// live tells what matters of what the GPUs go through, the first time that it
// does and at the end of the run. It returns the devices with that, and all that
// makes them suspicious, of which some is known.
func (c *Cards) live(past history.Record, run string, found []check.Finding, known []history.Suspicion) (
	seen []history.Device, suspects []history.Suspicion,
) {
	told := make(map[string]bool)
	for over := false; !over; {
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
		suspects = past.Suspects(run, time.Now(), seen)
		fresh := slices.DeleteFunc(slices.Clone(suspects), func(s history.Suspicion) bool { return slices.ContainsFunc(known, s.Like) })
		c.suspect(past, fresh, seen)
		known = append(known, fresh...)
	}
	return seen, suspects
}

// suspect tells of the suspicions that are not the first of their kind: the node
// is among the bad ones of this run then.
func (c *Cards) suspect(past history.Record, found []history.Suspicion, devices []history.Device) {
	for _, again := range past.Again(found, devices) {
		c.tell(gpu.KindSuspect, again)
	}
}

// tell tells of a device what no watch does.
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

// Settle waits for no longer than within until it is told what this node's GPUs have gone
// through; the run must have ended.
func (c *Cards) Settle(within time.Duration) {
	c.mu.Lock()
	told := c.told
	c.mu.Unlock()
	if told != nil {
		pause.Until(told, within)
	}
}

// Kept waits for no longer than within until that is left for later runs; the run must have ended. A daemon that has
// nothing else to do any more would else end the task before it has begun to write.
func (c *Cards) Kept(within time.Duration) {
	c.mu.Lock()
	kept := c.kept
	c.mu.Unlock()
	if kept != nil {
		pause.Until(kept, within)
	}
}

func (c *Cards) recall() (past history.Record, err error) {
	ctx, cancel := context.WithTimeoutCause(c.cfg.Life, recallTime, health.ErrDeadline)
	defer cancel()
	texts, err := c.cfg.Past().Recall(ctx, history.Records)
	return history.Read(texts), err
}

// keep leaves what this run has seen for later ones.
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
