package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

const (
	// A watch that has died is restarted after a pause, which doubles from firstAgain to lastAgain. It
	// is not restarted after mostFails consecutive failures to start.
	firstAgain = time.Second
	lastAgain  = time.Minute
	mostFails  = 5
)

// Session is one child that is kept from the first request until Close. NVML stays open in it, so
// that a driver without persistence mode keeps the GPUs initialised. Initialising them takes half a
// minute each time, and resets their counters. If the child dies, the next request starts another.
type Session struct {
	child Child

	mu sync.Mutex
	// running is the child, or nil if there is none; guarded by mu.
	running *dialog
	closed  bool // guarded by mu
}

var errClosed = errors.New("it is no longer needed")

// open returns the running child, or starts one. It returns errClosed after Close.
func (s *Session) open(ctx context.Context) (*dialog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	if s.running != nil && !pause.Until(s.running.over, 0) {
		return s.running, nil
	}
	d, err := s.child.start(ctx)
	s.running = d
	return d, err
}

// Probe inspects all GPUs, and reports the driver's progress whenever a GPU has been initialised.
// If the child fails, Facts.Init contains the reason. Probe returns an error only if the context
// has ended: its cause. The child continues its inspection then.
func (s *Session) Probe(ctx context.Context, tell func(Progress)) (Facts, error) {
	d, err := s.open(ctx)
	facts := died("%v", err)
	if err == nil {
		facts = s.look(ctx, d, tell)
	}
	if ctx.Err() != nil {
		return Facts{}, context.Cause(ctx)
	}
	return facts, nil
}

// look requests the facts from a child, and kills the child if it does not answer.
func (s *Session) look(ctx context.Context, d *dialog, tell func(Progress)) Facts {
	facts, err := d.look(ctx, s.child.deadline(), tell)
	if err == nil {
		return facts
	}
	why, detail := d.failure(err)
	if why == DriverUnresponsive {
		d.abandon()
	}
	return Facts{Version: FactsVersion, Init: why, Detail: detail}
}

// died returns the facts for a child that could not be started, with an explanation.
func died(format string, args ...any) Facts {
	return Facts{Version: FactsVersion, Init: ProbeDied, Detail: fmt.Sprintf(format, args...)}
}

// Watch watches the GPUs until the context ends, and returns nil then. It calls ready once, when
// the driver has begun to report the events of n GPUs. It calls event for each event, except for
// frequent repetitions, and tally from time to time with the counters of all GPUs. All three are
// called in the goroutine that called Watch. A watch that dies is restarted, which is reported as
// an event of KindAgain. Watch returns an error if the GPUs cannot be watched any more; that should
// not end a job.
func (s *Session) Watch(ctx context.Context, ready func(n int), event func(Event), tally func([]Tally)) error {
	l := &listener{silence: cmp.Or(s.child.Silence, watchSilence), start: s.child.deadline(), ready: ready, event: event, tally: tally}
	wait, fails := firstAgain, 0
	for what := askWatch; ; what = askResume {
		l.watching = false
		d, err := s.open(ctx)
		if err == nil {
			err = l.listen(ctx, d, what)
		}
		if ctx.Err() != nil {
			return nil
		}
		if fails++; l.watching {
			fails, wait = 0, firstAgain
		}
		if !l.begun || fails >= mostFails {
			return fmt.Errorf("cannot watch the GPUs: %w", err)
		}
		l.tell(Event{Kind: KindAgain, GPU: -1, Detail: err.Error()})
		if !pause.For(ctx, wait) {
			return nil
		}
		wait = min(2*wait, lastAgain)
	}
}

// listener handles the output of a watching child.
type listener struct {
	start, silence time.Duration
	ready          func(int)
	event          func(Event)
	tally          func([]Tally)

	repeats  Repeats
	begun    bool // a child has started to watch
	watching bool // the current child has started to watch
}

// listen requests a watch, and handles its lines until the context ends or the child fails. It
// returns the reason.
func (l *listener) listen(ctx context.Context, d *dialog, what question) error {
	a := d.ask(what)
	defer a.forget()
	late := patient(l.start)
	defer late.Stop()
	for {
		line, err := a.read(ctx, late)
		switch {
		case errors.Is(err, errLate) && !l.watching:
			d.abandon()
			return fmt.Errorf("%w%s: it may hang", err, d.after(": "))
		case errors.Is(err, errLate): // reported once, until the child prints something again
			l.tell(Event{Kind: KindSilent, GPU: -1, Detail: fmt.Sprintf("for %v", l.silence)})
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the child %s", d.fate())
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("%w%s", err, d.after(": "))
		case err != nil:
			return err
		case line.Ended != "":
			return errors.New(line.Ended)
		default:
			l.take(line)
			late.renew(map[bool]time.Duration{true: l.silence, false: l.start}[l.watching])
		}
	}
}

// take handles one line.
func (l *listener) take(line line) {
	switch {
	case line.Watching != nil:
		l.watching = true
		if !l.begun {
			l.begun = true
			l.ready(*line.Watching)
		}
	case line.Event != nil:
		l.tell(*line.Event)
	case line.Beat != nil && len(line.Beat.Tallies) > 0:
		l.tally(line.Beat.Tallies)
	}
}

// tell passes an event on, unless it is a frequent repetition.
func (l *listener) tell(e Event) {
	now := time.Now()
	if e.At.IsZero() {
		e.At = now
	}
	if e, told := l.repeats.Pass(e, now); told {
		l.event(e)
	}
}

// Close ends the child, if there is one, and waits for its end, or until ctx ends. It first waits
// for another request that is just starting the child, which takes at most forkWait. A child in
// which the driver may be initialising GPUs is not killed: it ends by itself. Further requests
// fail. Close returns nil.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	d := s.running
	s.running, s.closed = nil, true
	s.mu.Unlock()
	if d != nil {
		d.end(ctx)
	}
	return nil
}
