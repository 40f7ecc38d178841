package daemon

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/run"
)

// letLook leaves everything up for a while where the driver has ended and that is wanted: until it is over, somebody
// stops the job, or something of it dies, which changes nothing of how the driver has ended. It returns err.
func (h *head) letLook(ctx context.Context, err error) error {
	end, ended := errors.AsType[*run.Ending](err)
	if h.cfg.After.Clean != config.CleanNone || !ended || end.Word != health.Driven || end.Gentle {
		return err
	}
	h.Log.Warn("the driver has ended, and all else stays for a look (--clean=none): bringupd stop ends it sooner",
		zap.String("why", end.Why), zap.Int("code", end.Code), zap.Duration("for", h.cfg.After.Look), zap.String("run", h.Dir.Path()))
	pause.For(ctx, h.cfg.After.Look)
	return err
}
