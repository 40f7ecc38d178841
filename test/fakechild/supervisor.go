// Package fakechild has goroutines in place of a daemon's children, for tests in bubbles of
// testing/synctest: they are started, signalled and stopped as processes are, and their waits take
// simulated time. What a child does is a function of Go, or a line of shell. The tests in
// childtest hold for these children and for real ones.
package fakechild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/process"
)

// Program is what a child runs; it returns the exit code. ctx ends when the child is to end at
// once, by KILL or by another signal that the program neither catches nor ignores: what the
// program returns does not count then.
type Program func(ctx context.Context, p *Process) int

// Supervisor starts goroutines as the children of one daemon. Its methods may be called from any
// goroutine. They heed neither Spec.Prepare nor Spec.Files.
type Supervisor struct {
	programs map[string]Program

	mu       sync.Mutex
	closed   bool
	owned    []string            // by the daemon
	late     []string            // what of it was left at Close
	children map[*child]struct{} // whose family may be there
	running  sync.WaitGroup
}

var _ process.Starter = (*Supervisor)(nil)

// firstPID is above the process ids of any kernel: /proc has nothing of these children.
const firstPID = 1 << 30

// living are all children that have not ended, by process id, and latest the id of the newest.
var (
	living sync.Map
	latest atomic.Int64
)

// Lives tells whether the child of that id has not ended.
func Lives(pid int) bool {
	_, found := living.Load(pid)
	return found
}

// Kill sends a signal to the child of that id, and to nobody else of its family, as kill(2) does.
// It returns whether there is one.
func Kill(pid int, sig syscall.Signal) bool {
	c, found := living.Load(pid)
	if found {
		c.(*child).main.Kill(sig)
	}
	return found
}

// New returns a Supervisor of children that run these programs, by the last element of the path
// that they are started by. Without one of that name the start fails as that of a process does.
func New(programs map[string]Program) *Supervisor {
	return &Supervisor{programs: programs, children: make(map[*child]struct{})}
}

// OwnPath implements process.Starter. There is no guard, as no test kills a daemon that is a
// goroutine: see Unguarded.
func (s *Supervisor) OwnPath(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned = append(s.owned, dir)
}

// SignalReachedGuard implements process.Starter. There is no guard that could be signalled.
func (s *Supervisor) SignalReachedGuard(context.Context, syscall.Signal) bool { return false }

// Unguarded returns what the daemon owned and had not removed when it called Close, which ends the
// guard of a real daemon.
func (s *Supervisor) Unguarded() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late
}

// Start implements process.Starter.
func (s *Supervisor) Start(ctx context.Context, spec process.Spec) (process.Handle, error) {
	c, err := s.start(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", spec.Name, err)
	}
	return c, nil
}

func (s *Supervisor) start(ctx context.Context, spec process.Spec) (*child, error) {
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return nil, errors.New("its command is empty")
	}
	program := s.programs[filepath.Base(spec.Argv[0])]
	if program == nil {
		err := process.CheckProgram(spec.Argv[0], spec.Env)
		return nil, cmp.Or(err, fmt.Errorf("the test has no program %s", spec.Argv[0]))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the daemon is ending")
	}
	c := newChild(s, spec)
	living.Store(c.pid, c)
	s.children[c] = struct{}{}
	s.running.Go(func() { c.run(program) })
	return c, nil
}

// Close implements process.Starter.
func (s *Supervisor) Close(ctx context.Context) error {
	s.mu.Lock()
	for _, dir := range s.owned {
		if _, err := os.Lstat(dir); err == nil {
			s.late = append(s.late, dir)
		}
	}
	s.mu.Unlock()
	return s.EndAll(ctx)
}

// EndAll implements process.Starter.
func (s *Supervisor) EndAll(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	left := slices.Collect(maps.Keys(s.children))
	s.mu.Unlock()
	for _, c := range left {
		c.Stop(ctx, 0, syscall.SIGKILL)
	}
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	if !ctxutil.AwaitDone(ctx, done) {
		return errors.New("cannot wait for all children: a program does not end with its context")
	}
	return nil
}

// Left returns the names of the children of whose family somebody is there.
func (s *Supervisor) Left() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.children {
		names = append(names, c.Name())
	}
	return names
}

func (s *Supervisor) forget(c *child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.children, c)
}

// The bounds of a real Supervisor: for output that others than the child hold open, and from KILL
// to the end of all.
const (
	drainTime = time.Second
	killTime  = 3 * time.Second
)
