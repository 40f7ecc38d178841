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

	"github.com/bringupd/bringupd/pkg/advice"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/signal"
)

// gonePart is the number of peer timeouts without a change in a run directory after which all its
// daemons have gone. A healthy head writes a heartbeat file once in four: see config.Times.Rest.
const gonePart = 5

// toldToEnd is the cause of a wait that a signal has ended.
type toldToEnd struct{ sig os.Signal }

func (t *toldToEnd) Error() string { return "told to end by " + t.sig.String() }

// heed returns a context that also ends at a signal to end, and a function that stops the handling
// of signals.
func (l *launch) heed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var heeding sync.WaitGroup
	heeding.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case sig := <-l.cfg.Signals:
				if sig == syscall.SIGTERM || sig == syscall.SIGINT {
					cancel(&toldToEnd{sig})
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

// retold returns a channel that delivers first and then all signals of rest, and a function that
// stops the forwarding.
func retold(first os.Signal, rest <-chan os.Signal) (<-chan os.Signal, func()) {
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

// broken returns the error for a wait that was interrupted: a toldToEnd if a signal has requested
// the end, otherwise an [end] with the exit code of the newest result.
func (l *launch) broken(ctx context.Context) error {
	if told, is := errors.AsType[*toldToEnd](context.Cause(ctx)); is {
		return told
	}
	if l.verdict != nil {
		return &end{l.verdict.code, ""}
	}
	return &end{0, ""}
}

// wait waits for d.
func (l *launch) wait(ctx context.Context, d time.Duration) error {
	ctx, stop := l.heed(ctx)
	defer stop()
	if pause.For(ctx, d) {
		return nil
	}
	return l.broken(ctx)
}

// place returns the location of an attempt; that of the first one is also used to find all of them.
func (l *launch) place(attempt int) signal.Place {
	cfg := l.cfg
	cfg.Identity.Attempt = attempt
	return cfg.Place()
}

// look finds the newest attempt, and returns what to do. If the log directory cannot be used, it
// returns the due attempt, which reports the error.
func (l *launch) look(ctx context.Context) (move, error) {
	ctx, stop := l.heed(ctx)
	defer stop()
	begun, err := l.newest(ctx)
	if err == nil && begun.Over && l.verdict == nil {
		err = l.recall(ctx, begun)
	}
	switch {
	case ctx.Err() != nil:
		return move{}, l.broken(ctx)
	case err != nil:
		return move{begin, max(l.floor, begun.Attempt)}, nil
	}
	// Read the result of a finished attempt: it says whether another one follows.
	s := seen{newest: begun.Attempt, over: begun.Over, joined: l.joined(begun)}
	if begun.Over && begun.Attempt >= l.floor {
		result, err := l.result(ctx, begun)
		if err != nil {
			return move{begin, begun.Attempt}, nil
		}
		s.next, s.well = result.NextAttempt, wellDone(&result)
	}
	return choose(s, l.floor, l.relaunches), nil
}

// joined reports whether a daemon of this node has taken part in an attempt; for the head, whether
// it has made it.
func (l *launch) joined(begun signal.Begun) bool {
	id := l.cfg.Identity
	return begun.Dir != nil && (l.head || slices.Contains(begun.Nodes, signal.NodeName(id.Rank, id.Size, signal.Joined)))
}

// newest returns the newest attempt. It retries while the file system does not show the log
// directory.
func (l *launch) newest(ctx context.Context) (begun signal.Begun, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Times.Join, health.ErrDeadline)
	defer cancel()
	for {
		begun, err = l.place(0).Newest(ctx)
		if err == nil || !signal.Absent(err) || !pause.For(ctx, firstLook) {
			return begun, err
		}
	}
}

// result returns the result of an attempt.
func (l *launch) result(ctx context.Context, begun signal.Begun) (signal.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Times.Peer, health.ErrDeadline)
	defer cancel()
	return begun.Result(ctx)
}

// recall reads the results of earlier attempts, for a restarted daemon. The head needs all of them.
func (l *launch) recall(ctx context.Context, begun signal.Begun) error {
	result, err := l.result(ctx, begun)
	if err != nil {
		return err
	}
	l.verdict = &verdict{result.Code, result.Why, result.Cause != nil}
	all := []signal.Result{result}
	if l.head {
		if all, err = l.place(0).Results(ctx, begun.Attempt+1); err != nil {
			return err
		}
	}
	for _, r := range all {
		failures := r.Consequences
		if r.Cause != nil {
			failures = append([]signal.FailedRecord{*r.Cause}, failures...)
		}
		l.earlier = l.earlier.After(failures, l.cfg.Identity.HostOf)
	}
	return nil
}

const (
	firstLook  = 20 * time.Millisecond
	steadyLook = time.Second
)

// outlive waits for the end of an attempt in which an earlier daemon of this node took part. The
// peers of that daemon detect its loss, and end the attempt. If all daemons of the attempt have
// gone, the head ends it.
func (l *launch) outlive(ctx context.Context, attempt int) error {
	ctx, stop := l.heed(ctx)
	defer stop()
	var before signal.Begun
	var tell sync.Once
	began := time.Now()
	for changed := began; ; {
		now, err := l.newest(ctx)
		switch {
		case ctx.Err() != nil:
			return l.broken(ctx)
		case err != nil:
			return err
		case now.Attempt > attempt || now.Over:
			return nil
		}
		if !slices.Equal(now.Control, before.Control) || !slices.Equal(now.Nodes, before.Nodes) {
			changed, before = time.Now(), now
			if err := l.twin(ctx, now); err != nil {
				return err
			}
		}
		// Log once why the daemon waits.
		tell.Do(func() {
			l.log(fmt.Sprintf("an earlier daemon of %s has taken part in attempt %d: waiting until that is over", l.name(l.cfg.Identity.Rank), attempt+1))
		})
		// If nothing changes any more, the head ends the attempt. If the wait is too long, another daemon
		// of this node must be alive, and this one gives up.
		if l.head && time.Since(changed) > l.gone() {
			return l.bury(ctx, now)
		}
		if waited := time.Since(began); waited > l.patience() && (!l.cfg.Spares() || l.head || time.Since(changed) > l.patience()) {
			return l.second(attempt, waited)
		}
		if !pause.For(ctx, min(max(firstLook, time.Since(began)/8), steadyLook)) {
			return l.broken(ctx)
		}
	}
}

// twin returns an error if the earlier daemon of this node lives on this host: it was started in
// addition to this one, and waiting does not help.
func (l *launch) twin(ctx context.Context, begun signal.Begun) error {
	id := l.cfg.Identity
	if !slices.Contains(begun.Nodes, signal.NodeName(id.Rank, id.Size, signal.Joined)) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Times.Peer, health.ErrDeadline)
	defer cancel()
	return begun.Twin(ctx)
}

// gone returns the time without a change after which all daemons of an attempt have gone.
func (l *launch) gone() time.Duration { return gonePart * l.cfg.Times.Peer }

// patience returns how long a daemon waits for the end of an attempt in which its node took part.
func (l *launch) patience() time.Duration {
	return l.cfg.Times.Join + l.gone() + health.EndTime
}

// second returns the error for a daemon whose node has another live daemon.
func (l *launch) second(attempt int, waited time.Duration) error {
	f := health.Failed(health.Launch, "cannot take part as %s: another daemon of this rank has joined attempt %d already, which is not over after %s; start each rank once",
		l.name(l.cfg.Identity.Rank), attempt+1, waited.Round(time.Second/10))
	return &end{health.OutcomeOf(health.Launch).Code, f.What}
}

// bury publishes the result of an attempt that has no daemons left.
func (l *launch) bury(ctx context.Context, begun signal.Begun) error {
	f := health.Failed(health.DaemonDied, "the daemons of attempt %d are gone: nothing has changed in its run directory for %s", begun.Attempt+1, l.gone())
	f.Host = l.cfg.Identity.Host
	outcome := health.OutcomeBy(f.FailedRecord)
	again := health.DecideRestart(f.FailedRecord, health.RestartPolicy{
		Most: l.cfg.After.Restarts, Attempt: begun.Attempt, Nodes: l.cfg.Identity.Size,
	})
	result := &signal.Result{
		Run: begun.Name(), Size: l.cfg.Identity.Size, Code: outcome.Code, Word: outcome.Word, Why: f.What, Cause: &f.FailedRecord,
		Course: signal.Course{Program: l.cfg.Program},
	}
	if again.Again {
		result.NextAttempt = begun.Attempt + 1
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Times.Peer, health.ErrDeadline)
	defer cancel()
	err := begun.PublishOnce(ctx, signal.NameResult, result)
	if errors.Is(err, signal.ErrTaken) {
		return nil
	}
	if err == nil {
		l.log(f.What)
	}
	return err
}

// meet waits for the directory of an attempt. A head that was lost has less time, because it never
// returns unless something restarts it.
func (l *launch) meet(ctx context.Context, attempt int) error {
	ctx, stop := l.heed(ctx)
	defer stop()
	within := l.cfg.Times.Join + longestBackoff
	if l.lost && !l.relaunches {
		within = min(within, l.cfg.Times.ComeBack()+l.cfg.After.Backoff)
	}
	waiting, cancel := context.WithTimeoutCause(ctx, within, health.ErrDeadline)
	defer cancel()
	_, _, err := signal.NewFinder(l.place(attempt)).Find(waiting)
	switch {
	case ctx.Err() != nil:
		return l.broken(ctx)
	case !errors.Is(err, health.ErrDeadline):
		return nil // the daemon finds it, or reports the error
	}
	v := cmp.Or(l.verdict, &verdict{code: health.OutcomeOf(health.PeerLost).Code})
	why := fmt.Sprintf("attempt %d has not begun within %s: %s has not come back", attempt+1, within.Round(time.Second/10), l.name(0))
	if v.why != "" {
		why += "; the one before has ended: " + v.why
	}
	return &end{v.code, why}
}

// finished returns the reason why there is no other attempt: the run has ended already. A name that
// was used before is refused, as with only one attempt.
func (l *launch) finished(attempt int) error {
	v := l.verdict
	run := l.place(attempt).Run
	switch {
	case v.failed || v.code != 0:
		return &end{v.code, fmt.Sprintf("run %s has ended already, with code %d: %s", run, v.code, v.why)}
	case l.head && !l.each: // another launch with that name, which must not seem to have succeeded
		return &end{health.OutcomeOf(health.Share).Code, fmt.Sprintf("cannot make run %s in %s: it has been there before, and has ended; "+
			"give another --job-id, or another --log-dir", run, l.cfg.LogDir)}
	default:
		return &end{0, fmt.Sprintf("run %s has ended already: %s", run, v.why)}
	}
}

// name returns the name of a node for messages.
func (l *launch) name(rank int) string {
	return advice.Name(rank, l.cfg.Identity, l.cfg.World.Wanted())
}
