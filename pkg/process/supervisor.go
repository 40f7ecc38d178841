package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pause"
)

// bounds are the time limits for the end of a child.
type bounds struct {
	drain time.Duration // for other processes that hold its output pipes
	pass  time.Duration // for the writer that takes its output, since the last progress
	kill  time.Duration // from SIGKILL to the end of all processes
}

// Supervisor starts the children of one daemon, and runs the guard that ends them if the daemon
// dies unexpectedly. Its methods may be called from any goroutine.
type Supervisor struct {
	mark   string // common prefix of its children's marks, including the final dot
	forks  *forkers
	guard  *guardLink
	looks  *looks
	limits bounds
	memory func() memoryGroup // of the daemon and so of its children; has no levels if not readable
	jobs   []string           // environment variables that identify a job
	find   func(argv0, dir string, env []string) (program, error)
	censuses

	mu       sync.Mutex
	closed   bool
	numbers  int
	children map[*Child]struct{} // children with a family that may be alive
	wg       sync.WaitGroup      // abandoned starts, and one goroutine per child

	ending  sync.Once // protects endAll
	unended error     // result of endAll
}

// censuses is the state of the periodic scans and of the goroutine that performs them.
type censuses struct {
	started chan struct{}      // receives a token after the start of a child
	adopts  atomic.Bool        // see AdoptOrphans
	strays  map[int]root       // sessions of orphans that the guard knows; used by the goroutine only
	ended   map[processID]bool // orphans that were zombies at the last scan; used by the goroutine only
	end     context.CancelFunc
	loops   sync.WaitGroup
}

// NewSupervisor returns a Supervisor without children. Its guard starts right before the first
// child. jobVariables are the environment variables that identify a job, as returned by
// roles.JobVariables: the first of them that a child has names the job that the child belongs to
// (see the package documentation). NewSupervisor fails if /proc cannot be read, because then no
// family can be found.
func NewSupervisor(jobVariables []string) (*Supervisor, error) {
	self, err := readSelf("/proc/self", os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("cannot find the families of children without a /proc of this container's: %v", err)
	}
	ctx, end := context.WithCancel(context.Background())
	s := &Supervisor{
		mark:     fmt.Sprintf("%016x.", rand.Uint64()),
		forks:    newForkers(),
		looks:    newLooks(self.start),
		limits:   bounds{drain: time.Second, pass: 10 * time.Second, kill: 3 * time.Second},
		memory:   sync.OnceValue(func() memoryGroup { return findMemoryGroup("/") }),
		jobs:     jobVariables,
		find:     findProgram,
		censuses: censuses{started: make(chan struct{}, 1), end: end},
		children: make(map[*Child]struct{}),
	}
	s.guard = newGuardLink(s.forks, guardOrder{mark: s.mark, daemon: self.pid, since: self.start})
	s.loops.Go(func() { s.census(ctx) })
	return s, nil
}

// Own makes the guard remove a directory or file of the daemon if the daemon dies unexpectedly. The
// guard exists from the first child on.
func (s *Supervisor) Own(dir string) { s.guard.own(dir) }

// Start starts a child. The error wraps ErrNotFound or ErrNotExecutable if the program cannot be
// run. ctx bounds the start only, which may hang if the program's file system does; the child does
// not end with ctx.
func (s *Supervisor) Start(ctx context.Context, spec Spec) (*Child, error) {
	c, err := s.prepare(spec)
	if err == nil {
		err = s.launch(ctx, c)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", spec.Name, err)
	}
	return c, nil
}

// prepare creates a child that is not running yet. From now on Close waits for it.
func (s *Supervisor) prepare(spec Spec) (*Child, error) {
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return nil, errors.New("its command is empty")
	}
	spec.KeepLines = max(0, cmp.Or(spec.KeepLines, defaultKeepLines))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the daemon is ending")
	}
	s.numbers++
	s.wg.Add(1)
	return newChild(s, spec, s.mark+strconv.Itoa(s.numbers)), nil
}

// launch starts the child. If ctx ends first, launch returns, and the child is ended if it starts
// later.
func (s *Supervisor) launch(ctx context.Context, c *Child) error {
	began := time.Now()
	s.guard.ensure()
	reply := make(chan error, 1)
	s.forks.do(func() {
		err := c.launch(ctx)
		if err != nil {
			c.out.drop()
			s.wg.Done()
		}
		reply <- err
	})
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
	}
	go func() {
		if <-reply == nil {
			c.Stop(ended(), 0, unix.SIGKILL)
		}
	}()
	return fmt.Errorf("%s was not executed within %v (does its file system answer?): %v",
		c.spec.Argv[0], time.Since(began).Round(time.Millisecond), context.Cause(ctx))
}

// adopt registers a running child with the guard, the periodic scans and Close.
func (s *Supervisor) adopt(c *Child) {
	s.guard.add(c.root())
	s.mu.Lock()
	s.children[c] = struct{}{}
	s.mu.Unlock()
	select {
	case s.started <- struct{}{}:
	default:
	}
}

// forget removes a child when no process of its family is left.
func (s *Supervisor) forget(c *Child) {
	for _, r := range c.claim().roots {
		s.guard.remove(r.sid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.children, c)
}

// present returns the children with a family that may be alive.
func (s *Supervisor) present() []*Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.children))
}

// EndAll ends all remaining children, without a grace period; callers that want one call Stop for
// each child first. It returns when no process is left or, with an error that names the remaining
// ones, some seconds after the end of ctx. No child can be started afterwards. The guard keeps
// running: if the daemon dies before Close, the guard removes the daemon's directories. Only the
// first call has an effect.
func (s *Supervisor) EndAll(ctx context.Context) error {
	s.ending.Do(func() { s.unended = s.endAll(ctx) })
	return s.unended
}

// Close calls EndAll and then ends the guard.
func (s *Supervisor) Close(ctx context.Context) error {
	err := s.EndAll(ctx)
	// If processes are left, the guard gets no goodbye message and continues to kill them.
	err = errors.Join(err, s.guard.close(ctx, err == nil))
	s.forks.close()
	if !waitsBy(ctx, &s.forks.wg) {
		err = errors.Join(err, errors.New("cannot end a thread that forks: an exec hangs"))
	}
	return err
}

// endAll implements EndAll.
func (s *Supervisor) endAll(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	// Kill all families at the same time.
	left := s.present()
	results := make([]error, len(left))
	var stops sync.WaitGroup
	for i, c := range left {
		stops.Go(func() {
			c.Stop(ended(), 0, unix.SIGKILL)
			if c.swept.Err() == nil {
				results[i] = fmt.Errorf("cannot end all of %s (pid %d)", c.Name(), c.Pid())
			}
		})
	}
	stops.Wait()
	// Then the orphans. The periodic scans end last.
	err := errors.Join(errors.Join(results...), s.endOrphans(ctx))
	s.end()
	s.loops.Wait()
	if !waitsBy(ctx, &s.wg) {
		err = errors.Join(err, errors.New("cannot wait for all children: a start or an output hangs"))
	}
	return err
}

// waitsBy waits for wg until ctx ends. It reports whether wg is done.
func waitsBy(ctx context.Context, wg *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	return pause.Await(ctx, done)
}

// ended returns a context that has already ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
