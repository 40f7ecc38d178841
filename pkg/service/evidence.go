package service

import (
	"context"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// serviceLogs describes the log files that a service writes itself.
type serviceLogs struct {
	copier *logCopier
	config framework.ServiceLogs
}

const (
	// failedCopyTimeout and fullCopyTimeout bound how long copying logs may delay the end of a run:
	// failedCopyTimeout if the run has failed, fullCopyTimeout if it has not and the user wants all
	// logs.
	failedCopyTimeout = 2 * time.Second
	fullCopyTimeout   = 15 * time.Second
	// failedTailSize is how much of the end of a file is copied, in bytes, if the run has failed: the
	// last messages of the service are there. fullTailSize is the same if the user wants the logs.
	failedTailSize = 1 << 20
	fullTailSize   = 16 << 20
	maxFinalCopy   = 256 << 20 // bounds the bytes copied at the end of a run
	// maxCopyRate bounds the copying of a node during a run, in bytes per second: at most one gigabyte
	// per second for a thousand nodes.
	maxCopyRate      = 1 << 20
	copyRoundTimeout = time.Minute // the time after which one round of copying is abandoned
)

// RegisterLogs registers the directory of the logs that a service writes itself. If the service
// wants it, they are copied while the service runs, not only at the end.
func (c *Children) RegisterLogs(service *framework.Service) {
	if service.OwnLogs.Dir == "" {
		return
	}
	name := strings.TrimSuffix(c.LogName(service.Name), ".log") + ".d"
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serviceLogs[name] != nil { // the service is being started again
		return
	}
	e := &serviceLogs{copier: newLogCopier(c.dir.FS(), service.OwnLogs.Dir,
		filepath.Join(c.dir.Path(), signal.LogsDir, name)), config: service.OwnLogs}
	c.serviceLogs[name] = e
	if e.config.KeepInterval > 0 {
		c.contexts.Background(func(context.Context) { c.copyPeriodically(e) })
	}
}

// copyPeriodically copies new log data as long as the run goes on. It logs each new error once.
func (c *Children) copyPeriodically(e *serviceLogs) {
	limits := copyLimits{MaxFileTail: fullTailSize, MaxTotal: int64(maxCopyRate * e.config.KeepInterval.Seconds())}
	logged := ""
	for ctxutil.SleepContext(c.contexts.Run, e.config.KeepInterval) {
		ctx, cancel := context.WithTimeoutCause(c.contexts.Run, copyRoundTimeout, health.ErrDeadline)
		err := e.copier.copyNew(ctx, limits)
		cancel()
		switch {
		case err == nil || c.contexts.Run.Err() != nil:
			logged = ""
		case err.Error() != logged:
			logged = err.Error()
			c.cfg.Log.Warn("cannot keep the logs of a service at present: the job continues", zap.Error(err))
		}
	}
}

// CopyLogs copies the remaining log data of services: of services with Evidence.Always and, if
// the run has failed because of this node, the ends of the logs of all others.
func (c *Children) CopyLogs(failed bool) {
	c.mu.Lock()
	all := maps.Clone(c.serviceLogs)
	c.mu.Unlock()
	within := fullCopyTimeout
	if failed {
		within = failedCopyTimeout
	}
	ctx, cancel := context.WithTimeoutCause(c.contexts.Grace, within, health.ErrDeadline)
	defer cancel()
	for name, e := range all {
		limits := copyLimits{MaxFileTail: failedTailSize, MaxTotal: maxFinalCopy, IsLast: true}
		if e.config.KeepAlways {
			limits.MaxFileTail = fullTailSize
		} else if !failed {
			continue
		}
		if err := e.copier.copyNew(ctx, limits); err != nil {
			c.cfg.Log.Warn("cannot keep all logs of a service", zap.String("in", name), zap.Error(err))
		}
	}
}
