package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// poll waits between two checks, with increasing pauses, because a check may run a program.
const (
	minPause = 5 * time.Millisecond
	maxPause = 100 * time.Millisecond
)

// daemon is a long-lived child of this process.
type daemon struct {
	cmd   *exec.Cmd
	log   string
	stdin io.Closer     // closed after the process has ended; nil for most
	ended chan struct{} // closed when the process has been reaped
}

// startDaemon starts cmd in its own process group and writes its output to the file log.
func startDaemon(cmd *exec.Cmd, log string) (*daemon, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log of %s: %v", filepath.Base(cmd.Path), err)
	}
	defer func() { _ = file.Close() }()
	if cmd.Stdout == nil {
		cmd.Stdout = file
	}
	cmd.Stderr = file
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = !cmd.SysProcAttr.Setsid
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %v", filepath.Base(cmd.Path), err)
	}
	d := &daemon{cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // after ended is closed, cmd.ProcessState has the result
		close(d.ended)
	}()
	return d, nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

// alive returns nil while the daemon runs. Otherwise the error contains its exit status and the end
// of its log.
func (d *daemon) alive() error {
	select {
	case <-d.ended:
		return fmt.Errorf("%s ended: %v: %s", filepath.Base(d.log), d.cmd.ProcessState,
			lastLines(d.log, 12))
	default:
		return nil
	}
}

// says waits until the log of the daemon contains the text.
func (d *daemon) says(ctx context.Context, text string) error {
	return poll(ctx, func() (bool, error) {
		if err := d.alive(); err != nil {
			return false, err
		}
		said, err := os.ReadFile(d.log)
		return bytes.Contains(said, []byte(text)), err
	})
}

// wait waits for the end of the daemon.
func (d *daemon) wait(ctx context.Context) error {
	select {
	case <-d.ended:
	case <-ctx.Done():
		return fmt.Errorf("cannot end process %d (%s): %v", d.pid(), filepath.Base(d.log),
			context.Cause(ctx))
	}
	if d.stdin != nil {
		return d.stdin.Close()
	}
	return nil
}

// kill kills the daemon and waits for its end, even if ctx is done.
func (d *daemon) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), killTimeout,
		errors.New("it does not die"))
	defer cancel()
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cannot kill process %d (%s): %v", d.pid(), filepath.Base(d.log), err)
	}
	return d.wait(ctx)
}

// lastLines returns up to n lines from the end of a log, or the error that prevented reading it.
func lastLines(path string, n int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

// poll calls done until it returns true or an error, or until ctx is done.
func poll(ctx context.Context, done func() (bool, error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := minPause; ; pause = min(pause*3/2, maxPause) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		if ok, err := done(); ok || err != nil {
			return err
		}
		timer.Reset(pause)
	}
}
