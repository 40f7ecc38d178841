// Package service runs the processes of a node: child processes, each with a log in the run
// directory, and services, which are probed until they are ready and watched until they end.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// DriverName is the name of the child that runs the user's driver. Its end is the end of the job.
const DriverName = "driver"

const rankPrefix = "rank "

// RankName returns the name of the child that is a rank of the job's world.
func RankName(node int) string { return rankPrefix + strconv.Itoa(node) }

// IsUserProgram reports whether a child belongs to the user's program, that is, is the driver or a
// rank. Such a child receives the signals that the daemon forwards, and ends before all other
// children.
func IsUserProgram(child string) bool {
	return child == DriverName || strings.HasPrefix(child, rankPrefix)
}

// Contexts holds the contexts that bound the activities of a node.
type Contexts struct {
	Run      context.Context // done at the end of the run
	Teardown context.Context // done at the end of the daemon
	Grace    context.Context // done when signals leave no time for grace periods
	// Background runs task with [Contexts.Teardown], in a goroutine for which the daemon waits.
	Background func(task func(ctx context.Context))
}

// Config configures the children of a node.
type Config struct {
	Starter      process.Starter
	EventLog     *eventlog.EventLog
	Log          *zap.Logger
	OnWriteError func(err error) // reports an error of writing, unless err is nil
	// OnExit is called when a service or another program of [Children.StartProgram] has ended that
	// may not, before it is known whether that is a failure; nil: not needed. The returned function is
	// called if it is none.
	OnExit      func() (explained func())
	GracePeriod time.Duration // time from SIGTERM to SIGKILL
	Steps       StepObserver  // watches the progress of the programs of the user; nil if nothing does
	// SharedSignals reports that the launcher may signal either the daemon alone or all processes of
	// its step.
	SharedSignals bool
}

// StepObserver observes the progress of the programs of the user.
type StepObserver interface {
	// WatchLines returns a function that is called with the lines of a child's output, or nil if they
	// are not needed. The function must not retain them.
	WatchLines(child string) func(lines []byte)
	// ReportStep records a step that a rank has reported itself.
	ReportStep(rank int, step float64)
	// LastStep returns the newest step of a child. known is false if there is none.
	LastStep(child string) (step float64, known bool)
}

type watchedLog struct {
	io.Writer
	watch func(lines []byte)
}

// Write passes the lines to the observer and to the log.
func (l watchedLog) Write(lines []byte) (int, error) {
	l.watch(lines)
	return l.Writer.Write(lines)
}

// ReportStep records a step that a rank of this node has reported itself.
func (c *Children) ReportStep(rank int, step float64) {
	if c.cfg.Steps != nil {
		c.cfg.Steps.ReportStep(rank, step)
	}
}

// Children holds the children that a node has started. It is safe for concurrent use once
// [Children.OpenLogs] has returned.
type Children struct {
	cfg      Config
	contexts Contexts

	dir             *signal.Dir // this and the next three fields are set by [Children.OpenLogs]
	nodeIndex, size int
	nodeName        string // the node's name in messages

	stopLogged sync.Once // protects the message that the driver has ended a service

	mu       sync.Mutex
	started  []process.Handle // in the order of their start; guarded by mu
	starting int              // starts in progress of driver and ranks, which may run already; guarded by mu
	// signals for driver and ranks that arrived meanwhile; guarded by mu
	pendingSignals []syscall.Signal
	passedOn       []syscall.Signal   // all signals that driver and ranks have got; guarded by mu
	prestarted     *prestartedProcess // started in advance and not in use yet; guarded by mu
	// what does not follow from the names of children, by name; guarded by mu
	traits map[string]childTraits
	// logs that services write themselves, by the name of the copy; guarded by mu
	serviceLogs map[string]framework.ServiceLogs
}

// childTraits are properties of a child that do not follow from its name.
type childTraits struct {
	logName       string // its log file's; empty if it follows from the name
	isUserProgram bool   // it is a program of the user, besides the driver and ranks
	socket        string // see [Children.SetSocket]
	silentError   string // see [Children.SetSilentError]
	needsNoGrace  bool   // it is killed without a grace period
}

// NewChildren returns the Children of a node that has not started any yet.
func NewChildren(cfg Config, life Contexts) *Children {
	return &Children{cfg: cfg, contexts: life,
		traits: make(map[string]childTraits), serviceLogs: make(map[string]framework.ServiceLogs)}
}

// OpenLogs sets where children log: into dir, as children of the node with index nodeIndex in a job
// of size nodes. node is the node's name in messages.
func (c *Children) OpenLogs(dir *signal.Dir, nodeIndex, size int, node string) {
	c.dir, c.nodeIndex, c.size, c.nodeName = dir, nodeIndex, size, node
}

// Close ends all processes that would outlive this daemon, and the guard. Its error is that of
// process.Supervisor.
func (c *Children) Close(ctx context.Context) error { return c.cfg.Starter.Close(ctx) }

// EndIfSilent calls [process.Supervisor.EndIfSilent].
func (c *Children) EndIfSilent(limit time.Duration, ended func()) {
	c.cfg.Starter.EndIfSilent(limit, ended)
}

// EndAll ends the children but not the guard, which runs until Close.
func (c *Children) EndAll(ctx context.Context) error { return c.cfg.Starter.EndAll(ctx) }

// LogName returns the name of a child's log file. The head's service, the driver and each rank
// exist once per job, all other children once per node.
func (c *Children) LogName(child string) string {
	c.mu.Lock()
	name := c.traits[child].logName
	c.mu.Unlock()
	if name != "" {
		return name
	}
	if number, is := strings.CutPrefix(child, rankPrefix); is {
		node, _ := strconv.Atoi(number) // Rank has formatted the number
		return signal.RankLogName(node, 0)
	}
	child = signal.LogPrefix(child)
	if child == DriverName || strings.HasSuffix(child, "head") {
		return child + ".log"
	}
	return signal.LogName(child, c.nodeIndex, c.size)
}

// SetLogName sets the name of the log file of a child, in place of the one that follows from its
// name.
func (c *Children) SetLogName(child, file string) {
	c.setTrait(child, func(t *childTraits) { t.logName = file })
}

// SetUserProgram makes a child that is about to start a program of the user, such as a process of a
// primary role: see [IsUserProgram].
func (c *Children) SetUserProgram(child string) {
	c.setTrait(child, func(t *childTraits) { t.isUserProgram = true })
}

// SetSocket sets the socket by which a child, a rank of a role, exchanges data with the others.
func (c *Children) SetSocket(child, path string) {
	c.setTrait(child, func(t *childTraits) { t.socket = path })
}

// SetSilentError sets the error with which a child has fallen silent, for the descriptions of what
// it does; an empty line means that it has not.
func (c *Children) SetSilentError(child, errorLine string) {
	c.setTrait(child, func(t *childTraits) { t.silentError = errorLine })
}

func (c *Children) setTrait(child string, set func(t *childTraits)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	traits := c.traits[child]
	set(&traits)
	c.traits[child] = traits
}

// isUserProgram reports whether a child is a program of the user. mu must be held.
func (c *Children) isUserProgram(child string) bool {
	return IsUserProgram(child) || c.traits[child].isUserProgram
}

// Start starts a child that logs into the run directory. [Children.StopSelected] ends it. The
// errors are those of process.Supervisor.
func (c *Children) Start(ctx context.Context, spec process.Spec) (process.Handle, error) {
	log := c.openLog(spec.Name)
	spec.Log, spec.Ending = log, c.contexts.Run.Done()
	c.mu.Lock()
	isUser := c.isUserProgram(spec.Name)
	c.mu.Unlock()
	if c.cfg.Steps != nil && isUser {
		if watch := c.cfg.Steps.WatchLines(spec.Name); watch != nil {
			spec.Log = watchedLog{log, watch}
		}
	}
	child, err := c.StartWithLog(ctx, spec)
	if err != nil {
		_ = log.Close(ctx) // nothing was written
		return nil, err
	}
	c.contexts.Background(func(ctx context.Context) {
		if !ctxutil.AwaitDone(ctx, child.Ended()) {
			return
		}
		c.logExit(child)
		if !ctxutil.AwaitDone(ctx, child.Done()) {
			return
		}
		// otherwise the shared file system hangs, which is reported elsewhere
		if err := log.Close(ctx); ctx.Err() == nil {
			c.cfg.OnWriteError(err)
		}
	})
	c.cfg.EventLog.WriteEvent(eventlog.ChildStarted,
		eventlog.Fields{ObjectFields: eventlog.ObjectFields{Child: spec.Name, PID: child.PID()}})
	return child, nil
}

// logBlockTimeout is how long a program of the user may be blocked by a shared file system that does
// not accept its log. Thus no output is lost if the shared file system is merely slow.
const logBlockTimeout = time.Second

// openLog returns the log of a child in the run directory. Only programs of the user ever wait for
// the shared file system.
func (c *Children) openLog(child string) *files.Journal {
	log := files.NewJournal()
	log.WriteImmediately = true
	c.mu.Lock()
	if c.isUserProgram(child) {
		log.StallTimeout = logBlockTimeout
	}
	c.mu.Unlock()
	log.DroppedLine = func(lines int) string {
		return fmt.Sprintf("[bringupd: %d lines dropped: the log could not be written in time]", lines)
	}
	log.Open(c.dir.NewLogFile(signal.LogsDir, c.LogName(child)))
	return log
}

// StartWithLog starts a child with a log provided by the caller, and does not record the start as
// an event.
func (c *Children) StartWithLog(ctx context.Context, spec process.Spec) (process.Handle, error) {
	c.noteStarting(spec.Name)
	child, err := c.cfg.Starter.Start(ctx, spec)
	c.addStarted(spec.Name, child)
	return child, err
}

func (c *Children) logExit(child process.Handle) {
	c.cfg.EventLog.LogExit(child.Name(), child.PID(), child.Exit().String())
}

// StartFailureKind returns the kind of failure for an error of Start for a program of the user.
func StartFailureKind(err error) health.Kind {
	switch {
	case errors.Is(err, process.ErrNotFound):
		return health.NotFound
	case errors.Is(err, process.ErrNotExecutable):
		return health.NotExecutable
	default:
		return health.Internal
	}
}

// startReason returns why a child could not be started, without its name, which the message has
// already.
func startReason(name string, err error) string {
	return strings.TrimPrefix(err.Error(), "cannot start "+name+": ")
}

// DriverStartFailure returns the failure that the driver cannot be started on a node because of err.
// It returns nil if err is nil.
func DriverStartFailure(node string, err error) error {
	if err == nil {
		return nil
	}
	return health.NewFailure(StartFailureKind(err), "cannot start the driver on %s: %s",
		node, startReason("driver", err))
}

// noteStarting records that a child is being started. The driver or a rank may run, and need
// signals, before its start has returned.
func (c *Children) noteStarting(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isUserProgram(name) {
		c.starting++
	}
}

func (c *Children) isStarting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.starting > 0
}

// addStarted adds a started child; child is nil if the start failed. The driver or a rank gets the
// signals that have arrived since [Children.noteStarting].
func (c *Children) addStarted(name string, child process.Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if child != nil {
		c.started = append(c.started, child)
	}
	if !c.isUserProgram(name) {
		return
	}
	for _, sig := range c.pendingSignals {
		if child != nil {
			c.sendSignal(child, sig)
		}
	}
	if c.starting--; c.starting == 0 {
		c.pendingSignals = nil
	}
}

// ForwardSignal forwards a signal to the driver and the ranks of this node, unless the launcher has
// sent it to them as well. Those that are being started get it in any case, because the launcher
// may have missed them.
func (c *Children) ForwardSignal(sig syscall.Signal) {
	c.mu.Lock()
	if !slices.Contains(c.passedOn, sig) {
		c.passedOn = append(c.passedOn, sig)
	}
	if c.starting > 0 {
		c.pendingSignals = append(c.pendingSignals, sig)
	}
	users := slices.DeleteFunc(slices.Clone(c.started),
		func(child process.Handle) bool { return !c.isUserProgram(child.Name()) })
	c.mu.Unlock()
	give := func() {
		for _, child := range users {
			if !HasEnded(child) {
				c.sendSignal(child, sig)
			}
		}
	}
	// Forward it at once if the launcher cannot have sent it to the children. Otherwise first find out
	// whether it has.
	if !c.cfg.SharedSignals || !slices.Contains(process.ForwardedSignals, sig) {
		give()
		return
	}
	c.contexts.Background(func(ctx context.Context) {
		if !c.cfg.Starter.SignalReachedGuard(ctx, sig) {
			give()
		}
	})
}

// EndedBySignal reports whether a signal has ended the driver or a rank that the job got, and that
// was passed on. If so, it returns that as a clause that follows how the child has ended.
func (c *Children) EndedBySignal(child process.Handle) (clause string, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := syscall.Signal(child.Exit().ShellStatus() - 128)
	if !c.isUserProgram(child.Name()) || !slices.Contains(c.passedOn, by) {
		return "", false
	}
	clause = ", a signal that " + c.nodeName + " got and passed on"
	if by == syscall.SIGUSR1 || by == syscall.SIGUSR2 { // they warn, and are not meant to end anything
		clause += ": a warning, such as that of --signal, for which the program had no handler yet"
	}
	return clause, true
}

func (c *Children) sendSignal(child process.Handle, sig syscall.Signal) {
	if err := child.Signal(sig); err != nil {
		c.cfg.Log.Warn("cannot pass a signal on", zap.String("signal", process.SignalName(sig)), zap.Error(err))
	}
}

// RemoveChild removes a child that has ended.
func (c *Children) RemoveChild(child process.Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = slices.DeleteFunc(c.started, func(other process.Handle) bool { return other == child })
}

// RemoveSelected removes the selected children, which have ended.
func (c *Children) RemoveSelected(which func(child string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = slices.DeleteFunc(c.started, func(child process.Handle) bool { return which(child.Name()) })
}

// FindChild returns the newest child with this name, which may have ended; nil if there is none.
func (c *Children) FindChild(name string) process.Handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, child := range slices.Backward(c.started) {
		if child.Name() == name {
			return child
		}
	}
	return nil
}

// StoppedCode returns the exit code of the newest child with this name. ok is false if it has not
// ended, or had ended before it was told to.
func (c *Children) StoppedCode(name string) (code int, ok bool) {
	child := c.FindChild(name)
	if child == nil || !HasEnded(child) || !child.Exit().Requested {
		return 0, false
	}
	return child.Exit().ShellStatus(), true
}

// DriverEnd returns how the driver of this node ended, and its last lines, nil if it printed
// nothing. It returns zero values if there was no driver.
func (c *Children) DriverEnd() (end record.ChildExit, lines []string) {
	driver := c.FindChild(DriverName)
	if driver == nil {
		return end, nil
	}
	exit := driver.Exit()
	if printed, _ := driver.OutputStats(); printed > 0 {
		lines = append([]string{}, driver.LastLines()...)
	}
	return record.ChildExit{ExitText: exit.String(), OOM: exit.OOM, ErrorLine: ErrorLine(driver)}, lines
}

// Count returns the number of children.
func (c *Children) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.started)
}

// StopSelected ends the selected children in parallel: by SIGTERM and, after the grace period,
// SIGKILL, or by SIGKILL at once if the child needs no grace period. It returns a message for each child
// that could not be ended.
func (c *Children) StopSelected(grace time.Duration, which func(child string) bool) (left []string) {
	c.mu.Lock()
	children := slices.DeleteFunc(slices.Clone(c.started),
		func(child process.Handle) bool { return !which(child.Name()) })
	traits := maps.Clone(c.traits)
	c.mu.Unlock()
	problems := make([]error, len(children))
	var stops sync.WaitGroup
	for i, child := range children {
		first := syscall.SIGTERM
		if traits[child.Name()].needsNoGrace {
			first = syscall.SIGKILL
		}
		stops.Go(func() {
			problems[i] = child.Stop(c.contexts.Grace, grace, first).Err
			if HasEnded(child) {
				c.logExit(child)
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

// HasEnded reports whether a child has exited.
func HasEnded(child process.Handle) bool { return ctxutil.AwaitDoneFor(child.Ended(), 0) }

// boundedCallGrace is how long after the end of its context a call may still return a result.
const boundedCallGrace = 500 * time.Millisecond

// CallBounded makes calls that access a disk of this node, which may hang like a shared file
// system. If ctx ends first, it abandons them, because the kernel does not interrupt them. Its
// error then wraps the cause of ctx.
func CallBounded[T any](ctx context.Context, calls func() (T, error)) (T, error) {
	value, err := ctxutil.CallBounded(ctx, boundedCallGrace, calls)
	if errors.Is(err, ctxutil.ErrAbandoned) {
		err = fmt.Errorf("its disk does not respond: %w", context.Cause(ctx))
	}
	return value, err
}

// DescribeChildren returns an environment variable that describes the children to the program that
// collects stack dumps.
func (c *Children) DescribeChildren() []string {
	c.mu.Lock()
	all, traits := slices.Clone(c.started), maps.Clone(c.traits)
	c.mu.Unlock()
	var children []stackdump.Child
	for _, child := range all {
		own := traits[child.Name()]
		if child.Name() == exec.ChildName || HasEnded(child) && !IsUserProgram(child.Name()) && !own.isUserProgram {
			continue // not a child of the job, or ended without anything waiting for it
		}
		bytes, ago := child.OutputStats()
		one := stackdump.Child{Name: child.Name(), PID: child.PID(), Socket: own.socket,
			Output: stackdump.Output{Bytes: bytes, AgoS: ago.Seconds(), Error: own.silentError}}
		if HasEnded(child) {
			one.Ended = child.Exit().String()
		}
		if c.cfg.Steps != nil {
			if step, known := c.cfg.Steps.LastStep(child.Name()); known {
				one.Step = &step
			}
		}
		children = append(children, one)
	}
	return []string{stackdump.FormatChildren(children)}
}
