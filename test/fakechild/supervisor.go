// Package fakechild provides goroutines in place of a daemon's child processes, for tests in
// bubbles of testing/synctest. They are started, signalled and stopped like processes, and their
// waits take simulated time. The program of a child is a Go function or a shell command line. The
// tests in childtest apply to these children and to real ones.
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
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/process"
)

// Program is the program of a child. It returns the exit code. ctx ends when the child must end at
// once, because of KILL or of another signal that the program neither catches nor ignores. The
// returned code is then ignored.
type Program func(ctx context.Context, p *Process) int

// Supervisor starts goroutines as the children of one daemon. Its methods are safe for concurrent
// use. It ignores Spec.Prepare and Spec.Files.
type Supervisor struct {
	programs map[string]Program

	mu       sync.Mutex
	closed   bool
	owned    []string            // paths that the daemon owns
	late     []string            // owned paths that still existed at Close
	children map[*child]struct{} // children whose family may still run
	running  sync.WaitGroup
}

var _ process.Starter = (*Supervisor)(nil)

// firstPID is larger than any process id of a kernel, so that /proc contains nothing about these
// children.
const firstPID = 1 << 30

// living contains all running children by process id; latest is the newest id.
var (
	living sync.Map
	latest atomic.Int64
)

// Lives reports whether the child with that id is running.
func Lives(pid int) bool {
	_, found := living.Load(pid)
	return found
}

// Kill sends a signal to the child with that id, and to no other member of its family, like
// kill(2). It reports whether the child exists.
func Kill(pid int, sig syscall.Signal) bool {
	c, found := living.Load(pid)
	if found {
		c.(*child).main.Kill(sig)
	}
	return found
}

// New returns a Supervisor whose children run these programs. The key of a program is the last
// element of the path by which it is started. Starting any other program fails as with a process.
func New(programs map[string]Program) *Supervisor {
	return &Supervisor{programs: programs, children: make(map[*child]struct{})}
}

// StartGuard implements process.Starter. There is no guard.
func (s *Supervisor) StartGuard() {}

// EndIfSilent implements process.Starter. There is no guard.
func (s *Supervisor) EndIfSilent(time.Duration, func()) {}

// OwnPath implements process.Starter. There is no guard, because tests do not kill a daemon that is
// a goroutine: see Unguarded.
func (s *Supervisor) OwnPath(path files.OwnedPath) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned = append(s.owned, path.Path)
}

// SignalReachedGuard implements process.Starter. It returns false, because there is no guard.
func (s *Supervisor) SignalReachedGuard(context.Context, syscall.Signal) bool { return false }

// Unguarded returns the paths that the daemon owned and had not removed when it called Close. With
// a real daemon, Close ends the guard.
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
		_, err := process.ResolveProgram(spec.Argv[0], spec.Env)
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

// Left returns the names of the children whose families still have running members.
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

// The time limits are those of a real Supervisor: for output that other processes hold open, and
// from KILL to the end of all processes.
const (
	drainTime = time.Second
	killTime  = 3 * time.Second
)
