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

// gonePart is for how many peer timeouts nothing has changed in a run directory whose
// daemons are all gone. A calm head beats there once in four: see config.Times.Rest.
const gonePart = 5

// toldToEnd is the cause of a wait that a signal has ended.
type toldToEnd struct{ sig os.Signal }

func (t *toldToEnd) Error() string { return "told to end by " + t.sig.String() }

// heed returns a context that a signal to end ends, too, and what stops heeding.
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

// retold returns the signals with one before them, and what ends that.
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

// broken is why a wait has ended early: who was told to end says so by that, and who is
// to leave for another reason leaves with what is known.
func (l *launch) broken(ctx context.Context) error {
	if told, is := errors.AsType[*toldToEnd](context.Cause(ctx)); is {
		return told
	}
	if l.verdict != nil {
		return &end{l.verdict.code, ""}
	}
	return &end{0, ""}
}

// wait lets time pass.
func (l *launch) wait(ctx context.Context, d time.Duration) error {
	ctx, stop := l.heed(ctx)
	defer stop()
	if pause.For(ctx, d) {
		return nil
	}
	return l.broken(ctx)
}

// place is where an attempt meets; of the first one, it is where all of them are looked for.
func (l *launch) place(attempt int) signal.Place {
	cfg := l.cfg
	cfg.Identity.Attempt = attempt
	return cfg.Place()
}

// look sees which attempt is the newest, and what to do. Where the log directory can't be
// used, the attempt that is due tells what is wrong with it.
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

// joined tells whether a daemon of this rank has taken part in an attempt: the head has made it.
func (l *launch) joined(begun signal.Begun) bool {
	id := l.cfg.Identity
	return begun.Dir != nil && (l.head || slices.Contains(begun.Nodes, signal.NodeName(id.Rank, id.Size, signal.Joined)))
}

// newest is the newest attempt. What a share does not know yet is asked for again.
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

// result is how an attempt has ended.
func (l *launch) result(ctx context.Context, begun signal.Begun) (signal.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Times.Peer, health.ErrDeadline)
	defer cancel()
	return begun.Result(ctx)
}

// recall takes in how earlier attempts have ended, of a launch whose daemon has been
// started anew. The head needs to know all of them.
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

// outlive waits until an attempt is over in which an earlier daemon of this rank took
// part: its peers miss that, and end it. Where nobody is left to do so, the head does.
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
		tell.Do(func() {
			l.log(fmt.Sprintf("an earlier daemon of %s has taken part in attempt %d: waiting until that is over", l.name(l.cfg.Identity.Rank), attempt+1))
		})
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

// twin returns an error if the earlier daemon of this node lives on this host: it was started beside this
// one, and does not end by waiting.
func (l *launch) twin(ctx context.Context, begun signal.Begun) error {
	id := l.cfg.Identity
	if !slices.Contains(begun.Nodes, signal.NodeName(id.Rank, id.Size, signal.Joined)) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.Times.Peer, health.ErrDeadline)
	defer cancel()
	return begun.Twin(ctx)
}

// gone is for how long nothing has changed where all daemons of an attempt are gone.
func (l *launch) gone() time.Duration { return gonePart * l.cfg.Times.Peer }

// patience is how long a daemon waits for the end of an attempt in which one of its rank took part.
func (l *launch) patience() time.Duration {
	return l.cfg.Times.Join + l.gone() + health.EndTime
}

// second is why a daemon ends whose rank has another one that lives.
func (l *launch) second(attempt int, waited time.Duration) error {
	f := health.Failed(health.Launch, "cannot take part as %s: another daemon of this rank has joined attempt %d already, which is not over after %s; start each rank once",
		l.name(l.cfg.Identity.Rank), attempt+1, waited.Round(time.Second/10))
	return &end{health.OutcomeOf(health.Launch).Code, f.What}
}

// bury ends an attempt of which no daemon is left.
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

// meet waits for the directory of an attempt. A head that was lost has less time: where
// nothing starts it again, it never comes.
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
		return nil // the daemon finds it, or tells what is wrong
	}
	v := cmp.Or(l.verdict, &verdict{code: health.OutcomeOf(health.PeerLost).Code})
	why := fmt.Sprintf("attempt %d has not begun within %s: %s has not come back", attempt+1, within.Round(time.Second/10), l.name(0))
	if v.why != "" {
		why += "; the one before has ended: " + v.why
	}
	return &end{v.code, why}
}

// finished is why there is no other attempt: the run has ended already. A name that was used
// before is refused as where there is one attempt alone.
func (l *launch) finished(attempt int) error {
	v := l.verdict
	run := l.place(attempt).Run
	switch {
	case v.failed || v.code != 0:
		return &end{v.code, fmt.Sprintf("run %s has ended already, with code %d: %s", run, v.code, v.why)}
	case l.head && !l.each: // another launch of that name, which must not seem to have been done
		return &end{health.OutcomeOf(health.Share).Code, fmt.Sprintf("cannot make run %s in %s: it has been there before, and has ended; "+
			"give another --job-id, or another --log-dir", run, l.cfg.LogDir)}
	default:
		return &end{0, fmt.Sprintf("run %s has ended already: %s", run, v.why)}
	}
}

// name is how messages speak of a node.
func (l *launch) name(rank int) string {
	return advice.Name(rank, l.cfg.Identity, l.cfg.World.Wanted())
}
