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

	"github.com/bringupd/bringupd/pkg/pause"
)

// guardPause is the pause before the next start if a guard ended within that time of its own start.
// It also bounds other waits for a guard.
const guardPause = time.Second

// guardLink is the daemon's side of the guard. It starts a guard, reports the families' sessions to
// it, and starts another one when it ends.
type guardLink struct {
	forks *forkers
	order guardOrder
	ctx   context.Context // ends when no further guard is wanted
	end   context.CancelFunc
	start sync.Once     // starts the goroutine
	first chan struct{} // closed when the first guard has been forked or could not be
	done  chan struct{} // closed when the goroutine has ended or will not start
	begun int           // starts and attempted starts; used by the goroutine only
	heard guardSignals  // signals that guards have received

	mu    sync.Mutex
	told  guardState  // everything that a guard must know
	guard *os.Process // the newest guard; nil if none was started
	pipe  int         // write end of the pipe, non-blocking; -1 if none
}

func newGuardLink(forks *forkers, order guardOrder) *guardLink {
	ctx, end := context.WithCancel(context.Background())
	return &guardLink{
		forks: forks, order: order, ctx: ctx, end: end, told: guardState{roots: make(map[int]root)},
		first: make(chan struct{}), done: make(chan struct{}), pipe: -1,
	}
}

// ensure starts a guard if none has been started. It does not wait for it.
func (g *guardLink) ensure() { g.start.Do(func() { go g.run() }) }

// await waits until the first guard has been forked. A child that is forked later is protected,
// even if the guard's code does not run yet. If no guard can be started, await returns after
// guardPause, and the child starts without it.
func (g *guardLink) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, guardPause)
	defer cancel()
	pause.Await(ctx, g.first)
}

// add reports a new session to the guard, or a change of a known one.
func (g *guardLink) add(r root) { g.tell(addLine(r)) }

// own reports a directory that the guard must remove if the daemon dies.
func (g *guardLink) own(dir string) { g.tell(ownLine(dir)) }

// remove reports that no process is left in a session.
func (g *guardLink) remove(sid int) { g.tell(removeLine(sid)) }

// tell sends a line to the current guard, and saves its content for all later ones.
func (g *guardLink) tell(line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told.apply(line)
	g.write(line)
}

// write writes one line to the guard. The caller holds g.mu. A guard that does not read is useless:
// write kills it, and the next guard gets the complete list.
func (g *guardLink) write(line string) {
	if g.pipe < 0 {
		return
	}
	n, err := unix.Write(g.pipe, []byte(line+"\n"))
	if (err != nil || n <= len(line)) && g.guard != nil {
		_ = g.guard.Kill() // fails if the guard has ended
	}
}

// run keeps one guard running until [guardLink.close].
func (g *guardLink) run() {
	defer close(g.done)
	for {
		began := time.Now()
		g.once()
		if g.ctx.Err() != nil || time.Since(began) < guardPause && !pause.For(g.ctx, guardPause) {
			return
		}
	}
}

// once starts a guard, if possible, and waits until it ends.
func (g *guardLink) once() {
	guard := g.begin()
	if g.begun++; g.begun == 1 {
		close(g.first)
	}
	if guard != nil {
		_, _ = guard.Wait()
		hasReaped(guard.Pid)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hangUp()
}

// begin starts a guard on a thread of [forkers], so that its parent-death signal means that the
// daemon has died. It returns nil if no guard is wanted any more or none can be started.
func (g *guardLink) begin() *os.Process {
	theirs := g.open()
	if theirs == nil {
		return nil
	}
	// The path in /proc names the binary that is running, even if its file has been replaced or
	// unmounted. One processor is enough for the guard and keeps the number of its threads low.
	cmd := &exec.Cmd{
		Path: OwnBinary, Args: g.order.argv(), Env: append(os.Environ(), "GOMAXPROCS=1"), Dir: "/", Stdin: theirs,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: guardSignal},
	}
	// The guard's standard output reports the signals that it receives.
	if ours, report, err := os.Pipe(); err == nil {
		cmd.Stdout = report
		defer report.Close()
		go g.heard.read(ours) // ends with the guard
	}
	// Read the binary first, like that of a child: if its file system hangs, this thread hangs and not
	// the fork.
	reply := make(chan error, 1)
	g.forks.do(func() {
		defer theirs.Close()
		headOf(OwnBinary)
		reply <- cmd.Start()
	})
	if <-reply != nil {
		return nil
	}
	hasForked(cmd.Process.Pid)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.guard = cmd.Process
	return cmd.Process
}

// open makes the pipe and writes everything that a guard must know into it, even before the guard
// runs. It returns the guard's end; nil if no guard is wanted any more or no pipe can be made.
func (g *guardLink) open() (theirs *os.File) {
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
	g.pipe, g.guard = ends[1], nil
	for _, r := range g.told.roots {
		g.write(addLine(r))
	}
	for _, dir := range g.told.dirs {
		g.write(ownLine(dir))
	}
	return os.NewFile(uintptr(ends[0]), "pipe of the guard")
}

// hangUp closes the daemon's end of the pipe. The caller holds g.mu.
func (g *guardLink) hangUp() {
	if g.pipe >= 0 {
		unix.Close(g.pipe)
		g.pipe = -1
	}
}

// close ends the guard and waits for it. If clean is false, some processes are left: the guard gets
// no goodbye message and continues, to kill them. If ctx ends while close waits for the guard after
// its goodbye message, close kills it.
func (g *guardLink) close(ctx context.Context, clean bool) error {
	g.start.Do(func() { close(g.done) })
	g.mu.Lock()
	g.end()
	if clean {
		g.write(byeLine)
	}
	g.hangUp()
	g.mu.Unlock()
	// The guard normally ends within milliseconds.
	if pause.Await(ctx, g.done) {
		return nil
	}
	if !clean {
		return errors.New("the guard stays, to end them")
	}
	g.mu.Lock()
	if g.guard != nil {
		_ = g.guard.Kill() // fails if the guard has ended
	}
	g.mu.Unlock()
	if !pause.Until(g.done, guardPause) {
		return fmt.Errorf("cannot end the guard: it is there %v after SIGKILL", guardPause)
	}
	return nil
}

// guardOrder is the content of a guard's command line.
type guardOrder struct {
	mark   string // common prefix of the marks of all children
	daemon int    // PID of the daemon
	since  uint64 // start time of the daemon, in boot ticks
}

func (o guardOrder) argv() []string {
	return []string{guardName, o.mark, strconv.Itoa(o.daemon), strconv.FormatUint(o.since, 10)}
}
