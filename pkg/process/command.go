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

// Command is a program that is run for what it says: a probe, a client, one that tells its version. Its standard input
// is /dev/null. It is in a process group of its own, and dies with us. What leaves that group, needs a grace, or is to
// be logged is for a Supervisor.
type Command struct {
	// Argv is the command; no shell reads it.
	Argv []string
	// Env is its whole environment, whose PATH it is looked for in; nil: ours.
	Env []string
	// Stdout and Stderr get its output, as those of an exec.Cmd. Where Run is left to itself (see there) they may still
	// be written to.
	Stdout, Stderr io.Writer
	// Linger is how long output is waited for that others hold open after the command's end; 0: half a second.
	Linger time.Duration
}

// Run runs the command until it ends, and kills its whole group then: nothing of it is left. Where ctx ends first, the
// group is killed at once, and the error is the cause of ctx's end. The others are an *exec.ExitError, those of a start
// (see Supervisor.Start), and those of passing on its output.
//
// A command that can't be killed, as one that hangs in a driver or on a mount, keeps Run from returning, and so does
// its program's file system where that hangs: who can't wait calls Run by pause.Bounded.
func (c Command) Run(ctx context.Context) error {
	if len(c.Argv) == 0 {
		return errors.New("the command is empty")
	}
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	prog, err := findProgram(c.Argv[0], "", env)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cmd := &exec.Cmd{
		Args: c.Argv, Env: env, Stdout: c.Stdout, Stderr: c.Stderr,
		WaitDelay:   cmp.Or(c.Linger, time.Second/2),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	// The kernel kills the child when the thread ends that forked it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := prog.start(cmd); err != nil {
		return err
	}
	killed := endGroup(ctx, cmd.Process.Pid)
	switch err = cmd.Wait(); {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it has ended well, whoever else holds its output
		return nil
	case killed:
		return context.Cause(ctx)
	}
	return err
}

// endGroup waits for the end of the group's leader, kills the whole group where ctx ends first, and kills in any case
// what the leader left behind. It does so before the leader is reaped: until then the group's number can be nobody
// else's.
func endGroup(ctx context.Context, leader int) (killed bool) {
	// The only error of a kill is that nobody is left, the leader's remains apart.
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

// Beginning keeps the first bytes that are written to it, up to Most, and takes the others too. It may be written to
// and read at the same time.
type Beginning struct {
	Most int

	mu   sync.Mutex
	kept []byte // guarded by mu
}

// Write implements io.Writer. It returns no error.
func (b *Beginning) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = append(b.kept, p[:min(len(p), b.Most-len(b.kept))]...)
	return len(p), nil
}

// String returns what is kept.
func (b *Beginning) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.kept)
}
