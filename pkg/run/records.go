package run

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

// Records are what this daemon makes appear in the run directory, and how long it
// waits for the share: no longer than a peer may be silent while the run lives, and
// hardly at all when it ends.
type Records struct {
	*Lifetime
	Trail *trail.Trail
	Log   *zap.Logger
	Meter *signal.Meter
	Peer  time.Duration // Times.Peer
	By    string        // the title of the launcher; empty if it has none
	Rank  atomic.Int64  // this node's; a sandbox's daemon learns it late

	Dir     *signal.Dir   // nil until the run directory is made or found
	Control *signal.Watch // over Control, from then on

	// Nudge has the other ends of the lifelines look; nil without any.
	Nudge func()
}

// Publish makes a record of this node's appear.
func (r *Records) Publish(sub, name string, rec signal.Record, durable bool) error {
	return r.appear(sub, name, func(ctx context.Context) error { return r.Dir.Publish(ctx, sub, name, rec, durable) })
}

// Claim makes a record appear that another daemon may have published before.
func (r *Records) Claim(sub, name string, rec signal.Record) error {
	return r.appear(sub, name, func(ctx context.Context) error { return r.Dir.Claim(ctx, sub, name, rec) })
}

// Mark makes a name appear that says all.
func (r *Records) Mark(sub, name string) error {
	return r.appear(sub, name, func(ctx context.Context) error { return r.Dir.Mark(ctx, sub, name) })
}

// Tell publishes that this node has reached a state.
func (r *Records) Tell(state string) error {
	return r.Mark(signal.Nodes, r.Dir.NodeName(int(r.Rank.Load()), state))
}

// PublishResult writes the result, or returns ErrTaken where there is one.
func (r *Records) PublishResult(result *signal.Result) error {
	return r.Ask("publish", signal.NameResult, r.Peer, func(ctx context.Context) error {
		return r.Dir.PublishOnce(ctx, signal.NameResult, result)
	})
}

// appear makes a name appear, leaves a trace of it, and tugs. Of what comes after
// the trail has been written for good there is no trace: it would cost every node
// of thousands one more write, and the records tell the same.
func (r *Records) appear(sub, name string, request func(ctx context.Context) error) error {
	began := time.Now()
	err := r.Ask("publish", filepath.Join(sub, name), r.Peer, request)
	if err == nil && name != r.Dir.NodeName(int(r.Rank.Load()), signal.Done) {
		r.Trail.Published(name, began)
	}
	r.Tug(sub, name)
	return err
}

// Tug has the other ends of the lifelines look at a name, if they look there. A
// worker that waits for the end alone hears of that by the head's farewell.
func (r *Records) Tug(sub, name string) {
	unseen := r.Rank.Load() == 0 && (sub != signal.Control || name == signal.NameOver)
	if r.Nudge != nil && !unseen {
		r.Nudge()
	}
}

// Ask makes a request of the share and waits for it: no longer than within
// while the run lives, and afterwards for a moment. What is not answered by
// then goes on, so that it is done when the share answers again.
func (r *Records) Ask(op, name string, within time.Duration, request func(ctx context.Context) error) error {
	patience := max(0, SickShare-r.Silence())
	ctx, cancel := context.WithTimeoutCause(r.Work, within, health.ErrDeadline)
	answer := make(chan error, 1)
	r.Background(func(context.Context) {
		defer cancel()
		answer <- request(ctx)
	})
	select {
	case err := <-answer:
		return shareError(err)
	case <-r.Life.Done():
	}
	if Orderly(context.Cause(r.Life)) && patience > 0 {
		patience = r.Peer // all nodes end at once, which takes the server its time
	}
	moment := time.NewTimer(patience)
	defer moment.Stop()
	select {
	case err := <-answer:
		return shareError(err)
	case <-moment.C:
		return fmt.Errorf("%w: cannot %s %s: %w", ErrGoesOn, op, name, context.Cause(r.Life))
	}
}

func shareError(err error) error {
	if err != nil && !errors.Is(err, signal.ErrTaken) {
		return health.AsFailure(err)
	}
	return err
}

// ErrGoesOn says that a request of the share was not waited for to the end.
var ErrGoesOn = errors.New("the daemon ends and does not wait for the share")

// Logged says that something could not be written. That a share which is known
// to hang did not take it is news to nobody.
func (r *Records) Logged(err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrGoesOn):
		r.Log.Debug("the share hangs", zap.Error(err))
	default:
		r.Log.Warn("cannot write into the run directory", zap.Error(err))
	}
}

// SickShare is how long the share may take for an answer that somebody waits
// for who is in a hurry.
const SickShare = time.Second

// Silence is for how long the share has not answered this daemon.
func (r *Records) Silence() time.Duration {
	silence := r.Meter.Silence()
	if r.Control != nil {
		silence = max(silence, r.Control.Silence())
	}
	return silence
}

// WhileAnswered returns a context that ends when the share has not answered
// for as long, too.
func (r *Records) WhileAnswered(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	r.Background(func(context.Context) {
		tick := time.NewTicker(SickShare / 10)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if r.Silence() > most {
				cancel(ErrSilent)
				return
			}
		}
	})
	return ctx, func() { cancel(nil) }
}

// Answers reports whether the share shows the control directory anew within the given time. Unlike
// Silence it does not count the time during which this process was stopped.
func (r *Records) Answers(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, within, ErrSilent)
	defer cancel()
	before := r.Control.Last().Looks
	_, err := r.Control.Wait(ctx, func(l signal.Listing) bool { return l.Looks > before })
	return err == nil
}

var ErrSilent = errors.New("the share does not answer")

// Phase runs a part of the sequence, and tells of its begin and its end.
func (r *Records) Phase(name string, part func() error) error {
	r.Trail.Enter(name)
	begin := time.Now()
	err := part()
	r.Trail.Leave(name, time.Since(begin), err == nil || Orderly(err))
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
	r.Log.Info("phase "+name+" is over", zap.Duration("took", time.Since(begin).Round(10*time.Microsecond)))
	return nil
}

// Orderly tells whether what ended a phase is the end that was hoped for.
func Orderly(err error) bool {
	var end *Ending
	return errors.As(err, &end) && end.Orderly
}
