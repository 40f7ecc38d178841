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

// evidence describes the log files that a service writes itself.
type evidence struct {
	keeper *signal.Keeper
	of     framework.Evidence
}

const (
	// failTime and keepTime bound how long copying logs may delay the end of a run: failTime if the
	// run has failed, keepTime if it has not and the user wants all logs.
	failTime = 2 * time.Second
	keepTime = 15 * time.Second
	// failTail is how much of the end of a file is copied, in bytes, if the run has failed: the last
	// messages of the service are there. keepTail is the same if the user wants the logs.
	failTail = 1 << 20
	keepTail = 16 << 20
	// keepTotal bounds the bytes copied at the end of a run.
	keepTotal = 256 << 20
	// keepRate bounds the copying of a node during a run, in bytes per second: at most one gigabyte
	// per second for a thousand nodes.
	keepRate = 1 << 20
	// slowRound is the time after which one round of copying is abandoned.
	slowRound = time.Minute
)

// Evident registers the directory of the logs that a service writes itself. If the service wants
// it, they are copied while the service runs, not only at the end.
func (c *Children) Evident(service *framework.Service) {
	if service.Evidence.Dir == "" {
		return
	}
	name := strings.TrimSuffix(c.LogName(service.Name), ".log") + ".d"
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.evidence[name] != nil { // the service is being started again
		return
	}
	e := &evidence{keeper: c.dir.Keeper(service.Evidence.Dir, name), of: service.Evidence}
	c.evidence[name] = e
	if e.of.Every > 0 {
		c.life.Background(func(context.Context) { c.keepUp(e) })
	}
}

// keepUp copies new log data as long as the run goes on. It logs each new error once.
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

// KeepEvidence copies the remaining log data of services: of services with Evidence.Always and, if
// the run has failed because of this node, the ends of the logs of all others.
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
