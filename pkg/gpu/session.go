package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

const (
	// A watch that has died is restarted after a pause, which doubles from minRestartPause to
	// maxRestartPause. It is not restarted after maxStartFailures consecutive failures to start.
	minRestartPause  = time.Second
	maxRestartPause  = time.Minute
	maxStartFailures = 5
)

// Session is one child that is kept from the first request until Close. NVML stays open in it, so
// that a driver without persistence mode keeps the GPUs initialised. Initialising them takes half a
// minute each time, and resets their counters. If the child dies, the next request starts another.
type Session struct {
	child Child

	starting sync.Mutex // held while a child is started

	mu sync.Mutex
	// running is the child, or nil if there is none; guarded by mu.
	running *runningChild
	closed  bool // guarded by mu
}

var errSessionClosed = errors.New("it was closed")

// ensureChild returns the running child, or starts one. It returns errSessionClosed after Close.
func (s *Session) ensureChild(ctx context.Context) (*runningChild, error) {
	s.starting.Lock()
	defer s.starting.Unlock()
	s.mu.Lock()
	d, closed := s.running, s.closed
	s.mu.Unlock()
	if closed {
		return nil, errSessionClosed
	}
	if d != nil && !ctxutil.AwaitDoneFor(d.Ended, 0) {
		return d, nil
	}
	d, err := s.child.startChild(ctx)
	// Close may have been called meanwhile.
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.closed {
		d.KillOrAbandon()
		return nil, errSessionClosed
	}
	s.running = d
	return d, err
}

// Probe inspects all GPUs, and reports the driver's progress whenever a GPU has been initialised.
// If the child fails, Facts.Init contains the reason. Probe returns an error only if the context
// has ended: its cause. The child continues its inspection then.
func (s *Session) Probe(ctx context.Context, tell func(Progress)) (Facts, error) {
	facts := Facts{Version: FactsVersion, Init: ProbeDied}
	d, err := s.ensureChild(ctx)
	if err != nil {
		facts.Detail = err.Error()
	} else if answer, err := d.requestFacts(ctx, s.child.probeTimeout(), tell); err == nil {
		facts = answer
	} else if facts.Init, facts.Detail = d.failureReason(err); facts.Init == DriverUnresponsive {
		d.KillOrAbandon()
	}
	if ctx.Err() != nil {
		return Facts{}, context.Cause(ctx)
	}
	return facts, nil
}

// Watch watches the GPUs until the context ends, and returns nil then. It calls ready once, when
// the driver has begun to report the events of n GPUs. It calls event for each event, except for
// frequent repetitions. Both are called in the goroutine that called Watch. A watch that dies is
// restarted, which is reported as an event of KindRestarted. Watch returns an error if the GPUs
// cannot be watched any more; that should not end a job.
func (s *Session) Watch(ctx context.Context, ready func(n int), event func(Event)) error {
	l := &watchListener{
		silenceTimeout: cmp.Or(s.child.SilenceTimeout, defaultSilenceTimeout), startTimeout: s.child.probeTimeout(),
		onReady: ready, onEvent: event,
	}
	wait, fails := minRestartPause, 0
	for what := requestWatch; ; what = requestResume {
		l.watching = false
		d, err := s.ensureChild(ctx)
		if err == nil {
			err = l.runWatch(ctx, d, what)
		}
		if ctx.Err() != nil {
			return nil
		}
		if fails++; l.watching {
			fails, wait = 0, minRestartPause
		}
		if !l.started || fails >= maxStartFailures {
			return fmt.Errorf("cannot watch the GPUs: %w", err)
		}
		l.emitEvent(Event{Kind: KindRestarted, GPU: -1, Detail: err.Error()})
		if !ctxutil.SleepContext(ctx, wait) {
			return nil
		}
		wait = min(2*wait, maxRestartPause)
	}
}

type watchListener struct {
	startTimeout, silenceTimeout time.Duration
	onReady                      func(int)
	onEvent                      func(Event)

	repeatFilter RepeatFilter
	started      bool // a child has started to watch
	watching     bool // the current child has started to watch
}

// runWatch requests a watch, and handles its lines until the context ends or the child fails. It
// returns the reason.
func (l *watchListener) runWatch(ctx context.Context, d *runningChild, what request) error {
	a := d.sendRequest(what)
	defer a.stopReading()
	limit := l.startTimeout
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		line, err := a.readMessage(ctx, late, limit)
		switch {
		case errors.Is(err, errTimeout) && !l.watching:
			d.KillOrAbandon()
			return fmt.Errorf("%w%s: it may hang", err, d.outputAfter(": "))
		case errors.Is(err, errTimeout): // reported once, until the child prints something again
			l.emitEvent(Event{Kind: KindSilent, GPU: -1, Detail: fmt.Sprintf("for %v", l.silenceTimeout)})
			continue
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the child %s", d.describeExit())
		case err != nil:
			return err
		case line.EndReason != "":
			return errors.New(line.EndReason)
		case line.Watching != nil:
			l.watching, limit = true, l.silenceTimeout
			if !l.started {
				l.started = true
				l.onReady(*line.Watching)
			}
		case line.Event != nil:
			l.emitEvent(*line.Event)
		}
		late.Reset(limit)
	}
}

func (l *watchListener) emitEvent(e Event) {
	now := time.Now()
	if e.At.IsZero() {
		e.At = now
	}
	if e, isNew := l.repeatFilter.FilterEvent(e, now); isNew {
		l.onEvent(e)
	}
}

// Close ends the child, if there is one, and waits for its end, or until ctx ends. A child in which
// the driver may be initialising GPUs is not killed: it ends by itself. Further requests fail, and a
// request that is just starting a child kills it. Close returns nil.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	d := s.running
	s.running, s.closed = nil, true
	s.mu.Unlock()
	if d != nil {
		d.shutDown(ctx)
	}
	return nil
}
