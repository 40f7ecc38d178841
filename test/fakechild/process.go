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

// Process is the interface of a child to its own program.
type Process struct {
	Argv           []string
	Env            []string
	Dir            string
	PID            int
	Stdin          *os.File // nil if there is no input
	Stdout, Stderr io.Writer

	child *child
	ctx   context.Context
	end   context.CancelFunc

	// The following maps are guarded by the child's mu.
	catches map[syscall.Signal]chan<- syscall.Signal
	ignores map[syscall.Signal]bool
}

// Getenv returns the value of a variable. If the variable occurs more than once, the last value
// counts.
func (p *Process) Getenv(name string) string {
	for _, assignment := range slices.Backward(p.Env) {
		if value, is := strings.CutPrefix(assignment, name+"="); is {
			return value
		}
	}
	return ""
}

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool { return ctxutil.SleepContext(ctx, d) }

// Catch delivers a signal to a channel, which must have free capacity, instead of ending the child.
func (p *Process) Catch(sig syscall.Signal, by chan<- syscall.Signal) {
	p.child.mu.Lock()
	defer p.child.mu.Unlock()
	p.catches[sig] = by
	delete(p.ignores, sig)
}

// Ignore ignores a signal, also for members of the family that start later.
func (p *Process) Ignore(sig syscall.Signal) {
	p.child.mu.Lock()
	defer p.child.mu.Unlock()
	p.ignores[sig] = true
	delete(p.catches, sig)
}

// Kill sends a signal to the child itself, like kill -SIG $$.
func (p *Process) Kill(sig syscall.Signal) {
	p.child.mu.Lock()
	defer p.child.mu.Unlock()
	p.get(sig)
}

// Background runs a function that may outlive the program and shares its output, as a member of the
// child's family.
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

// get delivers a signal. The caller holds the child's mu.
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
