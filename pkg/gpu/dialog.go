package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
)

const (
	mostLine    = 4 << 20                // maximum bytes of a line; 16 GPUs with 7 instances and 1000 processes need far less
	mostGarbage = 50_000                 // maximum consecutive lines in another format; a child with more is not our program
	reapWait    = 200 * time.Millisecond // timeout for the end of a killed child
	forkWait    = 5 * time.Second        // timeout for a fork
	endWait     = 2 * time.Second        // between closing the child's standard input and KILL; the child may need eventWait to end
)

var (
	errLate    = errors.New("no answer from the driver")
	errTooMuch = fmt.Errorf("it printed more than %d MiB in one line", mostLine>>20)
	errGarbage = errors.New("what it prints is no answer")
)

// dialog is a running child that answers several requests concurrently. Goroutines of exec.Cmd read
// its output and wait for its end.
type dialog struct {
	in   io.WriteCloser
	cut  process.Lines
	kill context.CancelFunc // kills the child, including one that is forked later
	dead <-chan struct{}    // closed by [dialog.kill]
	// over is closed once the child has ended and all of its output was handled. Before that,
	// [dialog.state] is set, and [dialog.err] is the reason why there is no more output: io.EOF,
	// errTooMuch or errGarbage.
	over  chan struct{}
	state *os.ProcessState
	err   error

	garbage int // number of consecutive lines in another format; used only by the goroutine that reads the output

	mu    sync.Mutex
	said  lastLines        // the last lines in another format; guarded by mu
	asked map[int]*answers // open requests by number; guarded by mu
	next  int              // number of the next request; guarded by mu
	// looks is the number of inspections without an answer, including those for which no caller waits
	// any more. The driver may be initialising GPUs for them, which must not be interrupted. Guarded
	// by mu.
	looks int
}

// answers are the answers to one request.
type answers struct {
	*dialog
	number int
	lines  chan line
	gone   chan struct{} // closed by the reader when it stops reading
}

// patience is a timeout that can be restarted.
type patience struct {
	*time.Timer
	lasts time.Duration
}

func patient(lasts time.Duration) *patience { return &patience{time.NewTimer(lasts), lasts} }

// renew restarts the timeout.
func (p *patience) renew(lasts time.Duration) {
	p.lasts = lasts
	p.Reset(lasts)
}

// start starts a child. It returns when forkWait is over or the context ends, even if the fork
// hangs because of the program's file system. A child that is forked later than that is killed.
func (c Child) start(ctx context.Context) (*dialog, error) {
	if os.Getenv(childVariable) != "" {
		return nil, fmt.Errorf("it was to start another: this program has no subcommand %s", ChildCommand)
	}
	limited, cancel := context.WithTimeout(ctx, forkWait)
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
		return nil, fmt.Errorf("it could not be started within %v: the file system of %s may hang", forkWait, c.program())
	default:
		return nil, fmt.Errorf("it cannot be started: %w", err)
	}
}

// fork starts a child that is killed when the context life ends.
func (c Child) fork(life context.Context) (*dialog, error) {
	// Read the program first. If its file system hangs, only this goroutine hangs here; during the
	// exec, the whole process would hang.
	if program, err := os.Open(c.program()); err == nil {
		_, _ = program.Read(make([]byte, 1))
		program.Close()
	}
	d := &dialog{
		cut: process.Lines{Longest: mostLine}, dead: life.Done(), over: make(chan struct{}), err: io.EOF, asked: map[int]*answers{},
	}
	cmd := exec.CommandContext(life, c.program())
	cmd.Args, cmd.Env = c.argv(), c.environ()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = d, d, endWait
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if d.in, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	// Wait for the end of the child, and handle an incomplete last line.
	go func() {
		defer close(d.over)
		_ = cmd.Wait()
		d.state = cmd.ProcessState
		d.cut.End(d.hand)
	}()
	return d, nil
}

// Write handles output of the child, for exec.Cmd. If it returns an error, the child's next write
// fails.
func (d *dialog) Write(said []byte) (int, error) {
	if d.cut.Add(said, d.hand); !errors.Is(d.err, io.EOF) {
		return 0, d.err
	}
	return len(said), nil
}

// hand passes a line of output to the reader of the answers that it belongs to. goesOn means that
// the line is longer than mostLine. Lines without a reader are dropped, because a child that cannot
// write does not end.
func (d *dialog) hand(text []byte, goesOn bool) {
	if goesOn || !errors.Is(d.err, io.EOF) {
		if goesOn {
			d.err = errTooMuch
		}
		return
	}
	// Keep lines in another format, for error messages, and count the inspections that are answered.
	l, err := decodeLine(text)
	d.mu.Lock()
	if errors.Is(err, errOtherVersion) {
		text = []byte(err.Error())
	}
	if err != nil {
		d.said.add(bytes.Clone(text))
	}
	a := d.asked[l.Number]
	if l.Facts != nil {
		d.looks--
	}
	d.mu.Unlock()
	if err != nil {
		// Too many such lines in a row mean that another program runs.
		if d.garbage++; d.garbage > mostGarbage {
			d.err = errGarbage
		}
		return
	}
	d.garbage = 0
	if a == nil {
		return
	}
	select {
	// The reader takes the line, unless it has stopped reading or the child is killed.
	case a.lines <- l:
	case <-a.gone:
	case <-d.dead:
	}
}

// ask sends a request to the child. A failure to send is not reported, because it means that the
// child has ended, which [answers.read] reports. The caller must call [answers.forget] when it
// stops reading.
func (d *dialog) ask(what question) *answers {
	d.mu.Lock()
	a := &answers{dialog: d, number: d.next, lines: make(chan line), gone: make(chan struct{})}
	d.asked[a.number] = a
	d.next++
	if what == askLook {
		d.looks++
	}
	d.mu.Unlock()
	_, _ = d.in.Write(line{Number: a.number, Ask: what}.encode())
	return a
}

// forget ends the reading of the answers: further ones are dropped.
func (a *answers) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.asked, a.number)
	close(a.gone)
}

// read returns the next line of the answers. The error is io.EOF, errTooMuch or errGarbage if the
// child has ended, errLate, with the duration, if the timeout expires first, or the cause of the
// context's end.
func (a *answers) read(ctx context.Context, late *patience) (line, error) {
	select {
	case l := <-a.lines:
		return l, nil
	case <-a.over:
		return line{}, a.err
	case <-late.C:
		return line{}, fmt.Errorf("%w within %v", errLate, late.lasts)
	case <-ctx.Done():
		return line{}, context.Cause(ctx)
	}
}

// look requests the facts, and reports the progress. The timeout is beginDeadline for the first
// line with progress, and limit after each further progress. The errors are those of
// [answers.read].
func (d *dialog) look(ctx context.Context, limit time.Duration, tell func(Progress)) (Facts, error) {
	a := d.ask(askLook)
	defer a.forget()
	late := patient(min(limit, beginDeadline))
	defer late.Stop()
	for got := -1; ; {
		l, err := a.read(ctx, late)
		switch {
		case err != nil:
			return Facts{}, err
		case l.Facts != nil:
			return *l.Facts, nil
		case l.Came == nil:
			continue
		case l.Came.Came+l.Came.Done > got: // another GPU has made progress
			got = l.Came.Came + l.Came.Done
			late.renew(limit)
		}
		tell(*l.Came)
	}
}

// after returns the last lines that are not answers, after a separator, or an empty string if there
// are none.
func (d *dialog) after(separator string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.said.after(separator)
}

// fate describes how the child has ended. It may be called once [dialog.over] is closed.
func (d *dialog) fate() string {
	if d.state == nil {
		return "has ended in a way that nobody knows" + d.after(": ")
	}
	if status := d.state.Sys().(syscall.WaitStatus); status.Signaled() {
		return "was ended by signal " + unix.SignalName(status.Signal()) + d.after(": ")
	}
	return fmt.Sprintf("ended with exit code %d%s", d.state.ExitCode(), d.after(": "))
}

// failure converts an error of [answers.read] to the reason why there are no facts,
// DRIVER_UNRESPONSIVE or PROBE_DIED, with details.
func (d *dialog) failure(err error) (why Return, detail string) {
	switch {
	case err == nil:
		return "", ""
	case errors.Is(err, errLate):
		return DriverUnresponsive, err.Error() + d.after("; ")
	case errors.Is(err, io.EOF) && d.state != nil && d.state.Success():
		return ProbeDied, "it gave no answer" + d.after(": ")
	case errors.Is(err, io.EOF):
		return ProbeDied, "it " + d.fate()
	default:
		return ProbeDied, err.Error() + d.after(": ")
	}
}

// end closes the child's standard input, and kills the child if it has not ended within endWait or
// when the context ends. A child with an unanswered inspection is not killed: end waits for it
// until the context ends, and then abandons it. Such a child ends once it has the answer.
func (d *dialog) end(ctx context.Context) {
	_ = d.in.Close()
	limited, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	d.mu.Lock()
	looks := d.looks > 0
	d.mu.Unlock()
	switch {
	case looks && !pause.Await(ctx, d.over):
	case !looks && !pause.Await(limited, d.over):
		d.abandon()
	default:
		d.kill() // releases the context
	}
}

// abandon kills the child. If it cannot be killed, it is left alone, and only the goroutine that
// waits for it remains.
func (d *dialog) abandon() {
	_ = d.in.Close()
	d.kill()
	pause.Until(d.over, reapWait)
}
