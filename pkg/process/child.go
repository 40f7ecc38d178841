package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pause"
)

// defaultKeepLines is Spec.KeepLines where it is 0.
const defaultKeepLines = 20

// Spec says what to start and where its output goes.
type Spec struct {
	// Name is what errors call it: "driver", "worker".
	Name string
	// Argv is the command; no shell reads it. A name without a slash is looked for in the PATH of Env, one with a slash
	// from Dir.
	Argv []string
	// Env is the whole environment, to which the mark of its family is added. Of a name that is there twice, the last
	// one counts.
	Env []string
	// Dir is its working directory; empty: the daemon's.
	Dir string
	// Stdin is its standard input; nil: /dev/null.
	Stdin *os.File
	// Files are its open files from descriptor 3 on. The caller closes its own.
	Files []*os.File
	// Stdout and Stderr get its output byte for byte, each from a goroutine of its own. A writer that does not take it
	// holds the child up; one that fails with EPIPE closes the child's pipe. nil: it is not passed on.
	Stdout, Stderr io.Writer
	// Log gets the lines of both streams, some a Write, and of one over 64 KiB pieces. It may block for a bounded
	// time alone, and must not keep what it is given. nil: no log. It is not used after Done, unless Stdout or Stderr hang: see Exit.Err.
	Log io.Writer
	// KeepLines is how many last lines LastLines returns; 0: 20, negative: none.
	KeepLines int
	// Prepare changes the thread that forks the child, right before it does, in what a child inherits: the CPUs that it
	// may run on, and where its memory comes from. What it returns undoes that right after. Its error is that of the
	// start. nil: nothing is changed.
	Prepare func() (undo func(), err error)
}

// Child is one child that was started, and all that came of it. Its methods may be called from any goroutine.
type Child struct {
	spec    Spec
	owner   *Supervisor
	out     *output
	process *os.Process
	kills   []int         // of the daemon's memory cgroup, before the child ran
	ended   chan struct{} // closed by run when the child has been reaped
	done    chan struct{} // closed by run when its output is finished too
	swept   context.Context
	sweep   context.CancelFunc // ends swept: nothing of its family is left
	stops   atomic.Int32       // how many Stops are asking and waiting

	mu sync.Mutex
	kinship
	demands
	exit Exit
}

// kinship is what a child's family is known by. What changes after the start is guarded by Child.mu.
type kinship struct {
	mark   string
	pid    int
	start  uint64
	veiled bool         // /proc did not show it: start is when it can have started first
	gone   uint64       // see root; 0 before it was reaped. Then its number, and its group's, may be another's
	known  map[int]root // the sessions that its family began, as the last census found them
}

// demands is what was asked of a child, guarded by Child.mu.
type demands struct {
	stopping bool // Stop was called while it ran
	sent     map[syscall.Signal]bool
	asked    map[syscall.Signal]request
}

func newChild(owner *Supervisor, spec Spec, mark string) *Child {
	c := &Child{
		spec:    spec,
		owner:   owner,
		out:     newOutput(spec),
		ended:   make(chan struct{}),
		done:    make(chan struct{}),
		kinship: kinship{mark: mark},
		demands: demands{sent: make(map[syscall.Signal]bool), asked: make(map[syscall.Signal]request)},
		exit:    Exit{Code: -1},
	}
	c.swept, c.sweep = context.WithCancel(context.Background())
	return c
}

// launch looks for the program, forks, and tells the guard. It is called on a thread of forkers.
func (c *Child) launch(ctx context.Context) error {
	env := withMark(c.spec.Env, c.mark, c.owner.jobs)
	prog, err := c.owner.find(c.spec.Argv[0], c.spec.Dir, env)
	if err != nil {
		return err
	}
	theirs, err := c.out.open()
	defer theirs[0].Close()
	defer theirs[1].Close()
	if err != nil {
		return err
	}
	c.kills = c.owner.memory().kills()
	c.owner.guard.await(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cmd := &exec.Cmd{
		Args: c.spec.Argv, Env: env, Dir: c.spec.Dir, ExtraFiles: c.spec.Files, Stdout: theirs[0], Stderr: theirs[1],
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if c.spec.Stdin != nil {
		cmd.Stdin = c.spec.Stdin
	}
	c.start = bootTicks()
	if err := c.fork(prog, cmd); err != nil {
		return err
	}
	c.process, c.pid = cmd.Process, cmd.Process.Pid
	hasForked(c.pid)
	return c.begin()
}

// fork starts the child from this thread, which is made ready for it.
func (c *Child) fork(prog program, cmd *exec.Cmd) error {
	if c.spec.Prepare == nil {
		return prog.start(cmd)
	}
	undo, err := c.spec.Prepare()
	if err != nil {
		return err
	}
	defer undo()
	return prog.start(cmd)
}

// begin takes charge of the child that was just forked.
func (c *Child) begin() error {
	stat, err := readStat(c.pid)
	// It is there even if it has ended, as nobody has reaped it: but hidepid hides what a set-uid program becomes.
	c.veiled = errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission)
	if err != nil && !c.veiled {
		_ = unix.Kill(-c.pid, unix.SIGKILL)
		takeExit(c.process)
		hasReaped(c.pid)
		return fmt.Errorf("cannot look at it: %v", err)
	}
	if !c.veiled {
		c.start = stat.start
	}
	c.owner.adopt(c)
	c.out.start()
	go c.run()
	return nil
}

// run sees the child to its end.
func (c *Child) run() {
	defer c.owner.wg.Done()
	c.reap()
	close(c.ended)
	c.out.hurry(false)
	c.finish()
	close(c.done)
	// Whoever of its family lives on may print, and finds nobody who listens, but no closed pipe that kills it.
	c.out.release(c.swept.Done())
}

// finish waits for the output: to its end, or for a while where others of the family keep it open, and for as long as
// a Stop is at work on those.
func (c *Child) finish() {
	limits := c.owner.limits
	for !pause.Until(c.out.delivered.open, limits.drain) {
		if c.stops.Load() == 0 {
			break
		}
	}
	err := c.out.finish(limits.pass)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exit.Err = errors.Join(c.exit.Err, err)
}

// reap waits for the child's end and takes its exit.
func (c *Child) reap() {
	awaitExit(c.pid)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = bootTicks()
	c.exit = takeExit(c.process)
	hasReaped(c.pid)
	c.exit.Asked = wasAsked(c.exit, c.stopping, c.sent)
	if c.exit.Status() != 0 && !c.exit.Asked {
		c.exit.OOM = c.owner.memory().since(c.kills, c.exit.killed())
	}
	c.owner.guard.add(c.root())
}

// Name returns Spec.Name.
func (c *Child) Name() string { return c.spec.Name }

// Pid returns the child's process id, which is its group's and session's id too.
func (c *Child) Pid() int { return c.pid }

// Ended is closed when the child has ended, whoever else keeps its output open: Exit is final then, but for Exit.Err.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Done is closed when the child has ended and its output was passed on and logged, or the bounds for that were over: a
// second for a pipe that somebody else keeps open, ten without any being taken.
func (c *Child) Done() <-chan struct{} { return c.done }

// Exit returns how the child ended. It is known once Ended is closed, and complete once Done is.
func (c *Child) Exit() Exit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exit
}

// LastLines returns the last lines of both streams in the order they came, the newest last: at most Spec.KeepLines, each
// without its newline and cut at 1 KiB. A line that is not finished yet is one of them. What the child printed before
// its end is among them once Ended is closed: it is waited for, a second at most where its output is not taken.
func (c *Child) LastLines() []string {
	if pause.Until(c.ended, 0) {
		pause.Until(c.out.settled.open, c.owner.limits.drain)
	}
	return c.out.lines()
}

// Printed returns how many bytes the child has printed, and how long ago the last of them came; 0 where none has.
func (c *Child) Printed() (bytes int64, ago time.Duration) {
	if latest := c.out.latest.Load(); latest != 0 {
		ago = time.Since(epoch) - time.Duration(latest)
	}
	return c.out.printed.Load(), ago
}

// Signal sends sig to the child's process group, and SIGCONT after it where sig asks for an end. The error wraps
// os.ErrProcessDone where the child has ended.
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

// hasEnded reports whether the child has ended, reaped or not; c.mu is held. It keeps an end that came before our
// signal from passing for one that we asked for.
func (c *Child) hasEnded() bool {
	if c.gone != 0 {
		return true
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, c.pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}

// signalGroup sends sig to the group of a child that was not reaped; c.mu is held.
func (c *Child) signalGroup(sig syscall.Signal) error {
	c.sent[sig] = true
	err := unix.Kill(-c.pid, sig)
	if err == nil && wakes(sig) {
		err = unix.Kill(-c.pid, unix.SIGCONT)
	}
	return err
}

// Owns reports whether process pid belongs to the child's family (see the package's text) and lives.
func (c *Child) Owns(pid int) bool {
	all, _ := c.owner.looks.all() // who can't be looked at does not belong
	among := func(marks bool) bool {
		alive, _ := c.family(all, marks)
		return slices.ContainsFunc(alive, func(p procStat) bool { return p.pid == pid })
	}
	return among(false) || among(true)
}

// family returns those of all who belong to the child's family and live, and the sessions that are ours by them.
// Environments are read where the marks are asked for, which may take long.
func (c *Child) family(all []procStat, marks bool) (alive []procStat, sessions []root) {
	look := newSweep(c.claim(), c.owner.looks)
	alive, sessions = look.claim.family(all)
	if marks && look.readMarks(all, alive) {
		alive, sessions = look.claim.family(all)
	}
	return alive, sessions
}

// claim says by what signs the child's family is known now.
func (c *Child) claim() claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.root()
	if c.veiled && c.gone == 0 {
		if stat, err := readStat(c.pid); err == nil { // it has given up its privileges
			own.start = stat.start
		}
	}
	roots := slices.AppendSeq([]root{own}, maps.Values(c.known))
	return claim{mark: c.mark, since: c.start, roots: roots, self: os.Getpid()}
}

// root is the session that the child began.
func (k *kinship) root() root { return root{sid: k.pid, start: k.start, gone: k.gone} }
