package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/gate"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/prose"
)

// heedDeadline ends the job when its time is up. The driver has its grace then.
func (h *head) heedDeadline(ctx context.Context) {
	if h.cfg.Times.Deadline == 0 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(h.Life, cancel)()
	defer cancel()
	began := h.cfg.Began
	if began.IsZero() {
		began = h.assembly.began
	}
	if pause.For(ctx, h.cfg.Times.Deadline-time.Since(began)) {
		h.End(health.Failed(health.TimeUp, "the job's time is up: %s (--deadline) have passed, and %s", prose.FlagTime(h.cfg.Times.Deadline), h.unfinished()))
	}
}

// unfinished is what a job whose time is up was still doing.
func (h *head) unfinished() string {
	now := h.Trail.Lasted(time.Now())
	switch last := now[len(now)-1]; {
	case last.Phase != "driver":
		return "the gate was not open: " + gate.Line(h.lacks(h.nodes.Last()), h.roster.Count(), h.Trail.Age(), h.cfg.Framework.Name(), h.hostsOf, nil)
	case len(h.cfg.Driver) == 0:
		return "nobody has stopped it"
	default:
		return fmt.Sprintf("the driver had run for %s of them", prose.FlagTime(last.Took.Round(time.Second)))
	}
}
