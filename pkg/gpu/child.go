package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ProbeCommand is the subcommand that asks NVML, and prints what it said.
	ProbeCommand = "gpu-probe"
	// ProbeDeadline is Child.Deadline where it is 0. Eight GPUs take a second
	// at most; a driver that loads, or GPUs without persistence mode, which are
	// woken up one after the other, take several.
	ProbeDeadline = 30 * time.Second

	// ownBinary is the binary that runs here, also where its file was replaced
	// since.
	ownBinary = "/proc/self/exe"
	// probeVariable is set for the child. A program that forgot to have the
	// subcommand (a test's binary, say) must not start itself without end.
	probeVariable = "BRINGUPD_GPU_PROBE"

	mostFacts = 4 << 20                // bytes; 16 GPUs of 7 instances with 1000 processes have far less
	reapWait  = 200 * time.Millisecond // from KILL to the end of who can be killed
	forkWait  = 5 * time.Second        // more than a fork takes, the deadline aside
	lookEnd   = time.Second            // more than look takes when its context has ended, a fork that hangs aside
)

var errTooMuch = fmt.Errorf("more than %d MiB", mostFacts>>20)

// Child asks NVML in a process of its own, as nobody can end a call into a
// driver that is wedged: the thread that made it sleeps uninterruptibly until
// the node is rebooted, and a process with such a thread can't be killed, nor
// waited for. It costs us a process that stays, and not the daemon. Where the
// library lacks a function that is called, the loader ends the process: that is
// not the daemon's end either.
//
// The child is in a group of its own, so that Ctrl-C is not for it, and is
// killed when we die. It is no child of pkg/process: nobody is to be asked to
// end, nothing of it is logged, and it must be left where it can't be killed.
type Child struct {
	Program  string        // empty: the binary that runs here
	Args     []string      // nil: gpu-probe, and --nvml=Library where there is one
	Library  string        // the file to be asked for; empty: the loader finds it
	Deadline time.Duration // 0: ProbeDeadline
	Env      []string      // nil: ours
}

var _ Prober = Child{}

// Probe runs the child. Whatever becomes of it is in Facts.Init; the error is
// the cause of the context's end.
func (c Child) Probe(ctx context.Context) (Facts, error) {
	if os.Getenv(probeVariable) != "" {
		return died("a probe was to start another: this program has no subcommand %s", ProbeCommand), nil
	}
	if c.Deadline <= 0 {
		c.Deadline = ProbeDeadline
	}
	looked := make(chan Facts, 1)
	go func() {
		// The kernel kills the child when the thread ends that forked it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		looked <- c.look(ctx)
	}()
	// All that look does is bounded, but for the fork: its program may be on a
	// file system that hangs. That goroutine can't be waited for.
	forked := time.NewTimer(c.Deadline + forkWait)
	defer forked.Stop()
	select {
	case facts := <-looked:
		if ctx.Err() != nil {
			return Facts{}, context.Cause(ctx)
		}
		return facts, nil
	case <-ctx.Done():
		ending := time.NewTimer(lookEnd)
		defer ending.Stop()
		select {
		case <-looked:
		case <-ending.C:
		}
		return Facts{}, context.Cause(ctx)
	case <-forked.C:
		return died("it could not be started within %v: the file system of %s may hang", c.Deadline+forkWait, c.program()), nil
	}
}

// died are the facts where the child told none.
func died(format string, args ...any) Facts {
	return Facts{Version: FactsVersion, Init: ProbeDied, Detail: fmt.Sprintf(format, args...)}
}

// look starts the child, reads what it says, and sees to its end.
func (c Child) look(ctx context.Context) Facts {
	reapLeft()
	end := time.Now().Add(c.Deadline)
	out, says, pid, err := c.start()
	if err != nil {
		return died("it cannot be started: %v", err)
	}
	defer out.Close()
	defer says.Close()
	stop := context.AfterFunc(ctx, func() { hurry(time.Now(), out, says) })
	defer stop()
	hurry(end, out, says)
	if ctx.Err() != nil {
		hurry(time.Now(), out, says)
	}

	var text []byte
	var readErr error
	var last lastLines
	var reading sync.WaitGroup
	reading.Go(func() {
		text, readErr = io.ReadAll(io.LimitReader(out, mostFacts+1))
		if len(text) > mostFacts {
			readErr = errTooMuch
		}
		if readErr != nil {
			hurry(time.Now(), says) // it will be killed: what it says after that is nothing to wait for
		}
	})
	reading.Go(func() { _, _ = io.Copy(&last, says) })
	reading.Wait()

	if readErr == nil {
		if status, ended := reap(ctx, pid, time.Until(end)); ended {
			return judge(text, status, last.String())
		}
	}
	kill(ctx, pid)
	if errors.Is(readErr, errTooMuch) {
		return died("it printed %v%s", readErr, last.after(": "))
	}
	return Facts{
		Version: FactsVersion, Init: DriverUnresponsive,
		Detail: fmt.Sprintf("no answer from the driver within %v%s", c.Deadline, last.after("; ")),
	}
}

// start forks the child. It returns our ends of its pipes.
func (c Child) start() (out, says *os.File, pid int, err error) {
	program := c.program()
	// Where its file system hangs, this goroutine hangs here, and not in the
	// exec, for which all of a Go program waits.
	if err := touch(program); err != nil {
		return nil, nil, 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, 0, err
	}
	defer null.Close()
	out, outEnd, err := os.Pipe()
	if err != nil {
		return nil, nil, 0, err
	}
	defer outEnd.Close()
	says, saysEnd, err := os.Pipe()
	if err != nil {
		out.Close()
		return nil, nil, 0, err
	}
	defer saysEnd.Close()
	pid, err = syscall.ForkExec(program, c.argv(), &syscall.ProcAttr{
		Env:   c.environ(),
		Files: []uintptr{null.Fd(), outEnd.Fd(), saysEnd.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		out.Close()
		says.Close()
		return nil, nil, 0, fmt.Errorf("%s: %v", program, err)
	}
	return out, says, pid, nil
}

func (c Child) program() string {
	if c.Program != "" {
		return c.Program
	}
	return ownBinary
}

func (c Child) argv() []string {
	name := c.program()
	if c.Program == "" && len(os.Args) > 0 {
		name = os.Args[0] // what ps shows, and what the loader calls it
	}
	if c.Args != nil {
		return append([]string{name}, c.Args...)
	}
	argv := []string{name, ProbeCommand}
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
	return append(env, probeVariable+"=1", "GOTRACEBACK=none")
}

// touch reads a little of a file.
func touch(path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrPermission) {
		return nil // to execute a file one need not read it
	}
	if err != nil {
		return err
	}
	defer file.Close()
	_, _ = file.Read(make([]byte, 1))
	return nil
}

// hurry bounds the reads of the pipes.
func hurry(end time.Time, pipes ...*os.File) {
	for _, pipe := range pipes {
		_ = pipe.SetReadDeadline(end)
	}
}

// judge turns what a child that has ended printed into facts.
func judge(text []byte, status syscall.WaitStatus, said string) Facts {
	if said != "" {
		said = ": " + said
	}
	switch {
	case status.Signaled():
		return died("it was ended by signal %s%s", unix.SignalName(status.Signal()), said)
	case status.ExitStatus() != 0:
		return died("it ended with exit code %d%s", status.ExitStatus(), said)
	}
	var facts Facts
	if err := json.Unmarshal(text, &facts); err != nil {
		return died("it printed what is no answer (%d bytes): %v%s", len(text), err, said)
	}
	if facts.Version != FactsVersion || facts.Init == "" {
		return died("it printed an answer of version %d, and this is version %d: another bringupd%s", facts.Version, FactsVersion, said)
	}
	return facts
}
