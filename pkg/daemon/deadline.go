package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/gate"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
)

// heedDeadline ends the job at its deadline, if it has one. The driver then has its grace period.
func (h *head) heedDeadline(ctx context.Context) {
	if h.cfg.Times.Deadline == 0 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(h.Life, cancel)()
	defer cancel()
	began := cmp.Or(h.cfg.Began, h.assembly.began)
	if pause.For(ctx, h.cfg.Times.Deadline-time.Since(began)) {
		h.End(health.Failed(health.TimeUp, "the job's time is up: %s (--deadline) have passed, and %s", prose.FlagTime(h.cfg.Times.Deadline), h.unfinished()))
	}
}

// unfinished describes, as a clause, what the job was still doing at its deadline.
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

// letLook keeps all services up for a while after the driver has ended, if that is configured
// (--clean=none), so that the user can inspect them. It waits until the time is over, a stop is
// requested, or a service fails, which does not change the result. It returns err, the end of the
// driver.
func (h *head) letLook(ctx context.Context, err error) error {
	end, ended := errors.AsType[*run.Ending](err)
	if h.cfg.After.Clean != config.CleanNone || !ended || end.Word != health.Driven || end.Gentle {
		return err
	}
	h.Log.Warn("the driver has ended, and all else stays for a look (--clean=none): bringupd stop ends it sooner",
		zap.String("why", end.Why), zap.Int("code", end.Code), zap.Duration("for", h.cfg.After.Look), zap.String("run", h.Dir.Path()))
	h.Logged(h.Publish(signal.Control, signal.NameLook, &signal.DrainRecord{Code: end.Code, Why: end.Why, Look: h.cfg.After.Look}, false))
	pause.For(ctx, h.cfg.After.Look)
	return err
}
