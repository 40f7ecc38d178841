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

// bounds are the longest waits around a child's end.
type bounds struct {
	drain time.Duration // for whoever else holds its output pipes
	pass  time.Duration // for the taker of its output, counted from the last time it took some
	kill  time.Duration // from SIGKILL to the end of all
}

// Supervisor starts the children of one daemon, and holds the guard that ends them when the daemon dies unasked. Its
// methods may be called from any goroutine.
type Supervisor struct {
	mark   string // what the marks of its children begin with, the dot at the end included
	forks  *forkers
	guard  *guardLink
	looks  *looks
	limits bounds
	memory func() memoryGroup // of the daemon, and so of its children; without levels where none can be read
	jobs   []string           // the variables that tell one job from another
	find   func(argv0, dir string, env []string) (program, error)
	censuses

	mu       sync.Mutex
	closed   bool
	numbers  int
	children map[*Child]struct{} // those whose family may be there
	wg       sync.WaitGroup      // starts that were given up, and the goroutine of each child

	ending  sync.Once // of endAll
	unended error     // its error
}

// censuses is the goroutine that takes them.
type censuses struct {
	started chan struct{}      // holds a token after a child's start
	adopts  atomic.Bool        // see AdoptOrphans
	strays  map[int]root       // the sessions of orphans that the guard was told of; the goroutine's
	ended   map[processID]bool // orphans that were dead at the last one; the goroutine's
	end     context.CancelFunc
	loops   sync.WaitGroup
}

// NewSupervisor returns a Supervisor without children. Its guard starts right before the first child. Of the variables
// that tell one job from another, as roles.JobVariables returns them, the first that a child has names the job that it
// belongs to: see the package's text. It fails where /proc can't be read, as without it no family can be found.
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

// Own has the guard remove a directory or file, which the daemon has made, where the daemon dies unasked. There
// is a guard from the first child on.
func (s *Supervisor) Own(dir string) { s.guard.own(dir) }

// Start starts a child. The error wraps ErrNotFound or ErrNotExecutable where the program is at fault. ctx bounds the
// start alone, which may hang with the file system that the program is on; the child does not end with ctx.
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

// prepare makes a child that is not running yet. The Supervisor waits for it from here on.
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

// launch runs the child. One whose start takes longer than the caller wanted to wait is ended.
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

// adopt makes a child that runs known to the guard, the census and Close.
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

// forget is called when nothing of the child's family is left.
func (s *Supervisor) forget(c *Child) {
	for _, r := range c.claim().roots {
		s.guard.remove(r.sid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.children, c)
}

// present returns the children whose family may be there.
func (s *Supervisor) present() []*Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.children))
}

// EndAll ends what is left of the children, without grace. Callers Stop their children before, with
// the grace that each needs. It returns when all is gone, or, with an error that names what is not,
// some seconds after the end of ctx. No child can be started afterwards. The guard goes on: if the
// daemon dies before Close, it removes what the daemon owns. Only the first call does something.
func (s *Supervisor) EndAll(ctx context.Context) error {
	s.ending.Do(func() { s.unended = s.endAll(ctx) })
	return s.unended
}

// Close calls EndAll and then ends the guard.
func (s *Supervisor) Close(ctx context.Context) error {
	err := s.EndAll(ctx)
	// Without a goodbye the guard goes on where we gave up.
	err = errors.Join(err, s.guard.close(ctx, err == nil))
	s.forks.close()
	if !waitsBy(ctx, &s.forks.wg) {
		err = errors.Join(err, errors.New("cannot end a thread that forks: an exec hangs"))
	}
	return err
}

func (s *Supervisor) endAll(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
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
	err := errors.Join(errors.Join(results...), s.endOrphans(ctx))
	s.end()
	s.loops.Wait()
	if !waitsBy(ctx, &s.wg) {
		err = errors.Join(err, errors.New("cannot wait for all children: a start or an output hangs"))
	}
	return err
}

// waitsBy waits for wg, until ctx ends at most.
func waitsBy(ctx context.Context, wg *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	return pause.Await(ctx, done)
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
