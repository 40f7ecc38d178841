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
	mostLine    = 4 << 20                // bytes of a line; 16 GPUs of 7 instances with 1000 processes have far less
	mostGarbage = 50_000                 // lines in a row that are none of ours, after which the child is none of ours either
	reapWait    = 200 * time.Millisecond // for the end of a child that was killed
	forkWait    = 5 * time.Second        // for a fork
	endWait     = 2 * time.Second        // from the end of the child's standard input to KILL: it takes up to eventWait
)

var (
	errLate    = errors.New("no answer from the driver")
	errTooMuch = fmt.Errorf("it printed more than %d MiB in one line", mostLine>>20)
	errGarbage = errors.New("what it prints is no answer")
)

// dialog is a running child that can be asked several things at a time. Goroutines of exec.Cmd read what it prints and
// wait for its end.
type dialog struct {
	in   io.WriteCloser
	cut  process.Lines
	kill context.CancelFunc // kills the child, also one that is forked later
	dead <-chan struct{}    // closed by kill
	// over is closed once the child has ended and all it has printed was handed on; state and err, why there is no more
	// (io.EOF, errTooMuch, errGarbage), are set before.
	over  chan struct{}
	state *os.ProcessState
	err   error

	garbage int // lines in a row that are none of ours; used by the goroutine that hands on

	mu    sync.Mutex
	said  lastLines        // the last lines that are none of ours; guarded by mu
	asked map[int]*answers // by the number of the question; guarded by mu
	next  int              // number of a question; guarded by mu
	// looks is how many have not been answered, whether or not somebody waits: in one the driver may attach GPUs, which
	// must not be cut short; guarded by mu.
	looks int
}

// answers are those to one question.
type answers struct {
	*dialog
	number int
	lines  chan line
	gone   chan struct{} // closed by who no longer reads them
}

// patience is how long something is waited for.
type patience struct {
	*time.Timer
	lasts time.Duration
}

func patient(lasts time.Duration) *patience { return &patience{time.NewTimer(lasts), lasts} }

// renew begins anew.
func (p *patience) renew(lasts time.Duration) {
	p.lasts = lasts
	p.Reset(lasts)
}

// start starts a child. It returns when forkWait is over or the context ends, even if the fork hangs because the
// program's file system does: a child that is forked later is killed.
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

// fork starts a child that is killed when its life ends.
func (c Child) fork(life context.Context) (*dialog, error) {
	// If the file system hangs, this goroutine hangs here, and not in the exec, during which all of a Go program waits.
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
	go func() {
		defer close(d.over)
		_ = cmd.Wait()
		d.state = cmd.ProcessState
		d.cut.End(d.hand)
	}()
	return d, nil
}

// Write takes output of the child. Its error makes the child's next write fail.
func (d *dialog) Write(said []byte) (int, error) {
	if d.cut.Add(said, d.hand); !errors.Is(d.err, io.EOF) {
		return 0, d.err
	}
	return len(said), nil
}

// hand gives a line to who has asked the question that it answers. It drops what nobody reads: a child that can't write
// does not end.
func (d *dialog) hand(text []byte, goesOn bool) {
	if goesOn || !errors.Is(d.err, io.EOF) {
		if goesOn {
			d.err = errTooMuch
		}
		return
	}
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
	case a.lines <- l:
	case <-a.gone:
	case <-d.dead:
	}
}

// ask asks the child for something. If that fails the child has ended, and read will say so. The caller forgets the
// answers once it reads no more.
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

// forget drops the answers that are still to come.
func (a *answers) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.asked, a.number)
	close(a.gone)
}

// read returns the next line of the answer. The error is io.EOF, errTooMuch or errGarbage if the child has ended;
// errLate, with how long that was, if the patience is over first; or the cause of the context's end.
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

// look asks for facts. It waits for each line of the answer that has news for at most limit, and tells of those that say
// how far the driver has got. The errors are those of read.
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
		case l.Came.Came+l.Came.Done > got: // only one more GPU is a reason to wait longer
			got = l.Came.Came + l.Came.Done
			late.renew(limit)
		}
		tell(*l.Came)
	}
}

// after is what the child has said beside its answers, behind a separator.
func (d *dialog) after(separator string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.said.after(separator)
}

// fate says how the child has ended, once it has.
func (d *dialog) fate() string {
	if d.state == nil {
		return "has ended in a way that nobody knows" + d.after(": ")
	}
	if status := d.state.Sys().(syscall.WaitStatus); status.Signaled() {
		return "was ended by signal " + unix.SignalName(status.Signal()) + d.after(": ")
	}
	return fmt.Sprintf("ended with exit code %d%s", d.state.ExitCode(), d.after(": "))
}

// failure says why there was no answer, by the error of read: DRIVER_UNRESPONSIVE or PROBE_DIED.
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

// end ends the child: it closes its standard input, and kills it if it has not ended within endWait or when the context
// ends. One that has not answered a look is given until the context ends, and then left to itself: it ends once it has
// the answer.
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
		d.kill() // lets go of the context that it would have ended by
	}
}

// abandon kills the child. Where it can't be killed it is left to itself; only the goroutine that waits for it stays.
func (d *dialog) abandon() {
	_ = d.in.Close()
	d.kill()
	pause.Until(d.over, reapWait)
}
