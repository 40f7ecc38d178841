package fakechild

import (
	"context"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// Process is a child as its program has it.
type Process struct {
	Argv           []string
	Env            []string
	Dir            string
	PID            int
	Stdin          *os.File // nil: there is nothing to read
	Stdout, Stderr io.Writer

	child *child
	ctx   context.Context
	end   context.CancelFunc

	// Both are guarded by the child's mu.
	catches map[syscall.Signal]chan<- syscall.Signal
	ignores map[syscall.Signal]bool
}

// Getenv returns the value of a variable; of one that is there twice, the last one counts.
func (p *Process) Getenv(name string) string {
	for _, assignment := range slices.Backward(p.Env) {
		if value, is := strings.CutPrefix(assignment, name+"="); is {
			return value
		}
	}
	return ""
}

// Sleep waits; it returns false where ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool { return ctxutil.SleepContext(ctx, d) }

// Catch has a signal come by a channel that has room for it, rather than end the child.
func (p *Process) Catch(sig syscall.Signal, by chan<- syscall.Signal) {
	p.child.mu.Lock()
	defer p.child.mu.Unlock()
	p.catches[sig] = by
	delete(p.ignores, sig)
}

// Ignore has a signal do nothing, also to those of the family that begin later.
func (p *Process) Ignore(sig syscall.Signal) {
	p.child.mu.Lock()
	defer p.child.mu.Unlock()
	p.ignores[sig] = true
	delete(p.catches, sig)
}

// Kill sends a signal to the child itself, as kill -SIG $$ does.
func (p *Process) Kill(sig syscall.Signal) {
	p.child.mu.Lock()
	defer p.child.mu.Unlock()
	p.get(sig)
}

// Background runs what may outlive the program and has its output: one of the child's family.
func (p *Process) Background(run func(ctx context.Context)) {
	c := p.child
	ctx, end := context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &member{end: end, ignores: maps.Clone(p.ignores)}
	c.members = append(c.members, m)
	c.left++
	c.owner.running.Go(func() {
		defer end()
		run(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.members = slices.DeleteFunc(c.members, func(other *member) bool { return other == m })
		c.leave()
	})
}

// get has a signal come; the child's mu is held.
func (p *Process) get(sig syscall.Signal) {
	if by := p.catches[sig]; by != nil && sig != syscall.SIGKILL {
		select {
		case by <- sig:
		default:
		}
		return
	}
	if sig != syscall.SIGKILL && (p.ignores[sig] || !ends(sig)) || p.ctx.Err() != nil {
		return
	}
	p.child.killedBy = sig
	p.end()
}
