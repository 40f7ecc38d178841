package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

const defaultKeepLines = 20

// Spec describes a child to start and where its output goes.
type Spec struct {
	// Name is the child's name in error messages, such as "driver" or "worker".
	Name string
	// Argv is the command. It is not passed to a shell. A name without a slash is searched in the PATH
	// of Env; a relative path is resolved from Dir.
	Argv []string
	// Env is the complete environment; the mark of the family is added to it. If a name occurs twice,
	// the last entry counts.
	Env []string
	// Dir is the working directory; if empty, the daemon's.
	Dir string
	// Stdin is the standard input; if nil, /dev/null.
	Stdin *os.File
	// Files are additional open files, from descriptor 3 on. The caller closes its own copies.
	Files []*os.File
	// Stdout and Stderr receive the output byte for byte, each from a goroutine of its own. A writer
	// that blocks blocks the child; if a writer fails with EPIPE, the child's pipe is closed, unless
	// Ending is done or becomes so soon after. If nil, the output is not passed on.
	Stdout, Stderr io.Writer
	// Ending is closed when the run is being ended. The signal that ends it may also have ended the
	// reader of the output, and the child should not die of that while it saves its work.
	Ending <-chan struct{}
	// Log receives the lines of both streams, one or more per Write; lines over 64 KiB come in pieces.
	// Its Write may block for a bounded time only and must not retain the slice. Nil means no log. Log
	// is not used after Done, unless Stdout or Stderr hang: see Exit.Err.
	Log io.Writer
	// KeepLines is the number of last lines that LastLines returns: 20 if it is 0, none if it is
	// negative.
	KeepLines int
	// Prepare is called on the thread that forks the child, right before the fork. It changes
	// properties that the child inherits, such as CPU affinity and memory policy. The returned undo is
	// called right after the fork. An error fails the start. Nil changes nothing.
	Prepare func() (undo func(), err error)
}

// Child is one started child and everything known about it. Its methods may be called from any
// goroutine.
type Child struct {
	spec           Spec
	supervisor     *Supervisor
	out            *childOutput
	process        *os.Process
	oomKillsBefore []int         // OOM kills in the daemon's memory cgroup, counted before the start
	reaped         chan struct{} // closed by [Child.superviseUntilGone] when the child has been reaped
	// closed by [Child.superviseUntilGone] when the output is finished too
	done           chan struct{}
	familyGone     context.Context
	markFamilyGone context.CancelFunc // closes [Child.familyGone]: no process of the family is left
	activeStops    atomic.Int32       // the number of Stop calls in progress

	mu sync.Mutex
	familyIdentity
	stopRequests
	exit Exit
}

// familyIdentity holds the data by which a child's family is recognised. Fields that change after
// the start are guarded by Child.mu.
type familyIdentity struct {
	mark  string
	pid   int
	start uint64
	// /proc hides the child: start is the earliest possible start time
	hidden bool
	// see [familySession.lastOwned]; 0 until the child is reaped. From then on the kernel may reuse
	// its PID and process group ID
	reapedAt uint64
}

// stopRequests holds the requests made to a child. It is guarded by Child.mu.
type stopRequests struct {
	stopping     bool // Stop was called while the child ran
	sentSignals  map[syscall.Signal]bool
	sentRequests map[syscall.Signal]signalRequest
}

func newChild(owner *Supervisor, spec Spec, mark string) *Child {
	c := &Child{
		spec:           spec,
		supervisor:     owner,
		out:            newChildOutput(spec),
		reaped:         make(chan struct{}),
		done:           make(chan struct{}),
		familyIdentity: familyIdentity{mark: mark},
		exit:           Exit{Code: -1},
	}
	c.sentSignals, c.sentRequests = make(map[syscall.Signal]bool), make(map[syscall.Signal]signalRequest)
	c.familyGone, c.markFamilyGone = context.WithCancel(context.Background())
	return c
}

// startProcess finds the program, forks the child and reports it to the guard. It runs on a thread
// of [forkThreads].
func (c *Child) startProcess(ctx context.Context) error {
	env := withMark(c.spec.Env, c.mark, c.supervisor.jobVariables)
	file, err := c.supervisor.resolve(c.spec.Argv[0], c.spec.Dir, env)
	if err != nil {
		return err
	}
	// The pipes. The child's ends are closed here after the fork.
	ends, err := c.out.openPipes()
	defer ends[0].Close()
	defer ends[1].Close()
	if err != nil {
		return err
	}
	// The state before the child exists: OOM kills so far, and a guard to end the child if the daemon
	// dies.
	c.oomKillsBefore = c.supervisor.findMemory().KillCounts()
	c.supervisor.guardLink.awaitFirst(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The child gets a new session, and SIGKILL when this thread ends.
	cmd := &exec.Cmd{
		Args: c.spec.Argv, Env: env, Dir: c.spec.Dir, ExtraFiles: c.spec.Files,
		Stdout: ends[0], Stderr: ends[1],
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if c.spec.Stdin != nil {
		cmd.Stdin = c.spec.Stdin
	}
	c.start = bootTicks()
	if err := c.forkPrepared(file, cmd); err != nil {
		return err
	}
	c.process, c.pid = cmd.Process, cmd.Process.Pid
	recordFork(c.pid)
	return c.registerStarted()
}

// forkPrepared starts the child on the current thread, between Spec.Prepare and its undo function.
func (c *Child) forkPrepared(file Program, cmd *exec.Cmd) error {
	if c.spec.Prepare != nil {
		undo, err := c.spec.Prepare()
		if err != nil {
			return err
		}
		defer undo()
	}
	return forkMarked(c.mark, func() error { return file.Start(cmd) })
}

func (c *Child) registerStarted() error {
	stat, err := readStat(c.pid)
	// The process exists even if it has ended, because it has not been reaped. But hidepid hides
	// processes that run set-uid programs.
	c.hidden = errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission)
	if err != nil && !c.hidden {
		_ = unix.Kill(-c.pid, unix.SIGKILL)
		reapExit(c.process)
		recordReap(c.pid)
		return fmt.Errorf("cannot inspect it: %v", err)
	}
	if !c.hidden {
		c.start = stat.start
	}
	c.supervisor.registerChild(c)
	for _, stream := range c.out.streams {
		go stream.readUntilEnd()
	}
	go c.superviseUntilGone()
	return nil
}

// superviseUntilGone reaps the child, finishes its output and closes the channels.
func (c *Child) superviseUntilGone() {
	defer c.supervisor.wg.Done()
	c.reapAndRecord()
	close(c.reaped)
	c.out.interruptReaders(false)
	c.finishOutput()
	close(c.done)
	// Members of the family that are still alive may print. Their output is discarded, but the pipe
	// stays open, because a closed pipe would kill them.
	c.out.closeWhenGone(c.familyGone.Done())
}

// finishOutput waits for the end of the output. If other members of the family keep it open, it
// gives up after a while, but not while a Stop is waiting for those members.
func (c *Child) finishOutput() {
	limits := c.supervisor.timeouts
	for !ctxutil.AwaitDoneFor(c.out.delivered.open, limits.outputDrain) {
		if c.activeStops.Load() == 0 {
			break
		}
	}
	err := c.out.finishReaders(limits.outputStall)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exit.Err = errors.Join(c.exit.Err, err)
}

func (c *Child) reapAndRecord() {
	awaitExit(c.pid)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reapedAt = bootTicks()
	c.exit = reapExit(c.process)
	recordReap(c.pid)
	c.exit.Requested = isRequestedExit(c.exit, c.stopping, c.sentSignals)
	if c.exit.ShellStatus() != 0 && !c.exit.Requested {
		c.exit.OOM = c.supervisor.findMemory().KillsSince(c.oomKillsBefore, c.exit.wasKilled())
	}
	c.supervisor.guardLink.sendLine(addLine(c.ownSession()))
}

// Name returns Spec.Name.
func (c *Child) Name() string { return c.spec.Name }

// PID returns the child's process ID, which is also the ID of its process group and session.
func (c *Child) PID() int { return c.pid }

// Ended returns a channel that is closed when the child has ended, even if other processes keep its
// output open. From then on Exit is final, except for Exit.Err.
func (c *Child) Ended() <-chan struct{} { return c.reaped }

// Done returns a channel that is closed when the child has ended and its output has been passed on
// and logged, or the time limits for that are over: one second if another process keeps the pipe
// open, and ten seconds without progress if a writer does not accept the output.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exit returns how the child ended. It is valid once Ended is closed, and complete once Done is
// closed.
func (c *Child) Exit() Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exit
}

// LastLines returns the last lines of both streams, the newest last: at most Spec.KeepLines, each
// cut to 1 KiB, including a line that is not complete yet. Once Ended is closed, everything that the
// child printed is included: LastLines waits for it, but at most one second.
func (c *Child) LastLines() []string {
	c.awaitSettled()
	return c.out.lastLines()
}

// RecentLines returns the last lines of standard output and of standard error, at most 200 of each;
// none if Spec.KeepLines is negative. Like LastLines, it waits for what the child printed last.
func (c *Child) RecentLines() (out, err []string) {
	c.awaitSettled()
	return c.out.recentLines()
}

// awaitSettled waits until everything that a child printed before its end has been read, at most
// one second.
func (c *Child) awaitSettled() {
	if ctxutil.AwaitDoneFor(c.reaped, 0) {
		ctxutil.AwaitDoneFor(c.out.settled.open, c.supervisor.timeouts.outputDrain)
	}
}

// OutputStats returns how many bytes the child has printed, and how long ago the last of them
// arrived. Both are 0 if it has printed nothing.
func (c *Child) OutputStats() (bytes int64, ago time.Duration) {
	if latest := c.out.lastPrinted.Load(); latest != 0 {
		ago = time.Since(timeOrigin) - time.Duration(latest)
	}
	return c.out.bytesPrinted.Load(), ago
}

// Signal sends sig to the child's process group, followed by SIGCONT if sig is a termination
// signal. The error wraps os.ErrProcessDone if the child has ended.
func (c *Child) Signal(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasEnded() {
		return fmt.Errorf("cannot send %s to %s: %w", SignalName(sig), c.spec.Name, os.ErrProcessDone)
	}
	if err := c.signalGroup(sig); err != nil {
		return fmt.Errorf("cannot send %s to %s (pid %d): %v", SignalName(sig), c.spec.Name, c.pid, err)
	}
	return nil
}

// hasEnded reports whether the child has ended, reaped or not. The caller holds c.mu. It prevents
// an end that preceded the daemon's signal from being taken for a requested one.
func (c *Child) hasEnded() bool {
	if c.reapedAt != 0 {
		return true
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, c.pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}

// signalGroup sends sig to the process group of a child that has not been reaped. The caller holds
// c.mu.
func (c *Child) signalGroup(sig syscall.Signal) error {
	c.sentSignals[sig] = true
	err := unix.Kill(-c.pid, sig)
	if err == nil && isTermination(sig) {
		err = unix.Kill(-c.pid, unix.SIGCONT)
	}
	return err
}

// OwnsProcess reports whether the process pid is alive and a member of the child's family (see the
// package documentation).
func (c *Child) OwnsProcess(pid int) bool {
	// processes that cannot be inspected are not members
	all, _ := c.supervisor.scanner.scanProcesses()
	family := newFamilySweep(c.currentCriteria(), c.supervisor.scanner)
	alive := family.criteria.findMembers(all)
	isMember := func(p procStat) bool { return p.pid == pid }
	if slices.ContainsFunc(alive, isMember) {
		return true
	}
	// Reading environments may take long.
	return family.readUnknownMarks(all, alive) && slices.ContainsFunc(family.criteria.findMembers(all), isMember)
}

func (c *Child) currentCriteria() familyCriteria {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.ownSession()
	if c.hidden && c.reapedAt == 0 {
		// the child has dropped its privileges and is visible now
		if stat, err := readStat(c.pid); err == nil {
			own.start = stat.start
		}
	}
	return familyCriteria{
		mark: c.mark, notBefore: c.start, sessions: []familySession{own}, ownPID: os.Getpid(),
	}
}

func (k *familyIdentity) ownSession() familySession {
	return familySession{sid: k.pid, start: k.start, lastOwned: k.reapedAt}
}

// Stop ends the child and its family, and returns how the child ended. First the child's process
// group gets the signal given by the parameter first. Once the child has ended, the rest of the
// family gets it too. Processes that are left after the grace period get SIGKILL. Stop returns when
// no process is left and the output is finished as for Done. It returns at the latest three seconds
// after SIGKILL; Exit.Err then names the processes that could not be ended. If ctx ends, the grace
// period ends, and Stop waits for a blocked output only for a bounded time.
//
// Stop may be called at any time, also after the child's own end, to end processes that it left
// behind. It may be called several times: later calls do not send the same signal again, but may
// have a shorter grace period.
func (c *Child) Stop(ctx context.Context, grace time.Duration, first syscall.Signal) Exit {
	if err := c.StopProcesses(ctx, grace, first); err != nil {
		return c.exitWith(err)
	}
	if ctxutil.AwaitDone(ctx, c.done) || ctxutil.AwaitDoneFor(c.done, 2*c.supervisor.timeouts.outputDrain) {
		return c.Exit()
	}
	return c.exitWith(errors.New("cannot pass on its last output in time"))
}

// StopProcesses ends the child and its family as Stop does, but does not wait for the output, which
// may be blocked. If it returns nil, the child's exit is known.
func (c *Child) StopProcesses(ctx context.Context, grace time.Duration, first syscall.Signal) error {
	if c.familyGone.Err() != nil {
		return nil
	}
	if err := c.endFamily(ctx, grace, first); err != nil {
		return fmt.Errorf("cannot end all of %s: %w", c.spec.Name, err)
	}
	c.markFamilyGone()
	c.supervisor.unregisterChild(c)
	return nil
}

func (c *Child) exitWith(err error) Exit {
	exit := c.Exit()
	exit.Err = errors.Join(err, exit.Err)
	return exit
}

// endFamily ends the child and its family. It returns nil when all of them have ended.
func (c *Child) endFamily(ctx context.Context, grace time.Duration, first syscall.Signal) error {
	graceful, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	// While a Stop is in progress, the output pipes are read: a process that saves its work during the
	// grace period, after the child has ended, must not die of a closed pipe.
	c.activeStops.Add(1)
	defer c.activeStops.Add(-1)
	// Send the first signal to the process group and, when the child has ended, to the rest.
	asked := c.requestEnd(first)
	if graceful.Err() == nil && ctxutil.AwaitDone(graceful, c.reaped) {
		polite := newFamilySweep(c.currentCriteria(), c.supervisor.scanner)
		polite.hasNoDescendants = c.supervisor.hasNoOrphans
		if first != unix.SIGKILL {
			polite.selects = asked.mustReceive
		}
		if left, err := polite.signalUntilGone(graceful, first); err == nil && len(left) == 0 {
			return nil
		}
	}
	// The grace period is over: kill everything that is left.
	c.killGroup()
	end, cancelEnd := context.WithTimeout(context.Background(), c.supervisor.timeouts.killWait)
	defer cancelEnd()
	// The sweep runs even if the child has not ended yet: its descendants are killed at the same time.
	s := newFamilySweep(c.currentCriteria(), c.supervisor.scanner)
	left, err := s.signalUntilGone(end, unix.SIGKILL)
	if err := s.remainingError(left, err); err != nil {
		return err
	}
	if !ctxutil.AwaitDone(end, c.reaped) {
		return fmt.Errorf("cannot reap pid %d", c.pid)
	}
	return nil
}

// signalRequest records how Stop's first signal was sent.
type signalRequest struct {
	sentAt uint64 // time of sending, in boot ticks
	group  int    // process group that received it then; 0: none, because the child had ended
}

// mustReceive reports whether p must still get the signal. A process that started after the request
// does not get it: it is part of the reaction to it, such as the copy of the last checkpoint that a
// trap handler makes. Nor does a process that got it with the group: many programs interpret a
// second signal as impatience.
func (r signalRequest) mustReceive(p procStat) bool {
	return p.start <= r.sentAt && p.pgid != r.group
}

// requestEnd sends first to the process group, unless the child has ended or an earlier call has
// sent it. It returns how it was sent.
func (c *Child) requestEnd(first syscall.Signal) signalRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	ended := c.hasEnded()
	c.stopping = c.stopping || !ended
	if before, found := c.sentRequests[first]; found {
		return before
	}
	r := signalRequest{sentAt: bootTicks()}
	if !ended {
		r.group = c.pid
		_ = c.signalGroup(first) // the sweep reports errors
	}
	c.sentRequests[first] = r
	return r
}

// killGroup sends SIGKILL to the whole process group at once, before a process can react to the end
// of another.
func (c *Child) killGroup() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reapedAt == 0 {
		_ = c.signalGroup(unix.SIGKILL) // the sweep reports errors
	}
}
