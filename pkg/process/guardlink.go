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

// guardPause is waited before the next guard where one ended within that time of its start.
const guardPause = time.Second

// guardLink is the daemon's side of the guard: it starts one, tells it of the families' sessions, and starts another when it ends.
type guardLink struct {
	forks *forkers
	order guardOrder
	ctx   context.Context // ends when no further guard is wanted
	end   context.CancelFunc
	start sync.Once     // of its goroutine
	first chan struct{} // closed when the first guard was forked, or could not be
	done  chan struct{} // closed when its goroutine has ended, or will not start
	begun int           // how many guards it has started, or tried to; its goroutine's
	heard guardSignals  // the signals that guards got

	mu    sync.Mutex
	told  guardState  // what a guard must know
	guard *os.Process // the newest, nil: none was started
	pipe  int         // our end, which does not block; -1: none
}

func newGuardLink(forks *forkers, order guardOrder) *guardLink {
	ctx, end := context.WithCancel(context.Background())
	return &guardLink{
		forks: forks, order: order, ctx: ctx, end: end, told: guardState{roots: make(map[int]root)},
		first: make(chan struct{}), done: make(chan struct{}), pipe: -1,
	}
}

// ensure has a guard started if none was yet. It does not wait for it.
func (g *guardLink) ensure() { g.start.Do(func() { go g.run() }) }

// await waits until the first guard was forked: what is forked later has a guard, though its code may not run yet. A
// guard that can't be started does not keep a child from it.
func (g *guardLink) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, guardPause)
	defer cancel()
	pause.Await(ctx, g.first)
}

// add tells of a session, or of what is new about it.
func (g *guardLink) add(r root) { g.tell(addLine(r)) }

// own tells of a directory that is to go with the daemon.
func (g *guardLink) own(dir string) { g.tell(ownLine(dir)) }

// remove tells that nobody is left in a session.
func (g *guardLink) remove(sid int) { g.tell(removeLine(sid)) }

// tell tells this guard, and every later one, what is new.
func (g *guardLink) tell(line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told.apply(line)
	g.write(line)
}

// write writes one line to the guard; g.mu is held. A guard that does not read is no guard: it is killed, and the next
// is told everything anew.
func (g *guardLink) write(line string) {
	if g.pipe < 0 {
		return
	}
	n, err := unix.Write(g.pipe, []byte(line+"\n"))
	if (err != nil || n <= len(line)) && g.guard != nil {
		_ = g.guard.Kill() // it fails where the guard has ended
	}
}

// run keeps one guard alive until close.
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

// once starts a guard, where it can, and waits for its end.
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

// begin starts a guard, on a thread of forkers, so that its parent-death signal means the daemon's death. It returns nil
// where none is wanted any more, or none can be started.
func (g *guardLink) begin() *os.Process {
	theirs := g.open()
	if theirs == nil {
		return nil
	}
	// Through /proc it is the very binary that runs here, also where its file was replaced or unmounted since. As with
	// children, it is looked at before, where that may hang and harm nobody. One processor is enough for it, and
	// keeps its threads few.
	cmd := &exec.Cmd{
		Path: OwnBinary, Args: g.order.argv(), Env: append(os.Environ(), "GOMAXPROCS=1"), Dir: "/", Stdin: theirs,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: guardSignal},
	}
	if ours, report, err := os.Pipe(); err == nil {
		cmd.Stdout = report
		defer report.Close()
		go g.heard.read(ours) // it ends with the guard
	}
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

// open makes the pipe and puts all that a guard must know into it: it can be told before it runs. It returns the
// guard's end; nil: none is wanted any more, or no pipe can be made.
func (g *guardLink) open() (theirs *os.File) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ends [2]int
	if g.ctx.Err() != nil || unix.Pipe2(ends[:], unix.O_CLOEXEC) != nil {
		return nil
	}
	_ = unix.SetNonblock(ends[1], true)
	// Room for all that a guard is told before it reads: a line is some 30 bytes. Where it is refused, 64 KiB must do.
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

// hangUp closes our end of the pipe; g.mu is held.
func (g *guardLink) hangUp() {
	if g.pipe >= 0 {
		unix.Close(g.pipe)
		g.pipe = -1
	}
}

// close ends the guard and waits for it. Where clean is false something is left, and the guard is not told goodbye but
// left to go on; so it is where ctx ends.
func (g *guardLink) close(ctx context.Context, clean bool) error {
	g.start.Do(func() { close(g.done) })
	g.mu.Lock()
	g.end()
	if clean {
		g.write(byeLine)
	}
	g.hangUp()
	g.mu.Unlock()
	if pause.Await(ctx, g.done) {
		return nil
	}
	if !clean {
		return errors.New("the guard stays, to end them")
	}
	g.mu.Lock()
	if g.guard != nil {
		_ = g.guard.Kill() // it fails where the guard has ended
	}
	g.mu.Unlock()
	if !pause.Until(g.done, guardPause) {
		return fmt.Errorf("cannot end the guard: it is there %v after SIGKILL", guardPause)
	}
	return nil
}

// guardOrder is what a guard is told by its command line.
type guardOrder struct {
	mark   string // what the marks of all children begin with
	daemon int    // the daemon's pid
	since  uint64 // when it started
}

func (o guardOrder) argv() []string {
	return []string{guardName, o.mark, strconv.Itoa(o.daemon), strconv.FormatUint(o.since, 10)}
}
