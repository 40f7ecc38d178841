package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// records are what this daemon makes appear in the run directory, and how long it
// waits for the share: no longer than a peer may be silent while the run lives, and
// hardly at all when it ends.
type records struct {
	*lifetime
	trail *trail.Trail
	log   *zap.Logger
	meter *signal.Meter
	peer  time.Duration // Times.Peer
	rank  atomic.Int64  // this node's; a sandbox's daemon learns it late

	dir     *signal.Dir   // nil until the run directory is made or found
	control *signal.Watch // over Control, from then on

	// nudge has the other ends of the lifelines look; nil without any.
	nudge func()
}

// publish makes a record of this node's appear.
func (r *records) publish(sub, name string, rec signal.Record, durable bool) error {
	return r.appear(sub, name, func(ctx context.Context) error { return r.dir.Publish(ctx, sub, name, rec, durable) })
}

// claimed makes a record appear that another daemon may have published before.
func (r *records) claimed(sub, name string, rec signal.Record) error {
	return r.appear(sub, name, func(ctx context.Context) error { return r.dir.Claim(ctx, sub, name, rec) })
}

// mark makes a name appear that says all.
func (r *records) mark(sub, name string) error {
	return r.appear(sub, name, func(ctx context.Context) error { return r.dir.Mark(ctx, sub, name) })
}

// tell publishes that this node has reached a state.
func (r *records) tell(state string) error {
	return r.mark(signal.Nodes, r.dir.NodeName(int(r.rank.Load()), state))
}

// publishResult writes the result, or returns ErrTaken where there is one.
func (r *records) publishResult(result *signal.Result) error {
	return r.asked("publish", signal.NameResult, r.peer, func(ctx context.Context) error {
		return r.dir.PublishOnce(ctx, signal.NameResult, result)
	})
}

// appear makes a name appear, leaves a trace of it, and tugs. Of what comes after
// the trail has been written for good there is no trace: it would cost every node
// of thousands one more write, and the records tell the same.
func (r *records) appear(sub, name string, request func(ctx context.Context) error) error {
	began := time.Now()
	err := r.asked("publish", filepath.Join(sub, name), r.peer, request)
	if err == nil && name != r.dir.NodeName(int(r.rank.Load()), signal.Done) {
		r.trail.Published(name, began)
	}
	r.tug(sub, name)
	return err
}

// tug has the other ends of the lifelines look at a name, if they look there. A
// worker that waits for the end alone hears of that by the head's farewell.
func (r *records) tug(sub, name string) {
	unseen := r.rank.Load() == 0 && (sub != signal.Control || name == signal.NameOver)
	if r.nudge != nil && !unseen {
		r.nudge()
	}
}

// asked makes a request of the share and waits for it: no longer than within
// while the run lives, and afterwards for a moment. What is not answered by
// then goes on, so that it is done when the share answers again.
func (r *records) asked(op, name string, within time.Duration, request func(ctx context.Context) error) error {
	patience := max(0, sickShare-r.silence())
	ctx, cancel := context.WithTimeoutCause(r.work, within, errDeadline)
	answer := make(chan error, 1)
	r.background(func(context.Context) {
		defer cancel()
		answer <- request(ctx)
	})
	select {
	case err := <-answer:
		return shareError(err)
	case <-r.life.Done():
	}
	if orderly(context.Cause(r.life)) && patience > 0 {
		patience = r.peer // all nodes end at once, which takes the server its time
	}
	moment := time.NewTimer(patience)
	defer moment.Stop()
	select {
	case err := <-answer:
		return shareError(err)
	case <-moment.C:
		return fmt.Errorf("%w: cannot %s %s: %w", errGoesOn, op, name, context.Cause(r.life))
	}
}

func shareError(err error) error {
	if err != nil && !errors.Is(err, signal.ErrTaken) {
		return health.AsFailure(err)
	}
	return err
}

// errGoesOn says that a request of the share was not waited for to the end.
var errGoesOn = errors.New("the daemon ends and does not wait for the share")

// logged says that something could not be written. That a share which is known
// to hang did not take it is news to nobody.
func (r *records) logged(err error) {
	switch {
	case err == nil:
	case errors.Is(err, errGoesOn):
		r.log.Debug("the share hangs", zap.Error(err))
	default:
		r.log.Warn("cannot write into the run directory", zap.Error(err))
	}
}

// sickShare is how long the share may take for an answer that somebody waits
// for who is in a hurry.
const sickShare = time.Second

// silence is for how long the share has not answered this daemon.
func (r *records) silence() time.Duration {
	silence := r.meter.Silence()
	if r.control != nil {
		silence = max(silence, r.control.Silence())
	}
	return silence
}

// whileAnswered returns a context that ends when the share has not answered
// for as long, too.
func (r *records) whileAnswered(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	r.background(func(context.Context) {
		tick := time.NewTicker(sickShare / 10)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if r.silence() > most {
				cancel(errSilent)
				return
			}
		}
	})
	return ctx, func() { cancel(nil) }
}

var errSilent = errors.New("the share does not answer")

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
