package fakechild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/process"
)

// child is a child that was started.
type child struct {
	owner *Supervisor
	spec  process.Spec
	pid   int
	out   *output
	main  *Process
	ended chan struct{}
	done  chan struct{}
	gone  chan struct{} // closed when the last member of the family has ended

	mu       sync.Mutex
	members  []*member // running members of the family, without the child itself
	left     int       // running members, plus 1 while the child runs
	exit     process.Exit
	killedBy syscall.Signal
	stopping bool // Stop was called while the child ran
	stops    int  // calls of StopProcesses that are waiting
	sent     map[syscall.Signal]bool
}

var _ process.Handle = (*child)(nil)

// member is a part of a child's family, such as a background command of a shell.
type member struct {
	end     context.CancelFunc
	ignores map[syscall.Signal]bool
}

func newChild(owner *Supervisor, spec process.Spec) *child {
	c := &child{
		owner: owner, spec: spec, pid: firstPID + int(latest.Add(1)), out: newOutput(spec), left: 1,
		ended: make(chan struct{}), done: make(chan struct{}), gone: make(chan struct{}),
		exit: process.Exit{Code: -1}, sent: make(map[syscall.Signal]bool),
	}
	ctx, end := context.WithCancel(context.Background())
	c.main = &Process{
		Argv: spec.Argv, Env: spec.Env, Dir: spec.Dir, Stdin: spec.Stdin, PID: c.pid,
		Stdout: stream{c.out, spec.Stdout}, Stderr: stream{c.out, spec.Stderr},
		child: c, ctx: ctx, end: end,
		catches: make(map[syscall.Signal]chan<- syscall.Signal),
		ignores: make(map[syscall.Signal]bool),
	}
	return c
}

// askingForAnEnd lists the signals that request an end, as in pkg/process.
var askingForAnEnd = []syscall.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGKILL,
}

// run runs the program and waits for the end of the child.
func (c *child) run(program Program) {
	code := program(c.main.ctx, c.main)
	c.main.end()
	c.mu.Lock()
	c.exit = process.Exit{Code: code}
	if c.killedBy != 0 {
		c.exit = process.Exit{Code: -1, Signal: c.killedBy}
	}
	asked := slices.ContainsFunc(askingForAnEnd, func(sig syscall.Signal) bool {
		return c.sent[sig]
	})
	c.exit.Requested = c.stopping || asked || c.exit.Signal != 0 && c.sent[c.exit.Signal]
	c.leave()
	c.mu.Unlock()
	close(c.ended)
	living.Delete(c.pid)
	for !ctxutil.AwaitDoneFor(c.gone, drainTime) {
		c.mu.Lock()
		stops := c.stops
		c.mu.Unlock()
		if stops == 0 {
			break
		}
	}
	c.out.close()
	close(c.done)
	<-c.gone
	c.owner.forget(c)
}

// leave records that a member of the family has ended. The caller holds c.mu.
func (c *child) leave() {
	if c.left--; c.left == 0 {
		close(c.gone)
	}
}

func (c *child) Name() string           { return c.spec.Name }
func (c *child) PID() int               { return c.pid }
func (c *child) Ended() <-chan struct{} { return c.ended }
func (c *child) Done() <-chan struct{}  { return c.done }
func (c *child) OwnsProcess(pid int) bool {
	return pid == c.pid && !ctxutil.AwaitDoneFor(c.ended, 0)
}
func (c *child) LastLines() []string { return c.out.lastLines() }

// RecentLines implements process.Handle.
func (c *child) RecentLines() (out, err []string) { return c.out.lastLines(), nil }

// Exit implements process.Handle.
func (c *child) Exit() process.Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exit
}

// OutputStats implements process.Handle.
func (c *child) OutputStats() (bytes int64, ago time.Duration) { return c.out.count() }

// Signal implements process.Handle.
func (c *child) Signal(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctxutil.AwaitDoneFor(c.ended, 0) {
		name := process.SignalName(sig)
		return fmt.Errorf("cannot send %s to %s: %w", name, c.spec.Name, os.ErrProcessDone)
	}
	c.send(sig)
	return nil
}

// send delivers the signal to the whole family. The caller holds c.mu.
func (c *child) send(sig syscall.Signal) {
	c.sent[sig] = true
	c.main.get(sig)
	c.sendOthers(sig)
}

// sendOthers delivers the signal to the family except the child itself. The caller holds c.mu.
func (c *child) sendOthers(sig syscall.Signal) {
	for _, m := range c.members {
		if sig == syscall.SIGKILL || ends(sig) && !m.ignores[sig] {
			m.end()
		}
	}
}

// ends reports whether the default action of a signal ends a process.
func ends(sig syscall.Signal) bool {
	switch sig {
	case 0, syscall.SIGCONT, syscall.SIGCHLD, syscall.SIGWINCH, syscall.SIGURG:
		return false
	}
	return true
}

// Stop implements process.Handle.
func (c *child) Stop(ctx context.Context, grace time.Duration, first syscall.Signal) process.Exit {
	err := c.StopProcesses(ctx, grace, first)
	if err == nil && !ctxutil.AwaitDone(ctx, c.done) && !ctxutil.AwaitDoneFor(c.done, 2*drainTime) {
		err = errors.New("cannot pass on its last output in time")
	}
	exit := c.Exit()
	exit.Err = errors.Join(err, exit.Err)
	return exit
}

// StopProcesses implements process.Handle.
func (c *child) StopProcesses(ctx context.Context, grace time.Duration,
	first syscall.Signal) error {
	patience, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	c.mu.Lock()
	c.stops++
	if running := !ctxutil.AwaitDoneFor(c.ended, 0); running {
		c.stopping = true
		if !c.sent[first] {
			c.send(first)
		}
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stops--
	}()
	if patience.Err() == nil && ctxutil.AwaitDone(patience, c.ended) {
		c.mu.Lock()
		c.sendOthers(first)
		c.mu.Unlock()
		if ctxutil.AwaitDone(patience, c.gone) {
			return nil
		}
	}
	c.mu.Lock()
	c.send(syscall.SIGKILL)
	c.mu.Unlock()
	if !ctxutil.AwaitDoneFor(c.gone, killTime) {
		return fmt.Errorf("cannot end all of %s: its program does not end with its context",
			c.spec.Name)
	}
	<-c.ended
	return nil
}
