package gpu

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// WatchStart is Watch.Start where it is 0: to load the driver, and to
	// register for the events of all GPUs.
	WatchStart = 10 * time.Second
	// WatchSilence is Watch.Silence where it is 0: the child says something at
	// each look at the GPUs.
	WatchSilence = 6 * pollPause

	watchEnd    = 2 * time.Second // from the end of the child's standard input to KILL: it takes up to watchGrace
	mostOneLine = 16 << 10
	mostGarbage = 10_000 // lines in a row
)

// Watch has a process of its own wait for what befalls the GPUs, for the reasons
// that Child has. The process ends when we do: it reads from a pipe that we hold
// open.
type Watch struct {
	Program string        // empty: the binary that runs here
	Args    []string      // nil: gpu-watch, and --nvml=Library where there is one
	Library string        // the file to be asked for; empty: the loader finds it
	Env     []string      // nil: ours
	Start   time.Duration // until all GPUs are watched; 0: WatchStart
	Silence time.Duration // after which an event of KindSilent is told; 0: WatchSilence
}

// Run watches until the context ends, and returns nil then. Ready is called once
// the driver tells of all that happens from then on, on n GPUs; event for each
// event, less those that are repeated often. Both are called by the goroutine
// that has called Run. The error says why nothing is watched any more, which is
// no reason to end a job.
func (w Watch) Run(ctx context.Context, ready func(n int), event func(Event)) error {
	if os.Getenv(probeVariable) != "" {
		return fmt.Errorf("cannot watch the GPUs: a watch was to start another: this program has no subcommand %s", WatchCommand)
	}
	reapLeft()
	child, err := w.begin(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot watch the GPUs: %w", err)
	}
	l := &listener{watch: w, child: child, lines: lineReader{from: child.out}, ready: ready, event: event}
	err = l.listen(ctx)
	status, ended := child.end(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = l.death(status, ended)
	}
	return fmt.Errorf("cannot watch the GPUs: %w", err)
}

// listener takes what one child says.
type listener struct {
	watch   Watch
	child   *watchChild
	lines   lineReader
	ready   func(int)
	event   func(Event)
	dedup   Dedup
	said    lastLines // what is no line of the watch: its standard error, too
	why     string    // the child's own last word
	begun   bool
	garbage int // lines in a row
}

var (
	errWatchStart   = errors.New("the driver may hang")
	errWatchGarbage = errors.New("what it prints is no event")
)

// listen returns at the end of the context, or with what is wrong; io.EOF where
// the child says no more.
func (l *listener) listen(ctx context.Context) error {
	// The end of the context ends a read. From then on nobody may set another
	// deadline: hence all are set under ctx.
	stop := context.AfterFunc(ctx, func() { hurry(time.Now(), l.child.out) })
	defer stop()
	start := cmp.Or(l.watch.Start, WatchStart)
	l.patience(ctx, start)
	for {
		text, err := l.lines.next()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, os.ErrDeadlineExceeded) && !l.begun:
			return fmt.Errorf("no word from the child within %v%s: %w", start, l.said.after(": "), errWatchStart)
		case errors.Is(err, os.ErrDeadlineExceeded):
			l.tell(Event{Kind: KindSilent, GPU: -1, Detail: fmt.Sprintf("for %v", cmp.Or(l.watch.Silence, WatchSilence))})
			l.patience(ctx, 0)
		case err != nil:
			return err
		default:
			if err := l.take(ctx, text); err != nil {
				return err
			}
		}
	}
}

// patience bounds the wait for the next line; 0 is without end.
func (l *listener) patience(ctx context.Context, limit time.Duration) {
	end := time.Time{}
	if limit > 0 {
		end = time.Now().Add(limit)
	}
	hurry(end, l.child.out)
	if ctx.Err() != nil {
		hurry(time.Now(), l.child.out) // the context's end came first, and was overwritten
	}
}

// take does what a line says.
func (l *listener) take(ctx context.Context, text []byte) error {
	line, err := decodeWatchLine(text)
	if err != nil {
		_, _ = l.said.Write(append(text, '\n'))
		if l.garbage++; l.garbage > mostGarbage {
			return fmt.Errorf("%w%s", errWatchGarbage, l.said.after(": "))
		}
		return nil
	}
	l.garbage = 0
	switch {
	case line.Watching != nil && !l.begun:
		l.begun = true
		l.ready(*line.Watching)
	case line.Event != nil:
		l.tell(*line.Event)
	case line.Ended != "":
		l.why = line.Ended
	}
	if l.begun {
		l.patience(ctx, cmp.Or(l.watch.Silence, WatchSilence))
	}
	return nil
}

func (l *listener) tell(e Event) {
	now := time.Now()
	if e.At.IsZero() {
		e.At = now
	}
	if e, told := l.dedup.Pass(e, now); told {
		l.event(e)
	}
}

// death says how the child ended by itself.
func (l *listener) death(status syscall.WaitStatus, ended bool) error {
	switch {
	case l.why != "":
		return errors.New(l.why)
	case !ended:
		return fmt.Errorf("the child says no more, and does not end%s", l.said.after(": "))
	case status.Signaled():
		return fmt.Errorf("the child was ended by signal %s%s", unix.SignalName(status.Signal()), l.said.after(": "))
	default:
		return fmt.Errorf("the child ended with exit code %d%s", status.ExitStatus(), l.said.after(": "))
	}
}

// watchChild is a process that watches, and our ends of its pipes.
type watchChild struct {
	pid     int
	in, out *os.File
}

// begin starts the child. It returns at the context's end, also where the fork
// hangs as the program's file system does: who forks then undoes it later.
func (w Watch) begin(ctx context.Context) (*watchChild, error) {
	type begun struct {
		child *watchChild
		err   error
	}
	started, given := make(chan begun), make(chan struct{})
	defer close(given)
	go func() {
		child, err := w.fork()
		select {
		case started <- begun{child, err}:
		case <-given:
			if err == nil {
				child.discard(ctx)
			}
		}
	}()
	limit := time.NewTimer(cmp.Or(w.Start, WatchStart))
	defer limit.Stop()
	select {
	case b := <-started:
		return b.child, b.err
	case <-limit.C:
		return nil, fmt.Errorf("it could not be started within %v: the file system of %s may hang", cmp.Or(w.Start, WatchStart), w.process().program())
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// process is the child, as what starts children of ours knows it.
func (w Watch) process() Child {
	args := w.Args
	if args == nil {
		args = []string{WatchCommand}
		if w.Library != "" {
			args = append(args, "--nvml="+w.Library)
		}
	}
	return Child{Program: w.Program, Args: args, Env: w.Env}
}

func (w Watch) fork() (*watchChild, error) {
	process := w.process()
	if err := touch(process.program()); err != nil {
		return nil, err
	}
	inEnd, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inEnd.Close()
	out, outEnd, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer outEnd.Close()
	// What it says on standard error comes the same way: its last lines are in
	// the error that tells of its death.
	pid, err := syscall.ForkExec(process.program(), process.argv(), &syscall.ProcAttr{
		Env:   process.environ(),
		Files: []uintptr{inEnd.Fd(), outEnd.Fd(), outEnd.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		in.Close()
		out.Close()
		return nil, fmt.Errorf("%s: %v", process.program(), err)
	}
	return &watchChild{pid: pid, in: in, out: out}, nil
}

// end has the child end: by the end of its standard input, and by KILL where
// that takes long. One that can't be killed is left.
func (c *watchChild) end(ctx context.Context) (status syscall.WaitStatus, ended bool) {
	defer c.out.Close()
	c.in.Close()
	// A child that writes what nobody reads would not see it.
	limit := time.Now().Add(watchEnd)
	hurry(limit, c.out)
	_, _ = io.Copy(io.Discard, c.out)
	if status, ended = reap(context.WithoutCancel(ctx), c.pid, time.Until(limit)); ended {
		return status, true
	}
	kill(ctx, c.pid)
	return status, false
}

// discard ends a child that nobody waits for: it has watched nothing yet.
func (c *watchChild) discard(ctx context.Context) {
	c.in.Close()
	c.out.Close()
	kill(ctx, c.pid)
}

// lineReader cuts what it reads into lines. Those that are too long for a line
// of ours it cuts off.
type lineReader struct {
	from io.Reader
	kept []byte
	rest bool // of a line that was cut off
}

// next returns the next line, without its end. It may be called again after an
// error that passes.
func (r *lineReader) next() ([]byte, error) {
	for {
		if line, rest, found := bytes.Cut(r.kept, []byte{'\n'}); found {
			r.kept = rest
			if r.rest {
				r.rest = false
				continue
			}
			return line, nil
		}
		if len(r.kept) >= mostOneLine {
			line := r.kept
			r.kept = nil
			if r.rest {
				continue
			}
			r.rest = true
			return line, nil
		}
		buffer := make([]byte, 4<<10)
		n, err := r.from.Read(buffer)
		r.kept = append(bytes.Clone(r.kept), buffer[:n]...)
		if n == 0 && err != nil {
			if line := r.kept; errors.Is(err, io.EOF) && len(line) > 0 && !r.rest {
				r.kept = nil
				return line, nil
			}
			return nil, err
		}
	}
}
