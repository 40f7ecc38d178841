package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
)

type endTimeouts struct {
	outputDrain time.Duration // for other processes that hold its output pipes
	outputStall time.Duration // for the writer that takes its output, since the last progress
	killWait    time.Duration // from SIGKILL to the end of all processes
}

// Supervisor starts the children of one daemon, and runs the guard that ends them if the daemon
// dies unexpectedly. Its methods may be called from any goroutine.
type Supervisor struct {
	markPrefix string // common prefix of its children's marks, including the final dot
	threads    *forkThreads
	guardLink  *guardLink
	scanner    *procScanner
	timeouts   endTimeouts
	// of the daemon and so of its children; has no levels if not readable
	findMemory    func() Cgroup
	jobVariables  []string // environment variables that identify a job
	resolve       func(argv0, dir string, env []string) (Program, error)
	adoptsOrphans atomic.Bool     // see [Supervisor.AdoptOrphans]
	ctx           context.Context // ends with the Supervisor
	cancel        context.CancelFunc
	reapLoop      sync.WaitGroup // [Supervisor.reapUntilEnd]
	childSet
	endOnce sync.Once // protects endAll
	endErr  error     // result of endAll
}

// childSet holds the children of a Supervisor that may be alive.
type childSet struct {
	mu         sync.Mutex
	closed     bool // no child can be started
	lastNumber int
	children   map[*Child]struct{} // children with a family that may be alive
	wg         sync.WaitGroup      // abandoned starts, and one goroutine per child
}

// NewSupervisor returns a Supervisor without children. Its guard starts right before the first
// child, or with [Supervisor.StartGuard]. jobVariables are the environment variables that identify
// a job, as returned by roles.JobVariables: the first of them that a child has names the job that
// the child belongs to (see the package documentation). NewSupervisor fails if /proc cannot be
// read, because then no family can be found.
func NewSupervisor(jobVariables []string) (*Supervisor, error) {
	self, err := verifySelf("/proc/self", os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("cannot find the families of children without a /proc of this container: %v", err)
	}
	s := &Supervisor{
		markPrefix:   newMarkPrefix(),
		threads:      newForkThreads(),
		scanner:      newProcScanner(self.start),
		timeouts:     endTimeouts{outputDrain: time.Second, outputStall: 10 * time.Second, killWait: 3 * time.Second},
		findMemory:   sync.OnceValue(func() Cgroup { return FindMemoryCgroup("/") }),
		jobVariables: jobVariables,
		resolve:      FindProgram,
		childSet:     childSet{children: make(map[*Child]struct{})},
	}
	s.guardLink = newGuardLink(s.threads, guardArgs{mark: s.markPrefix, daemon: self.pid, since: self.start})
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// StartGuard starts the guard before the first child, which then does not wait for it. It does not
// wait for the guard either.
func (s *Supervisor) StartGuard() { s.guardLink.ensureStarted() }

// OwnPath makes the guard remove a directory or file of the daemon if the daemon dies unexpectedly.
// The guard exists from the first child, or from [Supervisor.StartGuard], on.
func (s *Supervisor) OwnPath(path files.OwnedPath) { s.guardLink.sendLine(ownPathLine(path)) }

// Start starts a child. The error wraps [ErrNotFound] or [ErrNotExecutable] if the
// program cannot be run. ctx bounds the start only, which may hang if the program's file system
// does; the child does not end with ctx.
func (s *Supervisor) Start(ctx context.Context, spec Spec) (Handle, error) {
	c, err := s.prepareChild(spec)
	if err == nil {
		err = s.launchChild(ctx, c)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", spec.Name, err)
	}
	return c, nil
}

// prepareChild creates a child that is not running yet. From now on Close waits for it.
func (s *Supervisor) prepareChild(spec Spec) (*Child, error) {
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return nil, errors.New("its command is empty")
	}
	spec.KeepLines = max(0, cmp.Or(spec.KeepLines, defaultKeepLines))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the daemon is ending")
	}
	s.lastNumber++
	s.wg.Add(1)
	return newChild(s, spec, s.markPrefix+strconv.Itoa(s.lastNumber)), nil
}

// launchChild starts the child. If ctx ends first, launch returns, and the child is ended if it
// starts later.
func (s *Supervisor) launchChild(ctx context.Context, c *Child) error {
	began := time.Now()
	s.guardLink.ensureStarted()
	reply := make(chan error, 1)
	s.threads.runJob(func() {
		err := c.startProcess(ctx)
		if err != nil {
			c.out.closePipes()
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
			c.Stop(endedContext(), 0, unix.SIGKILL)
		}
	}()
	return fmt.Errorf("%s was not executed within %v (does its file system respond?): %v",
		c.spec.Argv[0], time.Since(began).Round(time.Millisecond), context.Cause(ctx))
}

func (s *Supervisor) registerChild(c *Child) {
	s.guardLink.sendLine(addLine(c.ownSession()))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.children[c] = struct{}{}
}

// unregisterChild removes a child when no process of its family is left.
func (s *Supervisor) unregisterChild(c *Child) {
	s.guardLink.sendLine(removeLine(c.pid))
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.children, c)
}

// activeChildren returns the children with a family that may be alive.
func (s *childSet) activeChildren() []*Child {
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
	s.endOnce.Do(func() { s.endErr = s.endAll(ctx) })
	return s.endErr
}

// Close calls EndAll and then ends the guard.
func (s *Supervisor) Close(ctx context.Context) error {
	err := s.EndAll(ctx)
	// If processes are left, the guard gets no goodbye message and continues to kill them.
	err = errors.Join(err, s.guardLink.shutDown(ctx, err == nil))
	s.threads.shutDown()
	if !awaitGroup(ctx, &s.threads.wg) {
		err = errors.Join(err, errors.New("cannot end a thread that forks: an exec hangs"))
	}
	return err
}

func (s *Supervisor) endAll(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	// Kill all families at the same time.
	left := s.activeChildren()
	results := make([]error, len(left))
	var stops sync.WaitGroup
	for i, c := range left {
		stops.Go(func() {
			c.Stop(endedContext(), 0, unix.SIGKILL)
			if c.familyGone.Err() == nil {
				results[i] = fmt.Errorf("cannot end all of %s (pid %d)", c.Name(), c.PID())
			}
		})
	}
	stops.Wait()
	// Then the orphans.
	err := errors.Join(errors.Join(results...), s.killOrphans(ctx))
	s.cancel()
	s.reapLoop.Wait()
	if !awaitGroup(ctx, &s.wg) {
		err = errors.Join(err, errors.New("cannot wait for all children: a start or an output hangs"))
	}
	return err
}

// awaitGroup waits for wg until ctx ends. It reports whether wg is done.
func awaitGroup(ctx context.Context, wg *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	return ctxutil.AwaitDone(ctx, done)
}

func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Handle is the interface of a started child for code that waits for it, signals it or stops it. It
// is implemented by *Child and by fakes in tests.
type Handle interface {
	Name() string
	PID() int
	Ended() <-chan struct{}
	Done() <-chan struct{}
	Exit() Exit
	LastLines() []string
	RecentLines() (out, err []string)
	OutputStats() (bytes int64, ago time.Duration)
	OwnsProcess(pid int) bool
	Signal(sig syscall.Signal) error
	Stop(ctx context.Context, grace time.Duration, first syscall.Signal) Exit
	StopProcesses(ctx context.Context, grace time.Duration, first syscall.Signal) error
}

// Starter is the interface of a [Supervisor] that starts and ends the children of a daemon, for code
// whose tests fake it.
type Starter interface {
	Start(ctx context.Context, spec Spec) (Handle, error)
	StartGuard()
	OwnPath(path files.OwnedPath)
	EndIfSilent(limit time.Duration, ended func())
	SignalReachedGuard(ctx context.Context, sig syscall.Signal) bool
	EndAll(ctx context.Context) error
	Close(ctx context.Context) error
}
