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

// Records publishes this daemon's records in the run directory, with timeouts: while the run lives,
// the time for which a peer may be silent, and a moment when it ends.
type Records struct {
	*Lifetime
	Trail *trail.Trail
	Log   *zap.Logger
	Meter *signal.Meter
	Peer  time.Duration // Times.Peer
	By    string        // the title of the launcher; empty if it has none
	Rank  atomic.Int64  // this node's index; a sandbox's daemon learns it late

	Dir     *signal.Dir   // nil until the run directory is made or found
	Control *signal.Watch // watch on the control directory; nil as long as Dir

	// Nudge sends notifications on the peer links. It is nil without any.
	Nudge func()
}

// Publish publishes a record of this node.
func (r *Records) Publish(sub, name string, rec signal.Record, durable bool) error {
	return r.appear(sub, name, func(ctx context.Context) error { return r.Dir.Publish(ctx, sub, name, rec, durable) })
}

// Claim publishes a record that another daemon may have published before.
func (r *Records) Claim(sub, name string, rec signal.Record) error {
	return r.appear(sub, name, func(ctx context.Context) error { return r.Dir.Claim(ctx, sub, name, rec) })
}

// Mark publishes a name without content.
func (r *Records) Mark(sub, name string) error {
	return r.appear(sub, name, func(ctx context.Context) error { return r.Dir.Mark(ctx, sub, name) })
}

// Tell publishes that this node has reached a state.
func (r *Records) Tell(state string) error {
	return r.Mark(signal.Nodes, r.Dir.NodeName(int(r.Rank.Load()), state))
}

// PublishResult writes the result, or returns ErrTaken if there is one.
func (r *Records) PublishResult(result *signal.Result) error {
	return r.Ask("publish", signal.NameResult, r.Peer, func(ctx context.Context) error {
		return r.Dir.PublishOnce(ctx, signal.NameResult, result)
	})
}

// appear publishes a name, logs an event, and sends notifications. Names that are published after
// the event log was closed have no event: it would cost each of thousands of nodes another write,
// and the records have the same information.
func (r *Records) appear(sub, name string, request func(ctx context.Context) error) error {
	began := time.Now()
	err := r.Ask("publish", filepath.Join(sub, name), r.Peer, request)
	if err == nil && name != r.Dir.NodeName(int(r.Rank.Load()), signal.Done) {
		r.Trail.Published(name, began)
	}
	r.Tug(sub, name)
	return err
}

// Tug notifies the other ends of the peer links of a name, if they poll its directory. A worker
// that only waits for the end learns of it by the head's goodbye message.
func (r *Records) Tug(sub, name string) {
	unseen := r.Rank.Load() == 0 && (sub != signal.Control || name == signal.NameOver)
	if r.Nudge != nil && !unseen {
		r.Nudge()
	}
}

// Ask makes a request to the file system and waits for the answer: while the run lives at most for
// within, and at its end only for a moment. A request that is not answered by then continues in the
// background, so that it is completed when the file system answers again.
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
		patience = r.Peer // all nodes end at once, and the server needs time for that
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

// ErrGoesOn reports that the result of a request was not awaited.
var ErrGoesOn = errors.New("the daemon ends and does not wait for the share")

// Logged logs that a record could not be written, unless the file system is already known to be
// unresponsive.
func (r *Records) Logged(err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrGoesOn):
		r.Log.Debug("the share hangs", zap.Error(err))
	default:
		r.Log.Warn("cannot write into the run directory", zap.Error(err))
	}
}

// SickShare is how long the file system may take to answer a caller that cannot wait long.
const SickShare = time.Second

// Silence returns how long the file system has not answered this daemon.
func (r *Records) Silence() time.Duration {
	silence := r.Meter.Silence()
	if r.Control != nil {
		silence = max(silence, r.Control.Silence())
	}
	return silence
}

// WhileAnswered returns a context that also ends, with ErrSilent as its cause, when the file system
// has not answered for longer than most.
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

// Answers reports whether a new poll of the control directory succeeds within the given time.
// Unlike Silence it does not count the time during which this process was stopped.
func (r *Records) Answers(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, within, ErrSilent)
	defer cancel()
	before := r.Control.Last().Looks
	_, err := r.Control.Wait(ctx, func(l signal.Listing) bool { return l.Looks > before })
	return err == nil
}

// ErrSilent is the cause of a context that ends because the file system does not answer.
var ErrSilent = errors.New("the share does not answer")

// Phase runs a part of the sequence, and logs its begin and its end.
func (r *Records) Phase(name string, part func() error) error {
	r.Trail.Enter(name)
	begin := time.Now()
	err := part()
	r.Trail.Leave(name, time.Since(begin), err == nil || Orderly(err))
	if err != nil {
		// A part that fails after another part has entered its own phase still failed in this one. If
		// several parts return the same failure, which has ended all of them, it must not be changed.
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

// Orderly reports whether a phase ended without a failure.
func Orderly(err error) bool {
	var end *Ending
	return errors.As(err, &end) && end.Orderly
}
