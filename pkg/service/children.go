// Package service runs the processes of a node: child processes, each with a log in the run
// directory, and services, which are probed until they are ready and watched until they end.
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

// Driver is the name of the child that runs the user's driver. Its end is the end of the job.
const Driver = "driver"

const rankOf = "rank "

// Rank returns the name of the child that is a rank of the job's world.
func Rank(rank int) string { return rankOf + strconv.Itoa(rank) }

// IsUsers reports whether a child belongs to the user's program, that is, is the driver or a rank.
// Such a child receives the signals that the daemon forwards, and ends before all other children.
func IsUsers(child string) bool { return child == Driver || strings.HasPrefix(child, rankOf) }

// Life holds the contexts that bound the activities of a node.
type Life struct {
	Run   context.Context // done at the end of the run
	Work  context.Context // done at the end of the daemon
	Hurry context.Context // done when signals leave no time for grace periods
	// Background runs task with [Life.Work], in a goroutine for which the daemon waits.
	Background func(task func(ctx context.Context))
}

// Config configures the children of a node.
type Config struct {
	Super process.Starter
	Trail *trail.Trail
	Log   *zap.Logger
	// Logged reports an error of writing, unless err is nil.
	Logged func(err error)
	Grace  time.Duration // time from SIGTERM to SIGKILL
	// Shared reports that the launcher may signal either the daemon alone or all processes of its
	// step.
	Shared bool
	// LargeLog is the size in bytes from which a log is reported as large; 0 means 1 GiB.
	LargeLog int64
}

// Children holds the children that a node has started. It is safe for concurrent use once
// [Children.Open] has returned.
type Children struct {
	cfg  Config
	life Life

	dir        *signal.Dir // this and the next three fields are set by [Children.Open]
	rank, size int
	node       string // the node's name in messages

	stopTold sync.Once // protects the message that the driver has ended a service

	mu       sync.Mutex
	all      []process.Handle     // in the order of their start; guarded by mu
	starting int                  // starts in progress of driver and ranks, which may run already; guarded by mu
	owed     []syscall.Signal     // signals for driver and ranks that arrived meanwhile; guarded by mu
	warm     *warm                // started in advance and not in use yet; guarded by mu
	abrupt   map[string]bool      // children that are killed without a grace period, by name; guarded by mu
	evidence map[string]*evidence // logs that services write themselves, by the name of the copy; guarded by mu
}

// NewChildren returns the Children of a node that has not started any yet.
func NewChildren(cfg Config, life Life) *Children {
	return &Children{cfg: cfg, life: life, abrupt: make(map[string]bool), evidence: make(map[string]*evidence)}
}

// Open sets where children log: into dir, as children of the node with index rank in a job of size
// nodes. node is the node's name in messages.
func (c *Children) Open(dir *signal.Dir, rank, size int, node string) {
	c.dir, c.rank, c.size, c.node = dir, rank, size, node
}

// Close ends all processes that would outlive this daemon, and the guard. Its error is that of
// process.Supervisor.
func (c *Children) Close(ctx context.Context) error { return c.cfg.Super.Close(ctx) }

// EndAll ends the children but not the guard, which runs until Close.
func (c *Children) EndAll(ctx context.Context) error { return c.cfg.Super.EndAll(ctx) }

// LogName returns the name of a child's log file. The head's service, the driver and each rank
// exist once per job, all other children once per node.
func (c *Children) LogName(child string) string {
	if number, is := strings.CutPrefix(child, rankOf); is {
		rank, _ := strconv.Atoi(number) // Rank has formatted the number
		return signal.LogName(signal.OfRank, rank, 0)
	}
	child = strings.ReplaceAll(child, " ", "-")
	if child == Driver || strings.HasSuffix(child, "head") {
		return child + ".log"
	}
	return signal.LogName(child, c.rank, c.size)
}

// Start starts a child that logs into the run directory. [Children.Stop] ends it. The errors are
// those of process.Supervisor.
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
		if err := log.Close(ctx); ctx.Err() == nil { // otherwise the shared file system hangs, which is reported elsewhere
			c.cfg.Logged(err)
		}
	})
	c.cfg.Trail.Event(trail.Start, trail.Fields{Child: spec.Name, PID: child.Pid()})
	return child, nil
}

// logPatience is how long the driver or a rank may be blocked by a shared file system that does not
// accept its log. Thus no output is lost if the shared file system is merely slow.
const logPatience = time.Second

// openLog returns the log of a child in the run directory. Only the driver and ranks ever wait for
// the shared file system.
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

// Launch starts a child with a log provided by the caller, and does not record the start as an
// event.
func (c *Children) Launch(ctx context.Context, spec process.Spec) (process.Handle, error) {
	c.expect(spec.Name)
	child, err := c.cfg.Super.Start(ctx, spec)
	c.adopt(spec.Name, child)
	return child, err
}

// exited records the end of a child in the event log.
func (c *Children) exited(child process.Handle) {
	c.cfg.Trail.Exited(child.Name(), child.Pid(), child.Exit().String())
}

// Unstarted returns the kind of failure for an error of Start for a program of the user.
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

// expect records that a child is being started. The driver or a rank may run, and need signals,
// before its start has returned.
func (c *Children) expect(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if IsUsers(name) {
		c.starting++
	}
}

// adopt adds a started child; child is nil if the start failed. The driver or a rank gets the
// signals that have arrived since [Children.expect].
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

// PassOn forwards a signal to the driver and the ranks of this node, unless the launcher has sent
// it to them as well. Those that are being started get it in any case, because the launcher may
// have missed them.
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
	// Forward it at once if the launcher cannot have sent it to the children. Otherwise first find out
	// whether it has.
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

// signal sends sig to a child and logs an error.
func (c *Children) signal(child process.Handle, sig syscall.Signal) {
	if err := child.Signal(sig); err != nil {
		c.cfg.Log.Warn("cannot pass a signal on", zap.String("signal", process.SignalName(sig)), zap.Error(err))
	}
}

// Disown removes a child that has ended.
func (c *Children) Disown(child process.Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(other process.Handle) bool { return other == child })
}

// find returns the child with this name; nil if there is none.
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

// ExitOf returns how a child ended. The result is false if the child was not started.
func (c *Children) ExitOf(name string) (process.Exit, bool) {
	child := c.find(name)
	if child == nil {
		return process.Exit{}, false
	}
	return child.Exit(), true
}

// DriverEnd returns how the driver of this node ended, and whether it printed nothing. It returns
// zero values if there was no driver.
func (c *Children) DriverEnd() (end signal.ChildEnd, silent bool) {
	driver := c.find(Driver)
	if driver == nil {
		return end, false
	}
	exit := driver.Exit()
	printed, _ := driver.Printed()
	return signal.ChildEnd{Exit: exit.String(), OOM: oomOf(exit)}, printed == 0
}

// Count returns the number of children.
func (c *Children) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// Stop ends the selected children in parallel: by SIGTERM and, after the grace period, SIGKILL, or
// by SIGKILL at once if the child is expendable. It returns a message for each child that could not
// be ended.
func (c *Children) Stop(grace time.Duration, which func(child string) bool) (left []string) {
	c.mu.Lock()
	children := slices.DeleteFunc(slices.Clone(c.all), func(child process.Handle) bool { return !which(child.Name()) })
	abrupt := maps.Clone(c.abrupt)
	c.mu.Unlock()
	// Stop all at the same time.
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

// Ended reports whether a child has exited.
func Ended(child process.Handle) bool { return pause.Until(child.Ended(), 0) }

// largeLog is the default of Config.LargeLog. The size of a log is not limited: a driver's output
// belongs to the user, and a log without its end does not explain a failure.
const largeLog = 1 << 30

// sizedLog is the log of a child. It calls large once when the log reaches a certain size.
type sizedLog struct {
	*signal.LogFile
	size  int64
	most  int64 // size from which the log is large
	large func(size int64)
}

// Write implements io.Writer.
func (l *sizedLog) Write(data []byte) (int, error) {
	n, err := l.LogFile.Write(data)
	before := l.size
	l.size += int64(n)
	if before < l.most && l.most <= l.size {
		l.large(l.size)
	}
	return n, err
}

// answerLag is how long after the end of its context a call may still return a result.
const answerLag = 500 * time.Millisecond

// Answered makes calls that access a disk of this node, which may hang like a shared file system.
// If ctx ends first, it abandons them, because the kernel does not interrupt them. Its error then
// wraps the cause of ctx.
func Answered[T any](ctx context.Context, calls func() (T, error)) (T, error) {
	value, err := pause.Bounded(ctx, answerLag, calls)
	if errors.Is(err, pause.ErrHangs) {
		err = fmt.Errorf("its disk does not answer: %w", context.Cause(ctx))
	}
	return value, err
}
