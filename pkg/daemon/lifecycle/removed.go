package lifecycle

import (
	"context"
	"path/filepath"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/health"
)

// LogLostResult logs why the result of the run cannot be written, unless err is nil. Unlike
// [Publisher.LogWriteError], it also looks for the reason if the file system does not respond: all
// calls fail if a person, or a program that tidies, has removed the run directory.
func (r *Publisher) LogLostResult(err error) {
	if err == nil || !r.reportsRemoval() {
		r.LogWriteError(err)
	}
}

// reportsRemoval reports whether the run directory was removed. The head says so, once.
func (r *Publisher) reportsRemoval() bool {
	ctx, cancel := context.WithTimeoutCause(r.WorkCtx, UnresponsiveTimeout, health.ErrDeadline)
	defer cancel()
	logDir, run := filepath.Split(r.Dir.Path())
	runs, err := r.Dir.ListNames(ctx, "..")
	if err != nil || slices.Contains(runs, run) {
		return false
	}
	level := zapcore.DebugLevel
	if r.NodeIndex.Load() == 0 {
		level = zapcore.WarnLevel
	}
	r.removal.Do(func() {
		r.Log.Log(level, "the run directory was removed while the job ran: there is no result.json, "+
			"and bringupd status, stop and report do not find the run",
			zap.String("run", run), zap.String("removed from", logDir))
	})
	return true
}
