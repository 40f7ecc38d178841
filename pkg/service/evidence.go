package service

import (
	"context"
	"maps"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/signal"
)

// evidence are the logs of a service's own.
type evidence struct {
	keeper *signal.Keeper
	of     framework.Evidence
}

const (
	// failTime and keepTime bound what the keeping of logs may add to an end with a
	// cause, and to any other, where people want all of them.
	failTime = 2 * time.Second
	keepTime = 15 * time.Second
	// failTail is how much of the end of a file is kept, in bytes, where a run fails:
	// what a service said before its death is there. keepTail is the same where people
	// want the logs.
	failTail = 1 << 20
	keepTail = 16 << 20
	// keepTotal bounds what is copied at the end, in bytes.
	keepTotal = 256 << 20
	// keepRate bounds what a node copies while it runs, in bytes a second: a thousand
	// nodes are a gigabyte a second at most.
	keepRate = 1 << 20
	// slowRound is how long a round may take before it is given up.
	slowRound = time.Minute
)

// Evident notes where a service's own logs are, and keeps them while it runs where that
// is wanted.
func (c *Children) Evident(service *framework.Service) {
	if service.Evidence.Dir == "" {
		return
	}
	name := strings.TrimSuffix(c.LogName(service.Name), ".log") + ".d"
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.evidence[name] != nil { // it starts again
		return
	}
	e := &evidence{keeper: c.dir.Keeper(service.Evidence.Dir, name), of: service.Evidence}
	c.evidence[name] = e
	if e.of.Every > 0 {
		c.life.Background(func(context.Context) { c.keepUp(e) })
	}
}

// keepUp keeps what is new, as long as the run goes on. What is wrong is told once.
func (c *Children) keepUp(e *evidence) {
	limits := signal.KeepLimits{Tail: keepTail, Total: int64(keepRate * e.of.Every.Seconds())}
	told := ""
	for pause.For(c.life.Run, e.of.Every) {
		ctx, cancel := context.WithTimeoutCause(c.life.Run, slowRound, health.ErrDeadline)
		err := e.keeper.Round(ctx, limits)
		cancel()
		switch {
		case err == nil || c.life.Run.Err() != nil:
			told = ""
		case err.Error() != told:
			told = err.Error()
			c.cfg.Log.Warn("cannot keep the logs of a service for now: the job goes on", zap.Error(err))
		}
	}
}

// KeepEvidence keeps the rest of what services have written of their own: those that are
// always kept, and where the run has failed by this node the ends of the others, too.
func (c *Children) KeepEvidence(failed bool) {
	c.mu.Lock()
	all := maps.Clone(c.evidence)
	c.mu.Unlock()
	within := keepTime
	if failed {
		within = failTime
	}
	ctx, cancel := context.WithTimeoutCause(c.life.Hurry, within, health.ErrDeadline)
	defer cancel()
	for name, e := range all {
		limits := signal.KeepLimits{Tail: failTail, Total: keepTotal, Last: true}
		if e.of.Always {
			limits.Tail = keepTail
		} else if !failed {
			continue
		}
		if err := e.keeper.Round(ctx, limits); err != nil {
			c.cfg.Log.Warn("cannot keep all logs of a service", zap.String("in", name), zap.Error(err))
		}
	}
}
