package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/process"
)

const (
	// ChildCommand is the subcommand that asks NVML, and says what it has answered.
	ChildCommand = "gpu-child"
	// ProbeDeadline is Child.Deadline where it is 0. Eight GPUs take a second at most; a driver that loads, or GPUs
	// without persistence mode, which are woken up one after the other, take several.
	ProbeDeadline = 30 * time.Second
	// watchStart is Child.Start where it is 0: to load the driver, and to register for the events of all GPUs.
	watchStart = 10 * time.Second
	// watchSilence is Child.Silence where it is 0: the child says something at each look at the GPUs.
	watchSilence = 6 * pollPause
	pollPause    = 10 * time.Second // between two looks of the watch at all GPUs

	// childVariable is set for the child. A program that forgot to have the subcommand (a test's binary, say) must not
	// start itself without end.
	childVariable = "BRINGUPD_GPU_CHILD"

	mostGarbage = 10_000          // lines in a row that are none of ours, after which a watch ends
	forkWait    = 5 * time.Second // for a fork, in addition to the deadline
	watchEnd    = 2 * time.Second // from the end of the child's standard input to KILL: it takes up to childGrace
)

// Child asks NVML in a process of its own, as nobody can end a call into a driver that is wedged: the thread that made
// it sleeps uninterruptibly until the node is rebooted, and a process with such a thread can't be killed, nor waited
// for. It costs us a process that stays, and not the daemon. Where the library lacks a function that is called, the
// loader ends the process: that is not the daemon's end either.
//
// The child is asked by lines on its standard input and answers by lines on its standard output; what else it prints,
// on standard error too, is kept for the error that tells of its death. It ends when its standard input does, and so
// when we do. It is in a group of its own, so that Ctrl-C is not for it. It is no child of pkg/process: nobody is to be
// asked to end, nothing of it is logged, and it must be left where it can't be killed.
type Child struct {
	Program  string        // empty: the binary that runs here
	Library  string        // the file to be asked for; empty: the loader finds it
	Env      []string      // nil: ours
	Deadline time.Duration // of a probe; 0: ProbeDeadline
	Start    time.Duration // until all GPUs are watched; 0: 10 s
	Silence  time.Duration // of a watch, after which an event of KindSilent is told; 0: a minute
}

// Probe takes one look at the GPUs. Whatever becomes of the child is in Facts.Init; the error is the cause of the
// context's end.
func (c Child) Probe(ctx context.Context) (Facts, error) {
	facts := c.look(ctx, cmp.Or(max(c.Deadline, 0), ProbeDeadline))
	if ctx.Err() != nil {
		return Facts{}, context.Cause(ctx)
	}
	return facts, nil
}

// look starts a child, reads its facts, and ends it.
func (c Child) look(ctx context.Context, deadline time.Duration) Facts {
	late := time.Now().Add(deadline)
	d, err := c.start(ctx, deadline+forkWait)
	if err != nil {
		return died("%v", err)
	}
	facts, err := d.look(ctx, time.Until(late))
	ended := d.end(ctx, time.Until(late)) // a driver may hang at the end of who has used it
	switch {
	case errors.Is(err, errTooMuch):
		return died("it printed %v%s", errTooMuch, d.said.after(": "))
	case !ended:
		return Facts{
			Version: FactsVersion, Init: DriverUnresponsive,
			Detail: fmt.Sprintf("no answer from the driver within %v%s", deadline, d.said.after("; ")),
		}
	case !d.state.Success():
		return died("it %s%s", fate(d.state), d.said.after(": "))
	case err != nil:
		return died("it gave no answer%s", d.said.after(": "))
	}
	return facts
}

// died returns the facts about a child that has sent none.
func died(format string, args ...any) Facts {
	return Facts{Version: FactsVersion, Init: ProbeDied, Detail: fmt.Sprintf(format, args...)}
}

// Watch watches the GPUs until the context ends, and returns nil then. It calls ready once, when the driver reports all
// further events of n GPUs, and event for each event, except for frequent repeats. Both are called in the goroutine
// that called Watch. The error says why nothing is watched any more, which is no reason to end a job.
func (c Child) Watch(ctx context.Context, ready func(n int), event func(Event)) error {
	start := cmp.Or(c.Start, watchStart)
	d, err := c.start(ctx, start)
	if err == nil {
		l := &listener{dialog: d, start: start, silence: cmp.Or(c.Silence, watchSilence), ready: ready, event: event}
		err = l.listen(ctx)
		d.end(context.WithoutCancel(ctx), watchEnd)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("cannot watch the GPUs: %w", err)
}

// listener handles the lines of a child that watches.
type listener struct {
	*dialog
	start   time.Duration
	silence time.Duration
	ready   func(int)
	event   func(Event)
	dedup   dedup
	why     string // it ends, in its own words
	begun   bool
	garbage int // lines in a row that are none of ours
}

// listen returns when the context ends, or with what is wrong.
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
		case errors.Is(err, io.EOF) && l.why != "":
			return errors.New(l.why)
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the child %s%s", fate(l.state), l.said.after(": "))
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

// take handles one line.
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

// fate says how a process has ended.
func fate(state *os.ProcessState) string {
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		return "was ended by signal " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("ended with exit code %d", state.ExitCode())
}

func (c Child) program() string { return cmp.Or(c.Program, process.OwnBinary) }

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

// environ is the child's environment. With LD_BIND_NOW the loader would miss the functions of NVML before there is any;
// a trace of all goroutines would hide the one line that says why the child has died.
func (c Child) environ() []string {
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	env = slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, "LD_BIND_NOW=") })
	return append(env, childVariable+"=1", "GOTRACEBACK=none")
}
