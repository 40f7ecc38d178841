package daemon

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/trail"
)

// phase runs a part of the sequence, and tells of its begin and its end.
func (r *records) phase(name string, part func() error) error {
	r.trail.Enter(name)
	begin := time.Now()
	err := part()
	r.trail.Leave(name, time.Since(begin), err == nil || orderly(err))
	if err != nil {
		// What fails after another part has entered its own phase still
		// failed in this one. Other parts may have come back with the very
		// same failure, where it ended them all: it is not to be changed.
		var f *health.Failure
		if errors.As(err, &f) && f.Phase == "" {
			stamped := *f
			stamped.Phase = name
			return &stamped
		}
		return err
	}
	r.log.Info("phase "+name+" is over", zap.Duration("took", time.Since(begin).Round(10*time.Microsecond)))
	return nil
}

// orderly tells whether what ended a phase is the end that was hoped for.
func orderly(err error) bool {
	var end *ending
	return errors.As(err, &end) && end.orderly
}

// trace is the run's place in a trace, once there is a run directory.
func (n *node) trace() trail.TraceContext {
	return trail.ContextOf(n.cfg.Environ, n.dir.Name(), n.dir.Nonce())
}
