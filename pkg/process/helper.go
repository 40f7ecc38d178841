package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

const (
	helperStartTimeout = 5 * time.Second        // for a fork
	helperReapTimeout  = 200 * time.Millisecond // for the end of a killed helper
	helperWaitDelay    = 2 * time.Second        // for output that other processes keep open
)

// Helper is a process that answers requests of the daemon. It ends when its standard input is
// closed, and so when the daemon ends. It has a process group of its own, so that Ctrl-C does not
// reach it. Unlike a [Child], it needs neither a signal to end nor a log, and it is abandoned if it
// cannot be killed, for example because it hangs in a driver.
type Helper struct {
	PID    int
	Stdin  io.WriteCloser
	Kill   context.CancelFunc // kills the process, including one that is forked later
	Killed <-chan struct{}    // closed by Kill
	Ended  chan struct{}      // closed once it has ended and all of its output was handled
	// State and Err are the results of exec.Cmd.Wait. They are set before Ended is closed.
	State *os.ProcessState
	Err   error
}

// StartHelper starts a helper with the path, arguments, environment, directory and output of spec.
// Once all of its output was written, it calls onEnd. StartHelper returns when helperStartTimeout
// is over or ctx ends, even if the fork hangs because of the program's file system. A helper that
// is forked later than that is killed, and none is forked if ctx has ended before. If the standard
// output is a file, it is closed after the fork, or instead of it.
func StartHelper(ctx context.Context, spec *exec.Cmd, onEnd func()) (*Helper, error) {
	if ctx.Err() != nil {
		closeOutput(spec)
		return nil, context.Cause(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, helperStartTimeout)
	defer cancel()
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	cmd := exec.CommandContext(life, spec.Path)
	cmd.Args, cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = spec.Args, spec.Env, spec.Dir, spec.Stdout, spec.Stderr
	cmd.WaitDelay, cmd.SysProcAttr = helperWaitDelay, &syscall.SysProcAttr{Setpgid: true}
	h, err := ctxutil.CallBounded(limited, 0, func() (*Helper, error) { return forkHelper(cmd, onEnd) })
	if err == nil {
		h.Kill, h.Killed = kill, life.Done()
		return h, nil
	}
	kill()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, ctxutil.ErrAbandoned):
		return nil, fmt.Errorf("cannot start it within %v: the file system of %s may hang",
			helperStartTimeout, spec.Path)
	}
	return nil, fmt.Errorf("cannot start it: %w", err)
}

func forkHelper(cmd *exec.Cmd, onEnd func()) (*Helper, error) {
	// If the program's file system hangs, only this goroutine hangs here; during the exec, the whole
	// process would hang.
	ReadHead(cmd.Path)
	defer closeOutput(cmd)
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = forkUnmarked(cmd.Start)
	}
	if err != nil {
		return nil, err
	}
	recordFork(cmd.Process.Pid)
	h := &Helper{PID: cmd.Process.Pid, Stdin: stdin, Ended: make(chan struct{})}
	go func() {
		defer close(h.Ended)
		h.Err = cmd.Wait()
		h.State = cmd.ProcessState
		recordReap(cmd.Process.Pid)
		onEnd()
	}()
	return h, nil
}

func closeOutput(cmd *exec.Cmd) {
	if file, is := cmd.Stdout.(*os.File); is {
		_ = file.Close()
	}
}

// Close closes the helper's standard input, and kills the helper if it has not ended when ctx ends.
func (h *Helper) Close(ctx context.Context) {
	_ = h.Stdin.Close()
	ctxutil.AwaitDone(ctx, h.Ended)
	h.KillOrAbandon()
}

// KillOrAbandon kills the helper if it has not ended. If it cannot be killed, it is left alone, and
// only the goroutine that waits for it remains.
func (h *Helper) KillOrAbandon() {
	_ = h.Stdin.Close()
	h.Kill()
	ctxutil.AwaitDoneFor(h.Ended, helperReapTimeout)
}
