package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// guardRestartDelay is the pause before the next start if a guard ended within that time of its own
// start. It also bounds other waits for a guard.
const guardRestartDelay = time.Second

// guardLink is the daemon's side of the guard. It starts a guard, reports the families' sessions to
// it, and starts another one when it ends.
type guardLink struct {
	threads     *forkThreads
	args        guardArgs
	ctx         context.Context // ends when no further guard is wanted
	cancel      context.CancelFunc
	startOnce   sync.Once      // starts the goroutine
	firstForked chan struct{}  // closed when the first guard has been forked or could not be
	done        chan struct{}  // closed when the goroutine has ended or will not start
	starts      int            // starts and attempted starts; used by the goroutine only
	signals     *guardSignals  // signals that guards have received
	signs       sync.WaitGroup // the goroutine that sends signs, if any

	mu      sync.Mutex
	state   guardState  // everything that a guard must know
	process *os.Process // the newest guard; nil if none was started
	pipeFD  int         // write end of the pipe, non-blocking; -1 if none
}

func newGuardLink(forks *forkThreads, order guardArgs) *guardLink {
	ctx, end := context.WithCancel(context.Background())
	return &guardLink{
		threads: forks, args: order, ctx: ctx, cancel: end, signals: newGuardSignals(),
		firstForked: make(chan struct{}), done: make(chan struct{}), pipeFD: -1,
		state: guardState{sessions: make(map[int]familySession)},
	}
}

// ensureStarted starts a guard if none has been started. It does not wait for it.
func (g *guardLink) ensureStarted() { g.startOnce.Do(func() { go g.keepRunning() }) }

// awaitFirst waits until the first guard has been forked. A child that is forked later is
// protected, even if the guard's code does not run yet. If no guard can be started, await returns
// after guardRestartDelay, and the child starts without it.
func (g *guardLink) awaitFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, guardRestartDelay)
	defer cancel()
	ctxutil.AwaitDone(ctx, g.firstForked)
}

// sendLine sends a line, such as one of [addLine], to the current guard, and saves its content for all
// later ones.
func (g *guardLink) sendLine(line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.applyLine(line)
	g.writeLine(line)
}

// writeLine writes one line to the guard. The caller holds g.mu. A guard that does not read is
// useless: write kills it, and the next guard gets the complete list.
func (g *guardLink) writeLine(line string) {
	if g.pipeFD < 0 {
		return
	}
	n, err := unix.Write(g.pipeFD, []byte(line+"\n"))
	if (err != nil || n <= len(line)) && g.process != nil {
		_ = g.process.Kill() // fails if the guard has ended
	}
}

// keepRunning keeps one guard running until [guardLink.shutDown].
func (g *guardLink) keepRunning() {
	defer close(g.done)
	for {
		began := time.Now()
		g.runOnce()
		if g.ctx.Err() != nil {
			return
		}
		if time.Since(began) < guardRestartDelay && !ctxutil.SleepContext(g.ctx, guardRestartDelay) {
			return
		}
	}
}

// runOnce starts a guard, if possible, and waits until it ends.
func (g *guardLink) runOnce() {
	guard := g.startGuard()
	if g.starts++; g.starts == 1 {
		close(g.firstForked)
	}
	if guard != nil {
		_, _ = guard.Wait()
		recordReap(guard.Pid)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closePipe()
}

// startGuard starts a guard on a thread of [forkThreads], so that its parent-death signal means
// that the daemon has died. It returns nil if no guard is wanted any more or none can be started.
func (g *guardLink) startGuard() *os.Process {
	guardEnd := g.openPipe()
	if guardEnd == nil {
		return nil
	}
	// The path in /proc names the binary that is running, even if its file has been replaced or
	// unmounted. One processor is enough for the guard and keeps the number of its threads low.
	cmd := &exec.Cmd{
		Path: OwnBinary, Args: g.args.commandLine(), Env: append(os.Environ(), "GOMAXPROCS=1"), Dir: "/",
		Stdin:       guardEnd,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: guardSignal},
	}
	// The guard's standard output reports the signals that it receives.
	if reports, guardOutput, err := os.Pipe(); err == nil {
		cmd.Stdout = guardOutput
		defer guardOutput.Close()
		go g.signals.readReports(reports) // ends with the guard
	}
	// Read the binary first, like that of a child: if its file system hangs, this thread hangs and not
	// the fork.
	reply := make(chan error, 1)
	g.threads.runJob(func() {
		defer guardEnd.Close()
		ReadHead(OwnBinary)
		reply <- forkUnmarked(cmd.Start)
	})
	if <-reply != nil {
		return nil
	}
	recordFork(cmd.Process.Pid)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.process = cmd.Process
	return cmd.Process
}

// openPipe makes the pipe and writes everything that a guard must know into it, even before the
// guard runs. It returns the guard's end; nil if no guard is wanted any more or no pipe can be
// made.
func (g *guardLink) openPipe() (guardEnd *os.File) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ends [2]int
	if g.ctx.Err() != nil || unix.Pipe2(ends[:], unix.O_CLOEXEC) != nil {
		return nil
	}
	_ = unix.SetNonblock(ends[1], true)
	// Make room for everything that is sent before the guard reads; a line has about 30 bytes. If this
	// fails, the default of 64 KiB must do.
	_, _ = unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, 1<<20)
	g.pipeFD, g.process = ends[1], nil
	for _, r := range g.state.sessions {
		g.writeLine(addLine(r))
	}
	for _, path := range g.state.owned {
		g.writeLine(ownPathLine(path))
	}
	if g.state.silenceLimit > 0 {
		g.writeLine(silenceLine(g.state.silenceLimit))
	}
	return os.NewFile(uintptr(ends[0]), "pipe of the guard")
}

// closePipe closes the daemon's end of the pipe. The caller holds g.mu.
func (g *guardLink) closePipe() {
	if g.pipeFD >= 0 {
		unix.Close(g.pipeFD)
		g.pipeFD = -1
	}
}

// shutDown ends the guard and waits for it. If clean is false, some processes are left: the guard
// gets no goodbye message and continues, to kill them. If ctx ends while close waits for the guard
// after its goodbye message, close kills it.
func (g *guardLink) shutDown(ctx context.Context, clean bool) error {
	g.startOnce.Do(func() { close(g.done) })
	g.mu.Lock()
	g.cancel()
	if clean {
		g.writeLine(goodbyeLine)
	}
	g.closePipe()
	g.mu.Unlock()
	g.signs.Wait()
	// The guard normally ends within milliseconds.
	if ctxutil.AwaitDone(ctx, g.done) {
		return nil
	}
	if !clean {
		return errors.New("the guard stays to end them")
	}
	g.mu.Lock()
	if g.process != nil {
		_ = g.process.Kill() // fails if the guard has ended
	}
	g.mu.Unlock()
	if !ctxutil.AwaitDoneFor(g.done, guardRestartDelay) {
		return fmt.Errorf("cannot end the guard: it is alive %v after SIGKILL", guardRestartDelay)
	}
	return nil
}

type guardArgs struct {
	mark   string // common prefix of the marks of all children
	daemon int    // PID of the daemon
	since  uint64 // start time of the daemon, in boot ticks
}

func (o guardArgs) commandLine() []string {
	return []string{guardName, o.mark, strconv.Itoa(o.daemon), strconv.FormatUint(o.since, 10)}
}
