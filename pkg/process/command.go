package process

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command is a program that is run for its output, such as a probe, a client, or a program that
// prints its version. Its standard input is /dev/null unless Stdin is set. It runs in a process
// group of its own and dies with the daemon. A program that leaves its process group, needs a grace
// period or must be logged needs a Supervisor instead.
type Command struct {
	// Argv is the command. It is not passed to a shell.
	Argv []string
	// Env is the complete environment, including the PATH in which the command is searched; if nil,
	// the daemon's.
	Env []string
	// Stdin is the standard input, as that of an exec.Cmd; a command that does not read it succeeds.
	Stdin io.Reader
	// Stdout and Stderr receive the output, as those of an exec.Cmd. If the caller abandons a Run that
	// hangs (see there), they may still be written to.
	Stdout, Stderr io.Writer
	// WaitDelay is how long Run waits, after the command has ended, for output that other processes
	// keep open; 0 means half a second.
	WaitDelay time.Duration
}

// Run runs the command until it ends, and then kills its whole process group, so that nothing of it
// is left. If ctx ends first, Run kills the group at once and returns the cause of ctx. Other
// errors are an *exec.ExitError, the errors of a start (see Supervisor.Start), and errors of
// passing on the output.
//
// A command that cannot be killed, for example because it hangs in a driver or on a mount, keeps
// Run from returning, and so does a program on a file system that hangs. A caller that cannot wait
// uses ctxutil.CallBounded.
func (c Command) Run(ctx context.Context) error {
	if len(c.Argv) == 0 {
		return errors.New("the command is empty")
	}
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	file, err := FindProgram(c.Argv[0], "", env)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cmd := &exec.Cmd{
		Args: c.Argv, Env: env, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr,
		WaitDelay:   cmp.Or(c.WaitDelay, time.Second/2),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	// The kernel kills the child when the thread that forked it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := forkUnmarked(func() error { return file.Start(cmd) }); err != nil {
		return err
	}
	recordFork(cmd.Process.Pid)
	defer recordReap(cmd.Process.Pid)
	killed := awaitGroupEnd(ctx, cmd.Process.Pid)
	switch err = cmd.Wait(); {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // others may keep its output open
		return nil
	case killed:
		return context.Cause(ctx)
	}
	return err
}

// awaitGroupEnd waits until the leader of a process group has ended. It kills the whole group if
// ctx ends first, and in any case kills the processes that the leader left behind. It does so
// before the leader is reaped: until then the kernel cannot reuse the group's ID. It reports
// whether ctx ended first.
func awaitGroupEnd(ctx context.Context, leader int) (killed bool) {
	// Kill fails only if nothing but the leader's zombie is left.
	kill := func() { _ = unix.Kill(-leader, unix.SIGKILL) }
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		kill()
	})
	awaitExit(leader)
	if killed = !stop(); killed {
		<-done
	}
	kill()
	return killed
}

// HeadBuffer is a writer that keeps the first [HeadBuffer.MaxBytes] bytes written to it and
// discards the rest. It may be written to and read concurrently.
type HeadBuffer struct {
	MaxBytes int

	mu   sync.Mutex
	head []byte // guarded by mu
}

// Write implements io.Writer. It never fails.
func (b *HeadBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.head = append(b.head, p[:min(len(p), b.MaxBytes-len(b.head))]...)
	return len(p), nil
}

// String returns the bytes kept so far.
func (b *HeadBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.head)
}
