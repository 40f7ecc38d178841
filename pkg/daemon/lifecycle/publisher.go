package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Publisher publishes this daemon's records in the run directory, with timeouts: while the run
// lives, the time for which a peer may be silent, and a moment when it ends.
type Publisher struct {
	*Lifetime
	Events        *eventlog.EventLog
	Log           *zap.Logger
	Meter         *signal.CallMeter
	PeerTimeout   time.Duration // Times.Peer
	LauncherTitle string        // the title of the launcher; empty if it has none
	health.LauncherSignals
	NodeIndex int // this node's index

	Dir          *signal.Dir   // nil until the run directory is made or found
	ControlWatch *signal.Watch // watch on the control directory; nil as long as Dir

	removal sync.Once // protects the message that the run directory was removed

	// Notify sends notifications on the peer links. It is nil without any.
	Notify  func()
	Reports Reports
}

// Publish publishes a record of this node.
func (r *Publisher) Publish(sub, name string, rec record.Record, durable bool) error {
	return r.publishAndNotify(sub, name,
		func(ctx context.Context) error { return r.Dir.PublishRecord(ctx, sub, name, rec, durable) })
}

// ClaimRecord publishes a record that another daemon may have published before.
func (r *Publisher) ClaimRecord(sub, name string, rec record.Record) error {
	return r.publishAndNotify(sub, name,
		func(ctx context.Context) error { return r.Dir.ClaimRecord(ctx, sub, name, rec) })
}

// MarkName publishes a name without content.
func (r *Publisher) MarkName(sub, name string) error {
	return r.publishAndNotify(sub, name, func(ctx context.Context) error { return r.Dir.WriteMark(ctx, sub, name) })
}

// RemoveOldNames removes names that nobody needs any more, in the background. It does nothing without
// names. Those that cannot be removed stay.
func (r *Publisher) RemoveOldNames(sub string, names []string) {
	if len(names) == 0 {
		return
	}
	r.Background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeoutCause(ctx, r.PeerTimeout, health.ErrDeadline)
		defer cancel()
		if err := r.Dir.RemoveNames(ctx, sub, names...); err != nil && ctx.Err() == nil {
			r.Log.Debug("cannot remove old names", zap.Error(err))
		}
	})
}

// PublishState publishes that this node has reached a state.
func (r *Publisher) PublishState(state record.State) error {
	return r.MarkName(signal.NodesDir, r.Dir.NodeName(r.NodeIndex, state))
}

// PublishResult writes the result, unless there is one already.
func (r *Publisher) PublishResult(result *record.Result) error {
	return r.CallFileSystem("publish", signal.NameResult, r.PeerTimeout, func(ctx context.Context) error {
		return r.Dir.PublishOnce(ctx, signal.NameResult, result)
	})
}

// RecordBadNodes records in the log directory the nodes that the next job should avoid.
func (r *Publisher) RecordBadNodes(hosts []string) error {
	return r.CallFileSystem("write", signal.BadNodesDir, r.PeerTimeout, func(ctx context.Context) error {
		path, err := r.Dir.RecordBadNodes(ctx, hosts)
		if err == nil {
			r.Log.Debug("recorded the nodes to avoid", zap.String("in", path), zap.Strings("bad nodes", hosts))
		}
		return err
	})
}

// publishAndNotify publishes a name, logs an event, and sends notifications. The last name has no
// event: it would cost each of thousands of nodes another write.
func (r *Publisher) publishAndNotify(sub, name string, request func(ctx context.Context) error) error {
	began := time.Now()
	err := r.CallFileSystem("publish", filepath.Join(sub, name), r.PeerTimeout, request)
	if err == nil && name != r.Dir.NodeName(r.NodeIndex, record.StateDone) {
		r.Events.LogPublication(name, began)
	}
	r.NotifyPeers(sub, name)
	return err
}

// NotifyPeers notifies the other ends of the peer links of a name, if they poll its directory. The
// workers learn of an orderly end by the record that the head sends, and those that only wait for the
// end of the head by its goodbye message.
func (r *Publisher) NotifyPeers(sub, name string) {
	unseen := r.NodeIndex == 0 &&
		(sub != signal.ControlDir || name == signal.NameHeadFinished || name == signal.NameOrderlyEnd)
	if r.Notify != nil && !unseen {
		r.Notify()
	}
}

// CallFileSystem makes a request to the file system and waits for the answer: while the run lives
// at most for within, and at its end only for a moment. A request that is not answered by then
// continues in the background, so that it is completed when the file system answers again.
func (r *Publisher) CallFileSystem(op, name string, within time.Duration,
	request func(ctx context.Context) error) error {
	atEnd := max(0, UnresponsiveTimeout-r.FileSystemSilence())
	ctx, cancel := context.WithTimeoutCause(r.WorkCtx, within, health.ErrDeadline)
	answer := make(chan error, 1)
	r.Background(func(context.Context) {
		defer cancel()
		answer <- request(ctx)
	})
	select {
	case err := <-answer:
		return shareError(err)
	case <-r.RunCtx.Done():
	}
	if IsOrderly(context.Cause(r.RunCtx)) && atEnd > 0 {
		atEnd = r.PeerTimeout // all nodes end at once, and the server needs time for that
	}
	moment := time.NewTimer(atEnd)
	defer moment.Stop()
	select {
	case err := <-answer:
		return shareError(err)
	case <-moment.C:
		return fmt.Errorf("%w: cannot %s %s: %w", ErrNotAwaited, op, name, context.Cause(r.RunCtx))
	}
}

func shareError(err error) error {
	if err != nil && !errors.Is(err, signal.ErrAlreadyPublished) {
		return health.AsFailure(err)
	}
	return err
}

// ErrNotAwaited reports that the result of a request was not awaited.
var ErrNotAwaited = errors.New("the daemon ends without waiting for the shared file system")

// LogWriteError logs that a record could not be written, unless the file system is already known to
// be unresponsive.
func (r *Publisher) LogWriteError(err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrNotAwaited):
		r.Log.Debug("the shared file system hangs", zap.Error(err))
	case r.Dir != nil && r.reportsRemoval():
	default:
		r.Log.Warn("cannot write into the run directory", zap.Error(err))
	}
}

// UnresponsiveTimeout is how long the file system may take to answer a caller that cannot wait
// long.
const UnresponsiveTimeout = time.Second

// FileSystemSilence returns how long the file system has not answered this daemon.
func (r *Publisher) FileSystemSilence() time.Duration {
	silence := r.Meter.UnresponsiveFor()
	if r.ControlWatch != nil {
		silence = max(silence, r.ControlWatch.UnresponsiveFor())
	}
	return silence
}

// WithResponsiveShare returns a context that also ends, with ErrUnresponsive as its cause, when the
// file system has not answered for longer than limit.
func (r *Publisher) WithResponsiveShare(ctx context.Context, limit time.Duration) (context.Context,
	context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	r.Background(func(context.Context) {
		tick := time.NewTicker(UnresponsiveTimeout / 10)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if r.FileSystemSilence() > limit {
				cancel(ErrUnresponsive)
				return
			}
		}
	})
	return ctx, func() { cancel(nil) }
}

// IsResponsive reports whether a new poll of the control directory succeeds within the given time.
// Unlike FileSystemSilence it does not count the time during which this process was stopped.
func (r *Publisher) IsResponsive(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, within, ErrUnresponsive)
	defer cancel()
	before := r.ControlWatch.LastListing().Polls
	_, err := r.ControlWatch.WaitListing(ctx, func(l signal.Listing) bool { return l.Polls > before })
	return err == nil
}

// ErrUnresponsive is the cause of a context that ends because the file system does not answer.
var ErrUnresponsive = errors.New("the shared file system does not respond")

// RunPhase runs a part of the sequence, and logs its begin and its end.
func (r *Publisher) RunPhase(name record.Phase, part func() error) error {
	r.Events.EnterPhase(name)
	begin := time.Now()
	err := part()
	r.Events.LeavePhase(name, time.Since(begin), err == nil || IsOrderly(err))
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
	took := time.Since(begin)
	r.Log.Log(ProgressLevel(took), "phase "+string(name)+" is over",
		zap.String("took", textutil.RoundedDuration(took, time.Minute)))
	return nil
}

// minReportedPhase is the duration from which the user is interested in the end of a phase.
const minReportedPhase = time.Second

// ProgressLevel returns the level of a message about progress that has taken this long: a short job
// shows only that it has started.
func ProgressLevel(took time.Duration) zapcore.Level {
	if took < minReportedPhase {
		return zapcore.DebugLevel
	}
	return zapcore.InfoLevel
}

// IsOrderly reports whether a phase ended without a failure.
func IsOrderly(err error) bool {
	var end *Outcome
	return errors.As(err, &end) && end.Orderly
}

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
	if r.NodeIndex == 0 {
		level = zapcore.WarnLevel
	}
	r.removal.Do(func() {
		r.Log.Log(level, "the run directory was removed while the job ran: there is no result.json, "+
			"and bringupd status, stop and report do not find the run",
			zap.String("run", run), zap.String("removed from", logDir))
	})
	return true
}
