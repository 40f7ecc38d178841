package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/advice"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// goneTimeouts is the number of peer timeouts without a change in a run directory after which all
// its daemons have gone. A healthy head writes a heartbeat file once in four: see
// config.Timeouts.Rest.
const goneTimeouts = 5

// endSignalError is the cause of a wait that a signal has ended.
type endSignalError struct{ sig os.Signal }

func (t *endSignalError) Error() string { return "told to end by " + t.sig.String() }

// withSignals returns a context that also ends at a signal to end, and a function that stops the
// handling of signals.
func (l *supervisor) withSignals(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var heeding sync.WaitGroup
	heeding.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case sig := <-l.cfg.Signals:
				if sig == syscall.SIGTERM || sig == syscall.SIGINT {
					cancel(&endSignalError{sig})
					return
				}
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		heeding.Wait()
	}
}

// replaySignal returns a channel that delivers first and then all signals of rest, and a function
// that stops the forwarding.
func replaySignal(first os.Signal, rest <-chan os.Signal) (<-chan os.Signal, func()) {
	all, over := make(chan os.Signal, cap(rest)+1), make(chan struct{})
	all <- first
	var telling sync.WaitGroup
	telling.Go(func() {
		for {
			select {
			case <-over:
				return
			case sig := <-rest:
				select {
				case all <- sig:
				case <-over:
					return
				}
			}
		}
	})
	return all, func() {
		close(over)
		telling.Wait()
	}
}

// interruptedError returns the error for a wait that was interrupted: a endSignalError if a signal
// has requested the end, otherwise an [endError] with the exit code of the newest result.
func (l *supervisor) interruptedError(ctx context.Context) error {
	if told, is := errors.AsType[*endSignalError](context.Cause(ctx)); is {
		return told
	}
	if l.lastResult != nil {
		return &endError{l.lastResult.code, ""}
	}
	return &endError{0, ""}
}

// waitFor waits for d.
func (l *supervisor) waitFor(ctx context.Context, d time.Duration) error {
	ctx, stop := l.withSignals(ctx)
	defer stop()
	if ctxutil.SleepContext(ctx, d) {
		return nil
	}
	return l.interruptedError(ctx)
}

// attemptLocation returns the location of an attempt; that of the first one is also used to find
// all of them.
func (l *supervisor) attemptLocation(attempt int) signal.Location {
	cfg := l.cfg
	cfg.Identity.Attempt = attempt
	return cfg.RunLocation()
}

// inspectNewest finds the newest attempt, and returns what to do. If the log directory cannot be
// used, it returns the due attempt, which reports the error.
func (l *supervisor) inspectNewest(ctx context.Context) (nextMove, error) {
	ctx, stop := l.withSignals(ctx)
	defer stop()
	begun, err := l.findNewest(ctx)
	if err == nil && begun.HasResult && l.lastResult == nil {
		err = l.loadPreviousResults(ctx, begun)
	}
	switch {
	case ctx.Err() != nil:
		return nextMove{}, l.interruptedError(ctx)
	case err != nil:
		return nextMove{actionBegin, max(l.minAttempt, begun.Attempt)}, nil
	}
	// Read the result of a finished attempt: it says whether another one follows.
	s := attemptState{newest: begun.Attempt, ended: begun.HasResult, joined: l.hasJoined(begun)}
	if begun.HasResult && begun.Attempt >= l.minAttempt {
		result, err := l.readResult(ctx, begun)
		if err != nil {
			return nextMove{actionBegin, begun.Attempt}, nil
		}
		s.next, s.succeeded = result.NextAttempt, hasSucceeded(&result)
	}
	return chooseMove(s, l.minAttempt, l.relaunches), nil
}

// hasJoined reports whether a daemon of this node has taken part in an attempt; for the head,
// whether it has made it.
func (l *supervisor) hasJoined(begun signal.AttemptInfo) bool {
	id := l.cfg.Identity
	return begun.Dir != nil && (l.isHead || slices.Contains(begun.NodeNames, signal.NodeName(id.NodeIndex, id.Size, record.StateJoined)))
}

// findNewest returns the newest attempt. It retries while the file system does not show the log
// directory.
func (l *supervisor) findNewest(ctx context.Context) (begun signal.AttemptInfo, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Times.Join, health.ErrDeadline)
	defer cancel()
	for {
		begun, err = l.attemptLocation(0).NewestAttempt(ctx)
		if err == nil || !signal.IsTransient(err) || !ctxutil.SleepContext(ctx, minPollInterval) {
			return begun, err
		}
	}
}

// readResult returns the result of an attempt.
func (l *supervisor) readResult(ctx context.Context, begun signal.AttemptInfo) (record.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Times.Peer, health.ErrDeadline)
	defer cancel()
	return begun.ReadResult(ctx)
}

// loadPreviousResults reads the results of earlier attempts, for a restarted daemon. The head needs
// all of them.
func (l *supervisor) loadPreviousResults(ctx context.Context, begun signal.AttemptInfo) error {
	result, err := l.readResult(ctx, begun)
	if err != nil {
		return err
	}
	l.lastResult = &attemptResult{result.Code, result.Reason, result.Cause != nil}
	all := []record.Result{result}
	if l.isHead {
		if all, err = l.attemptLocation(0).PreviousResults(ctx, begun.Attempt+1); err != nil {
			return err
		}
	}
	for _, r := range all {
		failures := r.Consequences
		if r.Cause != nil {
			failures = append([]record.Failure{*r.Cause}, failures...)
		}
		l.earlier = l.earlier.AfterAttempt(failures, l.cfg.Identity.HostOf)
	}
	return nil
}

const (
	minPollInterval = 20 * time.Millisecond
	maxPollInterval = time.Second
)

// awaitPreviousEnd waits for the end of an attempt in which an earlier daemon of this node took
// part. The peers of that daemon detect its loss, and end the attempt. If all daemons of the
// attempt have gone, the head ends it.
func (l *supervisor) awaitPreviousEnd(ctx context.Context, attempt int) error {
	ctx, stop := l.withSignals(ctx)
	defer stop()
	var before signal.AttemptInfo
	var tell sync.Once
	began := time.Now()
	for changed := began; ; {
		now, err := l.findNewest(ctx)
		switch {
		case ctx.Err() != nil:
			return l.interruptedError(ctx)
		case err != nil:
			return err
		case now.Attempt > attempt || now.HasResult:
			return nil
		}
		if !slices.Equal(now.ControlNames, before.ControlNames) || !slices.Equal(now.NodeNames, before.NodeNames) {
			changed, before = time.Now(), now
			if err := l.checkTwin(ctx, now); err != nil {
				return err
			}
		}
		// Log once why the daemon waits.
		tell.Do(func() {
			l.logWarning(fmt.Sprintf("an earlier daemon of %s takes part in attempt %d: waiting for its end", l.nodeName(l.cfg.Identity.NodeIndex), attempt+1))
		})
		// If nothing changes any more, the head ends the attempt. If the wait is too long, another daemon
		// of this node must be alive, and this one gives up.
		if l.isHead && time.Since(changed) > l.goneTimeout() {
			return l.closeOrphanedAttempt(ctx, now)
		}
		if waited := time.Since(began); waited > l.previousEndTimeout() && (!l.cfg.HasSpares() || l.isHead || time.Since(changed) > l.previousEndTimeout()) {
			return l.duplicateDaemonError(attempt, waited)
		}
		if !ctxutil.SleepContext(ctx, min(max(minPollInterval, time.Since(began)/8), maxPollInterval)) {
			return l.interruptedError(ctx)
		}
	}
}

// checkTwin returns an error if the earlier daemon of this node lives on this host: it was started
// in addition to this one, and waiting does not help.
func (l *supervisor) checkTwin(ctx context.Context, begun signal.AttemptInfo) error {
	id := l.cfg.Identity
	if !slices.Contains(begun.NodeNames, signal.NodeName(id.NodeIndex, id.Size, record.StateJoined)) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Times.Peer, health.ErrDeadline)
	defer cancel()
	return begun.CheckDuplicate(ctx)
}

// goneTimeout returns the time without a change after which all daemons of an attempt have gone.
func (l *supervisor) goneTimeout() time.Duration { return goneTimeouts * l.cfg.Times.Peer }

// previousEndTimeout returns how long a daemon waits for the end of an attempt in which its node
// took part.
func (l *supervisor) previousEndTimeout() time.Duration {
	return l.cfg.Times.Join + l.goneTimeout() + health.FinalTermTimeout
}

// duplicateDaemonError returns the error for a daemon whose node has another live daemon.
func (l *supervisor) duplicateDaemonError(attempt int, waited time.Duration) error {
	f := health.NewFailure(health.Launch, "cannot take part as %s: another daemon of this node has joined attempt %d already, which has not ended after %s; start one daemon per node",
		l.nodeName(l.cfg.Identity.NodeIndex), attempt+1, waited.Round(time.Second/10))
	return &endError{health.OutcomeOfKind(health.Launch).Code, f.Message}
}

// closeOrphanedAttempt publishes the result of an attempt that has no daemons left.
func (l *supervisor) closeOrphanedAttempt(ctx context.Context, begun signal.AttemptInfo) error {
	f := health.NewFailure(health.DaemonDied, "the daemons of attempt %d have ended: its run directory has not changed for %s", begun.Attempt+1, l.goneTimeout())
	f.Host = l.cfg.Identity.Host
	outcome := health.OutcomeOfCause(f.Failure)
	again := health.DecideRestart(f.Failure, health.RestartPolicy{
		MaxRestarts: l.cfg.After.Restarts, Attempt: begun.Attempt, Nodes: l.cfg.Identity.Size,
	})
	result := &record.Result{
		Run: begun.Name(), Size: l.cfg.Identity.Size, Code: outcome.Code, Outcome: outcome.Name, Reason: f.Message, Cause: &f.Failure,
		RunTimings: record.RunTimings{ProgramVersion: l.cfg.Program},
	}
	if again.Restart {
		result.NextAttempt = begun.Attempt + 1
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Times.Peer, health.ErrDeadline)
	defer cancel()
	err := begun.PublishOnce(ctx, signal.NameResult, result)
	if errors.Is(err, signal.ErrAlreadyPublished) {
		return nil
	}
	if err == nil {
		l.logWarning(f.Message)
	}
	return err
}

// awaitDirectory waits for the directory of an attempt. A head that was lost has less time, because
// it never returns unless something restarts it.
func (l *supervisor) awaitDirectory(ctx context.Context, attempt int) error {
	ctx, stop := l.withSignals(ctx)
	defer stop()
	within := l.cfg.Times.Join + maxBackoff
	if l.headLost && !l.relaunches {
		within = min(within, l.cfg.Times.DaemonReturnTimeout()+l.cfg.After.Backoff)
	}
	waiting, cancel := context.WithTimeoutCause(ctx, within, health.ErrDeadline)
	defer cancel()
	_, _, err := signal.NewFinder(l.attemptLocation(attempt)).AwaitRun(waiting)
	switch {
	case ctx.Err() != nil:
		return l.interruptedError(ctx)
	case !errors.Is(err, health.ErrDeadline):
		return nil // the daemon finds it, or reports the error
	}
	v := cmp.Or(l.lastResult, &attemptResult{code: health.OutcomeOfKind(health.PeerLost).Code})
	why := fmt.Sprintf("attempt %d has not started within %s: %s has not been restarted", attempt+1, within.Round(time.Second/10), l.nodeName(0))
	if v.reason != "" {
		why += "; the previous one ended: " + v.reason
	}
	return &endError{v.code, why}
}

// alreadyEndedError returns the reason why there is no further attempt: the run has ended already.
// A name that was used before is refused, as with only one attempt.
func (l *supervisor) alreadyEndedError(attempt int) error {
	v := l.lastResult
	run := l.attemptLocation(attempt).Run
	switch {
	case v.failed || v.code != 0:
		return &endError{v.code, fmt.Sprintf("run %s has ended already, with code %d: %s", run, v.code, v.reason)}
	case l.isHead && !l.relaunchesEach: // another launch with that name, which must not seem to have succeeded
		return &endError{health.OutcomeOfKind(health.ShareUnusable).Code, fmt.Sprintf("cannot create run %s in %s: it exists already, and has ended; "+
			"give another --job-id, or another --log-dir", run, l.cfg.LogDir)}
	default:
		return &endError{0, fmt.Sprintf("run %s has ended already: %s", run, v.reason)}
	}
}

// nodeName returns the name of a node for messages.
func (l *supervisor) nodeName(node int) string {
	return advice.NodeName(node, l.cfg.Identity)
}
