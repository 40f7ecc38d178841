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

// Between two looks at something that it waits for, the bed rests for longer and longer: a look may
// be a program to be run.
const (
	minPause = 5 * time.Millisecond
	maxPause = 100 * time.Millisecond
)

// daemon is a long-lived child of this process.
type daemon struct {
	cmd   *exec.Cmd
	log   string
	stdin io.Closer     // closed after its end; nil for most
	ended chan struct{} // closed once it has been waited for
}

// startDaemon starts cmd in a process group of its own, with its output in the file log.
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
		_ = cmd.Wait() // how it ended is read from cmd.ProcessState after ended
		close(d.ended)
	}()
	return d, nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

// alive tells whether the daemon has not ended yet; if it has, the error says how, with the end of
// its log.
func (d *daemon) alive() error {
	select {
	case <-d.ended:
		return fmt.Errorf("%s ended: %v: %s", filepath.Base(d.log), d.cmd.ProcessState, lastLines(d.log, 12))
	default:
		return nil
	}
}

// says waits until the daemon has written the text into its log.
func (d *daemon) says(ctx context.Context, text string) error {
	return poll(ctx, func() (bool, error) {
		if err := d.alive(); err != nil {
			return false, err
		}
		said, err := os.ReadFile(d.log)
		return bytes.Contains(said, []byte(text)), err
	})
}

// wait waits for the daemon's end.
func (d *daemon) wait(ctx context.Context) error {
	select {
	case <-d.ended:
	case <-ctx.Done():
		return fmt.Errorf("cannot end process %d (%s): %v", d.pid(), filepath.Base(d.log), context.Cause(ctx))
	}
	if d.stdin != nil {
		return d.stdin.Close()
	}
	return nil
}

// kill ends the daemon, also where ctx is done.
func (d *daemon) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), killTimeout, errors.New("it does not die"))
	defer cancel()
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cannot kill process %d (%s): %v", d.pid(), filepath.Base(d.log), err)
	}
	return d.wait(ctx)
}

// lastLines returns up to n lines from the end of a log, or why there are none.
func lastLines(path string, n int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

// poll calls done until it is true or has an error, to the end of ctx.
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
