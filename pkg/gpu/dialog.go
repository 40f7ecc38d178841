package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
)

const (
	mostLine = 4 << 20                // bytes of a line; 16 GPUs of 7 instances with 1000 processes have far less
	reapWait = 200 * time.Millisecond // for the end of a child that was killed
)

var (
	errLate    = errors.New("it is late")
	errTooMuch = fmt.Errorf("more than %d MiB", mostLine>>20)
)

// dialog is a running child that can be asked one thing after the other. Goroutines of exec.Cmd read what it prints and
// wait for its end; everything else runs in the caller's.
type dialog struct {
	in    io.WriteCloser
	cut   process.Lines
	lines chan []byte        // closed once the child has ended
	err   error              // why there are no more lines: io.EOF, errTooMuch; set before lines is closed
	state *os.ProcessState   // how the child has ended; set before lines is closed
	kill  context.CancelFunc // kills the child, also one that is forked later
	dead  <-chan struct{}    // closed by kill
	said  lastLines          // the last lines that are none of ours; used by the caller of next
}

// start starts a child. It returns when the limit is over or the context ends, even if the fork hangs because the
// program's file system does: a child that is forked later is killed.
func (c Child) start(ctx context.Context, limit time.Duration) (*dialog, error) {
	if os.Getenv(childVariable) != "" {
		return nil, fmt.Errorf("it was to start another: this program has no subcommand %s", ChildCommand)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	d, err := pause.Bounded(limited, 0, func() (*dialog, error) { return c.fork(life) })
	if err == nil {
		d.kill = kill
		return d, nil
	}
	kill()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, pause.ErrHangs):
		return nil, fmt.Errorf("it could not be started within %v: the file system of %s may hang", limit, c.program())
	default:
		return nil, fmt.Errorf("it cannot be started: %w", err)
	}
}

// fork starts a child that is killed when its life ends.
func (c Child) fork(life context.Context) (*dialog, error) {
	// If the file system hangs, this goroutine hangs here, and not in the exec, during which all of a Go program waits.
	if program, err := os.Open(c.program()); err == nil {
		_, _ = program.Read(make([]byte, 1))
		program.Close()
	}
	d := &dialog{cut: process.Lines{Longest: mostLine}, lines: make(chan []byte), err: io.EOF, dead: life.Done()}
	cmd := exec.CommandContext(life, c.program())
	cmd.Args, cmd.Env = c.argv(), c.environ()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = d, d, watchEnd
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if d.in, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(d.lines)
		_ = cmd.Wait()
		d.state = cmd.ProcessState
		d.cut.End(d.hand)
	}()
	return d, nil
}

// Write takes output of the child.
func (d *dialog) Write(said []byte) (int, error) {
	if d.cut.Add(said, d.hand); errors.Is(d.err, errTooMuch) {
		return 0, errTooMuch
	}
	return len(said), nil
}

// hand passes a line on. After kill it drops the line: nobody reads any more, and a child that can't write does not
// end.
func (d *dialog) hand(text []byte, goesOn bool) {
	if goesOn || errors.Is(d.err, errTooMuch) {
		d.err = errTooMuch
		return
	}
	select {
	case d.lines <- bytes.Clone(text):
	case <-d.dead:
	}
}

// ask asks the child for something. If that fails the child has ended, and next will say so.
func (d *dialog) ask(what question) { _, _ = d.in.Write(line{Ask: what}.encode()) }

// look asks for facts, and waits for at most limit. The errors are those of next.
func (d *dialog) look(ctx context.Context, limit time.Duration) (Facts, error) {
	d.ask(askLook)
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		l, err := d.next(ctx, late.C)
		switch {
		case errors.Is(err, errNoLine):
		case err != nil:
			return Facts{}, err
		case l.Facts != nil:
			return *l.Facts, nil
		}
	}
}

// next returns the next line. The error is errNoLine for a line that is none of ours, which is kept in said; io.EOF or
// errTooMuch if the child has ended; errLate if late comes first; or the cause of the context's end.
func (d *dialog) next(ctx context.Context, late <-chan time.Time) (line, error) {
	select {
	case text, more := <-d.lines:
		if !more {
			return line{}, d.err
		}
		l, err := decodeLine(text)
		if errors.Is(err, errOtherVersion) {
			text = []byte(err.Error())
		}
		if err != nil {
			d.said.add(text)
		}
		return l, err
	case <-late:
		return line{}, errLate
	case <-ctx.Done():
		return line{}, context.Cause(ctx)
	}
}

// end ends the child: it closes its standard input, and kills it if it has not ended within the limit or when the
// context ends. A child that can't be killed is left to itself; only the goroutine that waits for it stays. It tells
// whether the child has ended by itself.
func (d *dialog) end(ctx context.Context, limit time.Duration) (ended bool) {
	_ = d.in.Close()
	ended = d.ends(ctx, limit)
	d.kill()
	if !ended {
		d.ends(context.WithoutCancel(ctx), reapWait)
	}
	return ended
}

// ends waits for the child's end, and ignores what it says until then.
func (d *dialog) ends(ctx context.Context, limit time.Duration) bool {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		select {
		case _, more := <-d.lines:
			if !more {
				return true
			}
		case <-limited.Done():
			return false
		}
	}
}
