package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pipeDelay = 500 * time.Millisecond // for output that a probe's stray child holds open
	killGrace = 3 * time.Second        // for the kernel to end a killed command
)

// oneAtATime runs looks that the kernel may never come back from (a stalled mount, a process that can't be killed),
// each in a goroutine that is left behind then. Only one is ever out, so that they can't pile up.
type oneAtATime struct {
	out chan struct{} // holds a token while a look is out
}

func newOneAtATime() oneAtATime {
	return oneAtATime{out: make(chan struct{}, 1)}
}

// run returns what look returns, or once ctx has ended and grace is over an error that says what hangs.
func (o oneAtATime) run(ctx context.Context, grace time.Duration, what string, look func() error) error {
	select {
	case o.out <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%s still hangs since an earlier look", what)
	}
	result := make(chan error, 1)
	go func() {
		defer func() { <-o.out }()
		result <- look()
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-result:
		return err
	case <-timer.C:
		return fmt.Errorf("%s hangs", what)
	}
}

// tryFile is ready where a file or a directory is. The file is asked for by its name, which is right for a
// filesystem of this node's own; a share may go on denying a name that it was once asked for too early.
func tryFile(ctx context.Context, once oneAtATime, path string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return once.run(ctx, 0, "the filesystem of "+path, func() error {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s is not there", path)
		case err != nil:
			return fmt.Errorf("cannot look at %s: %v", path, err)
		case !info.Mode().IsRegular() && !info.IsDir():
			return fmt.Errorf("%s is neither a file nor a directory (mode %s)", path, info.Mode())
		default:
			return nil
		}
	})
}

// tryExec runs a command in a process group of its own, of which nothing is left when it returns.
func tryExec(ctx context.Context, once oneAtATime, argv []string) error {
	ctx, cancel := context.WithTimeout(ctx, execTimeout)
	defer cancel()
	return once.run(ctx, killGrace, "the command "+argv[0], func() error { return runProbe(ctx, argv) })
}

func runProbe(ctx context.Context, argv []string) error {
	output := &firstBytes{}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = pipeDelay
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot run %s: %v", strings.Join(argv, " "), err)
	}
	killed := endGroup(ctx, cmd.Process.Pid)
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success():
		return nil
	case killed:
		err = errors.New("killed, for it had not ended in time")
	case !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay):
		err = fmt.Errorf("cannot wait for its end: %v", err)
	}
	if text := output.String(); text != "" {
		return fmt.Errorf("%s: %v, after saying: %s", strings.Join(argv, " "), err, text)
	}
	return fmt.Errorf("%s: %v", strings.Join(argv, " "), err)
}

// endGroup waits for the end of the group's leader, kills the whole group where ctx ends first, and kills in any
// case what the leader left behind. It does so before the leader is reaped: until then the group's number can be
// nobody else's, which exec.CommandContext doesn't promise.
func endGroup(ctx context.Context, leader int) (killed bool) {
	// The only error of a kill is that nobody is left, the leader's remains apart.
	kill := func() { _ = syscall.Kill(-leader, syscall.SIGKILL) }
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		kill()
	})
	for unix.Waitid(unix.P_PID, leader, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	if killed = !stop(); killed {
		<-done
	}
	kill()
	return killed
}

// firstBytes keeps the beginning of what is written to it.
type firstBytes struct {
	mu   sync.Mutex
	kept []byte // guarded by mu: a writer may be left behind with the pipe
}

func (b *firstBytes) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = append(b.kept, p[:min(len(p), excerptBytes-len(b.kept))]...)
	return len(p), nil
}

func (b *firstBytes) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return excerpt(b.kept)
}
