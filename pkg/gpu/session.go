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
	// A watch that has died is begun anew after these pauses, and no more once it fails to begin so often in a row.
	firstAgain = time.Second
	lastAgain  = time.Minute
	mostFails  = 5
)

// Session is one child that is kept from the first question to Close. NVML stays open in it, and so a driver without
// persistence mode keeps the GPUs attached: that takes half a minute each time, and forgets what they have counted. A
// child that dies is replaced at the next question.
//
// A Session may be used by several goroutines.
type Session struct {
	child Child

	mu sync.Mutex
	// running is nil where none is; guarded by mu.
	running *dialog
	closed  bool // guarded by mu
}

var errClosed = errors.New("it is no longer needed")

// open returns the child that runs, or starts one.
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

// Probe takes one look at the GPUs, and tells how far the driver has got, each time that one has come. Whatever becomes of the
// child is in Facts.Init; the error is the cause of the context's end, which does not end the look.
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

// look asks a child, and kills one that does not answer.
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

// died returns the facts about a child that has sent none.
func died(format string, args ...any) Facts {
	return Facts{Version: FactsVersion, Init: ProbeDied, Detail: fmt.Sprintf(format, args...)}
}

// Watch watches the GPUs until the context ends, and returns nil then. It calls ready once, when the driver reports all
// further events of n GPUs, event for each event, except for frequent repeats, and tally now and then with what was
// counted of all GPUs. All are called in the goroutine that called Watch. A watch that dies is begun anew, which is told
// as an event of KindAgain. The error says why nothing is watched any more, which is no reason to end a job.
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

// listener handles the lines of a child that watches.
type listener struct {
	start, silence time.Duration
	ready          func(int)
	event          func(Event)
	tally          func([]Tally)

	repeats  Repeats
	begun    bool // some child has begun to watch
	watching bool // this one has
}

// listen returns when the context ends, or with what is wrong.
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
		case errors.Is(err, errLate): // told once, until it says something again
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

func (l *listener) tell(e Event) {
	now := time.Now()
	if e.At.IsZero() {
		e.At = now
	}
	if e, told := l.repeats.Pass(e, now); told {
		l.event(e)
	}
}

// Close ends the child, if there is one, and waits for its end, at the latest until ctx ends. A child in which the driver
// may still attach GPUs is not killed: it ends by itself. It returns nil.
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
