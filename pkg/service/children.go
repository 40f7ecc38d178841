// Package service runs what a node runs: children, each with a log in the run
// directory, and services, which are proven ready and whose deaths are told.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/journal"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// Driver is the name of the child whose end is the job's.
const Driver = "driver"

const rankOf = "rank "

// Rank is the name of the child that is a rank of the job's world.
func Rank(rank int) string { return rankOf + strconv.Itoa(rank) }

// IsUsers tells whether a child is what the job is for, the driver or a rank: it is
// given the signals that the daemon passes on, and ends before all else.
func IsUsers(child string) bool { return child == Driver || strings.HasPrefix(child, rankOf) }

// Life is how long what a node runs goes on.
type Life struct {
	Run   context.Context // over when the run is
	Work  context.Context // over when the daemon is
	Hurry context.Context // over when signals leave no time for graces
	// Background runs a task, with Work, that the daemon waits for.
	Background func(task func(ctx context.Context))
}

// Config is what the children of a node need.
type Config struct {
	Super process.Starter
	Trail *trail.Trail
	Log   *zap.Logger
	// Logged says that something could not be written, where the error is not nil.
	Logged func(err error)
	Grace  time.Duration // from TERM to KILL
	// Shared says that a launcher may signal the daemon alone or all processes of its step.
	Shared bool
	// LargeLog is from how many bytes on people are told that a log is large; 0:
	// 1 GiB.
	LargeLog int64
}

// Children are what a node has started. It is safe for concurrent use once it is
// open.
type Children struct {
	cfg  Config
	life Life

	dir        *signal.Dir // nil before Open, as is all until mu
	rank, size int
	node       string // how messages speak of it

	stopTold sync.Once // people were told that the driver has ended a service

	mu       sync.Mutex
	all      []process.Handle     // in the order of their start; guarded by mu
	starting int                  // how many of the user's are being started, and may run already; guarded by mu
	owed     []syscall.Signal     // what came for them then; guarded by mu
	warm     *warm                // started ahead of its time, and not yet in use; guarded by mu
	abrupt   map[string]bool      // which children are killed without a grace, by name; guarded by mu
	evidence map[string]*evidence // logs of services' own, by the name they are kept under; guarded by mu
}

// NewChildren returns the children of a node, of which there are none yet.
func NewChildren(cfg Config, life Life) *Children {
	return &Children{cfg: cfg, life: life, abrupt: make(map[string]bool), evidence: make(map[string]*evidence)}
}

// Open says where children log from now on: into dir, as those of a rank of a job
// of size nodes, which messages call node.
func (c *Children) Open(dir *signal.Dir, rank, size int, node string) {
	c.dir, c.rank, c.size, c.node = dir, rank, size, node
}

// Close ends the guard of what would outlive this daemon, and all that it finds.
// Its error is that of process.Supervisor.
func (c *Children) Close(ctx context.Context) error { return c.cfg.Super.Close(ctx) }

// EndAll ends the children alone: the guard goes on until Close.
func (c *Children) EndAll(ctx context.Context) error { return c.cfg.Super.EndAll(ctx) }

// LogName is where a child's output goes: the head's service, the driver and each
// rank are one a job, all else is one a node.
func (c *Children) LogName(child string) string {
	if number, is := strings.CutPrefix(child, rankOf); is {
		rank, _ := strconv.Atoi(number) // it is Rank's
		return signal.LogName(signal.OfRank, rank, 0)
	}
	child = strings.ReplaceAll(child, " ", "-")
	if child == Driver || strings.HasSuffix(child, "head") {
		return child + ".log"
	}
	return signal.LogName(child, c.rank, c.size)
}

// Start starts a child that logs into the run directory. It is stopped by Stop.
// Its errors are those of process.Supervisor.
func (c *Children) Start(ctx context.Context, spec process.Spec) (process.Handle, error) {
	log := c.openLog(spec.Name)
	spec.Log = log
	child, err := c.Launch(ctx, spec)
	if err != nil {
		_ = log.Close(ctx) // nothing was written
		return nil, err
	}
	c.life.Background(func(ctx context.Context) {
		if !pause.Await(ctx, child.Ended()) {
			return
		}
		c.exited(child)
		if !pause.Await(ctx, child.Done()) {
			return
		}
		if err := log.Close(ctx); ctx.Err() == nil { // else the share hangs, which is known
			c.cfg.Logged(err)
		}
	})
	c.cfg.Trail.Event(trail.Start, trail.Fields{Child: spec.Name, PID: child.Pid()})
	return child, nil
}

// logPatience is for how long the driver or a rank may be held up by a share that
// does not take its log: nothing that it prints is lost where the share is but slow.
const logPatience = time.Second

// openLog returns a child's log in the run directory. What is not the user's never
// waits for the share.
func (c *Children) openLog(child string) *journal.Journal {
	file := c.dir.LogFile(signal.Logs, c.LogName(child))
	log := journal.New()
	log.Eager = true
	if IsUsers(child) {
		log.Patience = logPatience
	}
	log.Dropped = func(lines int) string {
		return fmt.Sprintf("[bringupd: %d lines dropped: the log was not taking them]", lines)
	}
	log.Open(&sizedLog{LogFile: file, most: cmp.Or(c.cfg.LargeLog, largeLog), large: func(size int64) {
		c.cfg.Log.Warn("a log has become large, and all that is printed goes on to be kept there",
			zap.String("log", file.Path()), zap.Int64("bytes", size))
	}})
	return log
}

// Launch starts a child with a log of the caller's, of which no trace is left.
func (c *Children) Launch(ctx context.Context, spec process.Spec) (process.Handle, error) {
	c.expect(spec.Name)
	child, err := c.cfg.Super.Start(ctx, spec)
	c.adopt(spec.Name, child)
	return child, err
}

func (c *Children) exited(child process.Handle) {
	c.cfg.Trail.Exited(child.Name(), child.Pid(), child.Exit().String())
}

// Unstarted is the kind of failure that a program of the user's can't be started by an
// error of Start's.
func Unstarted(err error) health.Kind {
	switch {
	case errors.Is(err, process.ErrNotFound):
		return health.NotFound
	case errors.Is(err, process.ErrNotExecutable):
		return health.NotExecutable
	default:
		return health.Internal
	}
}

// expect notes that one of the user's is being started: it runs, and may ask for
// signals, before its start has returned.
func (c *Children) expect(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if IsUsers(name) {
		c.starting++
	}
}

// adopt takes a child in, nil where its start failed, and gives it, where it is the
// user's, what has come for it meanwhile.
func (c *Children) adopt(name string, child process.Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if child != nil {
		c.all = append(c.all, child)
	}
	if !IsUsers(name) {
		return
	}
	for _, sig := range c.owed {
		if child != nil {
			c.signal(child, sig)
		}
	}
	if c.starting--; c.starting == 0 {
		c.owed = nil
	}
}

// PassOn gives a signal to the user's, where they run here, unless the launcher has sent it to them, too. Those that are
// being started get it in any case: the launcher may have missed them.
func (c *Children) PassOn(sig syscall.Signal) {
	c.mu.Lock()
	if c.starting > 0 {
		c.owed = append(c.owed, sig)
	}
	users := slices.DeleteFunc(slices.Clone(c.all), func(child process.Handle) bool { return !IsUsers(child.Name()) })
	c.mu.Unlock()
	give := func() {
		for _, child := range users {
			if !Ended(child) {
				c.signal(child, sig)
			}
		}
	}
	if !c.cfg.Shared || !slices.Contains(process.Relayed, sig) {
		give()
		return
	}
	c.life.Background(func(ctx context.Context) {
		if !c.cfg.Super.Reached(ctx, sig) {
			give()
		}
	})
}

func (c *Children) signal(child process.Handle, sig syscall.Signal) {
	if err := child.Signal(sig); err != nil {
		c.cfg.Log.Warn("cannot pass a signal on", zap.String("signal", process.SignalName(sig)), zap.Error(err))
	}
}

// Disown forgets a child that has ended.
func (c *Children) Disown(child process.Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(other process.Handle) bool { return other == child })
}

// find returns the child of that name; nil if there is none.
func (c *Children) find(name string) process.Handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, child := range c.all {
		if child.Name() == name {
			return child
		}
	}
	return nil
}

// ExitOf returns how a child has ended that was started; false where it was not.
func (c *Children) ExitOf(name string) (process.Exit, bool) {
	child := c.find(name)
	if child == nil {
		return process.Exit{}, false
	}
	return child.Exit(), true
}

// DriverEnd returns how the driver that was started on this node ended, and whether it printed
// nothing. It returns zero values if there was no driver.
func (c *Children) DriverEnd() (end signal.ChildEnd, silent bool) {
	driver := c.find(Driver)
	if driver == nil {
		return end, false
	}
	exit := driver.Exit()
	printed, _ := driver.Printed()
	return signal.ChildEnd{Exit: exit.String(), OOM: oomOf(exit)}, printed == 0
}

// Count returns how many children there are.
func (c *Children) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// Stop ends those children side by side, by TERM and, after the grace, KILL, or, where
// nothing is lost by it, by KILL alone. It returns what would not die.
func (c *Children) Stop(grace time.Duration, which func(child string) bool) (left []string) {
	c.mu.Lock()
	children := slices.DeleteFunc(slices.Clone(c.all), func(child process.Handle) bool { return !which(child.Name()) })
	abrupt := maps.Clone(c.abrupt)
	c.mu.Unlock()
	problems := make([]error, len(children))
	var stops sync.WaitGroup
	for i, child := range children {
		first := syscall.SIGTERM
		if abrupt[child.Name()] {
			first = syscall.SIGKILL
		}
		stops.Go(func() {
			problems[i] = child.Stop(c.life.Hurry, grace, first).Err
			if Ended(child) {
				c.exited(child)
			}
		})
	}
	stops.Wait()
	for i, problem := range problems {
		if problem != nil {
			left = append(left, fmt.Sprintf("%s: %v", children[i].Name(), problem))
		}
	}
	return left
}

// Ended tells whether a child has exited.
func Ended(child process.Handle) bool { return pause.Until(child.Ended(), 0) }

// largeLog is from how many bytes on people are told of a child's log. It has no
// bound: what a driver prints is the user's, and an end that is cut off explains
// nothing.
const largeLog = 1 << 30

// sizedLog is a child's log that tells once when it has become large.
type sizedLog struct {
	*signal.LogFile
	size  int64
	most  int64 // from there on it is large
	large func(size int64)
}

func (l *sizedLog) Write(data []byte) (int, error) {
	n, err := l.LogFile.Write(data)
	before := l.size
	l.size += int64(n)
	if before < l.most && l.most <= l.size {
		l.large(l.size)
	}
	return n, err
}

// answerLag is how much later than its context something may answer that keeps to
// it.
const answerLag = 500 * time.Millisecond

// Answered makes calls into a disk of this node, which may hang as a share does,
// and gives them up when ctx ends: the kernel does not let go of who waits. Its
// error then wraps the cause of ctx.
func Answered[T any](ctx context.Context, calls func() (T, error)) (T, error) {
	value, err := pause.Bounded(ctx, answerLag, calls)
	if errors.Is(err, pause.ErrHangs) {
		err = fmt.Errorf("its disk does not answer: %w", context.Cause(ctx))
	}
	return value, err
}
