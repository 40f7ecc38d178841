package gpu

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ChildCommand is the subcommand that asks NVML, and says what it has
	// answered.
	ChildCommand = "gpu-child"
	// ProbeDeadline is Child.Deadline where it is 0. Eight GPUs take a second
	// at most; a driver that loads, or GPUs without persistence mode, which are
	// woken up one after the other, take several.
	ProbeDeadline = 30 * time.Second
	// watchStart is Child.Start where it is 0: to load the driver, and to
	// register for the events of all GPUs.
	watchStart = 10 * time.Second
	// watchSilence is Child.Silence where it is 0: the child says something at
	// each look at the GPUs.
	watchSilence = 6 * pollPause
	pollPause    = 10 * time.Second // between two looks of the watch at all GPUs

	// ownBinary is the binary that runs here, also where its file was replaced
	// since.
	ownBinary = "/proc/self/exe"
	// childVariable is set for the child. A program that forgot to have the
	// subcommand (a test's binary, say) must not start itself without end.
	childVariable = "BRINGUPD_GPU_CHILD"

	mostLine    = 4 << 20                // bytes of a line; 16 GPUs of 7 instances with 1000 processes have far less
	mostGarbage = 10_000                 // lines of a watch that are none of ours, in a row
	reapWait    = 200 * time.Millisecond // from KILL to the end of who can be killed
	forkWait    = 5 * time.Second        // more than a fork takes, the deadline aside
	watchEnd    = 2 * time.Second        // from the end of the child's standard input to KILL: it takes up to childGrace
)

// Child asks NVML in a process of its own, as nobody can end a call into a
// driver that is wedged: the thread that made it sleeps uninterruptibly until
// the node is rebooted, and a process with such a thread can't be killed, nor
// waited for. It costs us a process that stays, and not the daemon. Where the
// library lacks a function that is called, the loader ends the process: that is
// not the daemon's end either.
//
// The child is asked by lines on its standard input and answers by lines on its
// standard output; what else it prints, on standard error too, is kept for the
// error that tells of its death. It ends when its standard input does, and so
// when we do. It is in a group of its own, so that Ctrl-C is not for it. It is
// no child of pkg/process: nobody is to be asked to end, nothing of it is
// logged, and it must be left where it can't be killed.
type Child struct {
	Program  string        // empty: the binary that runs here
	Library  string        // the file to be asked for; empty: the loader finds it
	Env      []string      // nil: ours
	Deadline time.Duration // of a probe; 0: ProbeDeadline
	Start    time.Duration // until all GPUs are watched; 0: 10 s
	Silence  time.Duration // of a watch, after which an event of KindSilent is told; 0: a minute
}

// Probe takes one look at the GPUs. Whatever becomes of the child is in
// Facts.Init; the error is the cause of the context's end.
func (c Child) Probe(ctx context.Context) (Facts, error) {
	facts := c.look(ctx, cmp.Or(max(c.Deadline, 0), ProbeDeadline))
	if ctx.Err() != nil {
		return Facts{}, context.Cause(ctx)
	}
	return facts, nil
}

// look starts a child, reads its answer, and sees to its end.
func (c Child) look(ctx context.Context, deadline time.Duration) Facts {
	end := time.Now().Add(deadline)
	s, err := c.start(ctx, deadline+forkWait)
	if err != nil {
		return died("%v", err)
	}
	facts, err := s.look(ctx, time.Until(end))
	patience := time.Duration(0)
	if err == nil || errors.Is(err, io.EOF) {
		patience = time.Until(end) // a driver may hang at the end of who has used it
	}
	state, ended := s.end(ctx, patience)
	switch {
	case errors.Is(err, errTooMuch):
		return died("it printed %v%s", errTooMuch, s.said.after(": "))
	case !ended:
		return Facts{
			Version: FactsVersion, Init: DriverUnresponsive,
			Detail: fmt.Sprintf("no answer from the driver within %v%s", deadline, s.said.after("; ")),
		}
	case !state.Success():
		return died("it %s%s", fate(state), s.said.after(": "))
	case err != nil:
		return died("it gave no answer%s", s.said.after(": "))
	}
	return facts
}

// died are the facts where the child told none.
func died(format string, args ...any) Facts {
	return Facts{Version: FactsVersion, Init: ProbeDied, Detail: fmt.Sprintf(format, args...)}
}

// Watch watches the GPUs until the context ends, and returns nil then. Ready is
// called once the driver tells of all that happens from then on, on n GPUs; event
// for each event, less those that are repeated often. Both are called by the
// goroutine that has called Watch. The error says why nothing is watched any
// more, which is no reason to end a job.
func (c Child) Watch(ctx context.Context, ready func(n int), event func(Event)) error {
	start := cmp.Or(c.Start, watchStart)
	s, err := c.start(ctx, start)
	if err == nil {
		l := &listener{session: s, start: start, silence: cmp.Or(c.Silence, watchSilence), ready: ready, event: event}
		err = l.listen(ctx)
		state, ended := s.end(context.WithoutCancel(ctx), watchEnd)
		if errors.Is(err, io.EOF) {
			err = l.death(state, ended)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("cannot watch the GPUs: %w", err)
}

// listener takes what a child says that watches.
type listener struct {
	*session
	start   time.Duration
	silence time.Duration
	ready   func(int)
	event   func(Event)
	dedup   dedup
	why     string // the child's own last word
	begun   bool
	garbage int // lines in a row
}

// listen returns at the end of the context, or with what is wrong; io.EOF where
// the child says no more.
func (l *listener) listen(ctx context.Context) error {
	l.ask(askWatch)
	late := time.NewTimer(l.start)
	defer late.Stop()
	for {
		line, err := l.next(ctx, late.C)
		switch {
		case errors.Is(err, errLate) && !l.begun:
			return fmt.Errorf("no word from the child within %v%s: the driver may hang", l.start, l.said.after(": "))
		case errors.Is(err, errLate): // told once, until it says something again
			l.tell(Event{Kind: KindSilent, GPU: -1, Detail: fmt.Sprintf("for %v", l.silence)})
		case errors.Is(err, errNoLine):
			if l.garbage++; l.garbage > mostGarbage {
				return fmt.Errorf("what it prints is no event%s", l.said.after(": "))
			}
		case err != nil:
			return err
		default:
			l.garbage = 0
			l.take(line)
			if l.begun {
				late.Reset(l.silence)
			}
		}
	}
}

// take does what a line says.
func (l *listener) take(line line) {
	switch {
	case line.Watching != nil && !l.begun:
		l.begun = true
		l.ready(*line.Watching)
	case line.Event != nil:
		l.tell(*line.Event)
	case line.Ended != "":
		l.why = line.Ended
	}
}

func (l *listener) tell(e Event) {
	now := time.Now()
	if e.At.IsZero() {
		e.At = now
	}
	if e, told := l.dedup.pass(e, now); told {
		l.event(e)
	}
}

// death says how the child ended by itself.
func (l *listener) death(state *os.ProcessState, ended bool) error {
	switch {
	case l.why != "":
		return errors.New(l.why)
	case !ended:
		return fmt.Errorf("the child says no more, and does not end%s", l.said.after(": "))
	default:
		return fmt.Errorf("the child %s%s", fate(state), l.said.after(": "))
	}
}

// fate says how a process has ended.
func fate(state *os.ProcessState) string {
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		return "was ended by signal " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("ended with exit code %d", state.ExitCode())
}

// session is a child that runs, and may be asked one thing after the other. One
// goroutine reads what it says and one waits for its end; all else is the caller's.
type session struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *os.File
	lines   chan []byte   // closed when it says no more
	readErr error         // why it says no more; set before lines is closed
	unheard chan struct{} // closed by end: nobody wants its lines any more
	ended   chan struct{} // closed once its exit was taken
	said    lastLines     // what is no line of ours; of who calls next
}

var (
	errLate    = errors.New("it is late")
	errTooMuch = fmt.Errorf("more than %d MiB", mostLine>>20)
)

// start starts a child. It returns after limit, and at the context's end, also where
// the fork hangs as the program's file system does: who forks then undoes it later.
func (c Child) start(ctx context.Context, limit time.Duration) (*session, error) {
	if os.Getenv(childVariable) != "" {
		return nil, fmt.Errorf("it was to start another: this program has no subcommand %s", ChildCommand)
	}
	type begun struct {
		session *session
		err     error
	}
	started, given := make(chan begun), make(chan struct{})
	defer close(given)
	go func() {
		s, err := c.fork()
		select {
		case started <- begun{s, err}:
		case <-given:
			if err == nil {
				s.end(ctx, 0)
			}
		}
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case b := <-started:
		if b.err != nil {
			return nil, fmt.Errorf("it cannot be started: %w", b.err)
		}
		return b.session, nil
	case <-late.C:
		return nil, fmt.Errorf("it could not be started within %v: the file system of %s may hang", limit, c.program())
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c Child) fork() (*session, error) {
	// Where its file system hangs, this goroutine hangs here, and not in the
	// exec, for which all of a Go program waits.
	if program, err := os.Open(c.program()); err == nil {
		_, _ = program.Read(make([]byte, 1))
		program.Close()
	}
	out, outEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer outEnd.Close()
	cmd := exec.Command(c.program())
	cmd.Args, cmd.Env = c.argv(), c.environ()
	cmd.Stdout, cmd.Stderr = outEnd, outEnd
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		out.Close()
		return nil, err
	}
	s := &session{cmd: cmd, in: in, out: out, lines: make(chan []byte), unheard: make(chan struct{}), ended: make(chan struct{})}
	go s.read()
	go func() {
		_ = cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

// ask asks the child for something. Where that fails the child has ended, which what
// it says tells.
func (s *session) ask(what question) { _, _ = s.in.Write(line{Ask: what}.encode()) }

// look asks for facts, and waits for them for at most that long. The errors are those
// of next.
func (s *session) look(ctx context.Context, limit time.Duration) (Facts, error) {
	s.ask(askLook)
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		l, err := s.next(ctx, late.C)
		switch {
		case errors.Is(err, errNoLine):
		case err != nil:
			return Facts{}, err
		case l.Facts != nil:
			return *l.Facts, nil
		}
	}
}

// read hands on what the child says, line by line.
func (s *session) read() {
	defer close(s.lines)
	scanner := bufio.NewScanner(s.out)
	scanner.Buffer(nil, mostLine)
	for scanner.Scan() {
		select {
		case s.lines <- bytes.Clone(scanner.Bytes()):
		case <-s.unheard: // read on: a child that writes what nobody reads would not end
		}
	}
	s.readErr = io.EOF
	if errors.Is(scanner.Err(), bufio.ErrTooLong) {
		s.readErr = errTooMuch
	}
}

// next returns the next line; errNoLine where it is none of ours, which is kept,
// io.EOF or errTooMuch where there are no more, errLate once late says so, or the
// cause of the context's end.
func (s *session) next(ctx context.Context, late <-chan time.Time) (line, error) {
	select {
	case text, more := <-s.lines:
		if !more {
			return line{}, s.readErr
		}
		l, err := decodeLine(text)
		if errors.Is(err, errOtherVersion) {
			text = []byte(err.Error())
		}
		if err != nil {
			s.said.add(text)
		}
		return l, err
	case <-late:
		return line{}, errLate
	case <-ctx.Done():
		return line{}, context.Cause(ctx)
	}
}

// end has the child end: by the end of its standard input, and by KILL where
// that takes longer than the limit, or the context ends. One that can't be
// killed is left: only the goroutine that waits for it stays.
func (s *session) end(ctx context.Context, limit time.Duration) (state *os.ProcessState, ended bool) {
	defer s.out.Close()
	_ = s.in.Close()
	close(s.unheard)
	if s.await(ctx, limit) {
		return s.cmd.ProcessState, true
	}
	_ = s.cmd.Process.Kill()
	s.await(context.WithoutCancel(ctx), reapWait)
	return nil, false
}

// await waits for the child's end.
func (s *session) await(ctx context.Context, limit time.Duration) (ended bool) {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-s.ended:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

func (c Child) program() string { return cmp.Or(c.Program, ownBinary) }

func (c Child) argv() []string {
	name := c.program()
	if c.Program == "" && len(os.Args) > 0 {
		name = os.Args[0] // what ps shows, and what the loader calls it
	}
	argv := []string{name, ChildCommand}
	if c.Library != "" {
		argv = append(argv, "--nvml="+c.Library)
	}
	return argv
}

// environ is the child's environment. With LD_BIND_NOW the loader would miss
// the functions of NVML before there is any; a trace of all goroutines would
// hide the one line that says why the child has died.
func (c Child) environ() []string {
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	env = slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, "LD_BIND_NOW=") })
	return append(env, childVariable+"=1", "GOTRACEBACK=none")
}
