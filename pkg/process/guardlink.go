package process

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	first chan struct{} // closed when the first guard was forked, or could not be
	done  chan struct{} // closed when its goroutine has ended
	begun int           // how many guards it has started, or tried to; its goroutine's

	mu      sync.Mutex
	running bool         // the goroutine was started
	closed  bool         // close was called
	roots   map[int]root // what a guard must know, by session
	dirs    []string     // and remove
	pid     int          // of a guard that was not reaped; 0: none
	pipe    int          // our end, which does not block; -1: none
}

func newGuardLink(forks *forkers, order guardOrder) *guardLink {
	ctx, end := context.WithCancel(context.Background())
	return &guardLink{
		forks: forks, order: order, ctx: ctx, end: end,
		first: make(chan struct{}), done: make(chan struct{}), roots: make(map[int]root), pipe: -1,
	}
}

// ensure has a guard started if none was yet. It does not wait for it.
func (g *guardLink) ensure() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.running && !g.closed {
		g.running = true
		go g.run()
	}
}

// await waits until the first guard was forked: what is forked later has a guard, though its code may not run yet. A
// guard that can't be started does not keep a child from it.
func (g *guardLink) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, guardPause)
	defer cancel()
	closesBy(ctx, g.first)
}

// add tells of a session, or of what is new about it.
func (g *guardLink) add(r root) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.roots[r.sid] = r
	g.tell(addLine(r))
}

// own tells of a directory that is to go with the daemon.
func (g *guardLink) own(dir string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dirs = append(g.dirs, dir)
	g.tell(ownLine(dir))
}

// remove tells that nobody is left in a session.
func (g *guardLink) remove(sid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r, found := g.roots[sid]; found {
		delete(g.roots, sid)
		g.tell(removeLine(r))
	}
}

// tell writes one line to the guard; g.mu is held. A guard that does not read is no guard: it is killed, and the next
// is told everything anew.
func (g *guardLink) tell(line string) {
	if g.pipe < 0 {
		return
	}
	n, err := unix.Write(g.pipe, []byte(line))
	if (err != nil || n < len(line)) && g.pid != 0 {
		_ = unix.Kill(g.pid, unix.SIGKILL)
	}
}

// run keeps one guard alive until close.
func (g *guardLink) run() {
	defer close(g.done)
	for {
		began := time.Now()
		g.once()
		if g.ctx.Err() != nil {
			return
		}
		if time.Since(began) < guardPause && !pause.For(g.ctx, guardPause) {
			return
		}
	}
}

// once starts a guard, where it can, and waits for its end.
func (g *guardLink) once() {
	begun := g.begin()
	if g.begun++; g.begun == 1 {
		close(g.first)
	}
	defer g.shut()
	if begun {
		g.reap()
	}
}

// begin starts a guard, and tells whether it did.
func (g *guardLink) begin() bool {
	theirs := g.open()
	if theirs < 0 {
		return false
	}
	reply := make(chan error, 1)
	g.forks.do(func() {
		defer unix.Close(theirs)
		reply <- g.fork(theirs)
	})
	return <-reply == nil
}

// open makes the pipe and puts all that a guard must know into it: it can be told before it runs. It returns the
// guard's end; -1: none is wanted any more, or no pipe can be made.
func (g *guardLink) open() (theirs int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ends [2]int
	if g.closed || unix.Pipe2(ends[:], unix.O_CLOEXEC) != nil {
		return -1
	}
	_ = unix.SetNonblock(ends[1], true)
	// Room for all that a guard is told before it reads: a line is some 30 bytes. Where it is refused, 64 KiB must do.
	_, _ = unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, 1<<20)
	g.pipe = ends[1]
	for _, r := range g.roots {
		g.tell(addLine(r))
	}
	for _, dir := range g.dirs {
		g.tell(ownLine(dir))
	}
	return ends[0]
}

func (g *guardLink) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pipe >= 0 {
		unix.Close(g.pipe)
		g.pipe = -1
	}
}

// fork starts the guard. It is called on a thread of forkers, so that its parent-death signal means the daemon's death.
func (g *guardLink) fork(theirs int) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	// Through /proc it is the very binary that runs here, also where its file was replaced or unmounted since. As with
	// children, it is looked at before, where that may hang and harm nobody. One processor is enough for it, and
	// keeps its threads few.
	headOf(OwnBinary)
	pid, err := syscall.ForkExec(OwnBinary, g.order.argv(), &syscall.ProcAttr{
		Dir:   "/",
		Env:   append([]string{"GOMAXPROCS=1"}, os.Environ()...),
		Files: []uintptr{uintptr(theirs), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: guardSignal},
	})
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pid = pid
	return nil
}

// reap waits for the guard's end.
func (g *guardLink) reap() {
	g.mu.Lock()
	pid := g.pid
	g.mu.Unlock()
	awaitExit(pid)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pid = 0
	takeExit(pid)
}

// close ends the guard and waits for it. Where clean is false something is left, and the guard is not told goodbye but
// left to go on; so it is where ctx ends.
func (g *guardLink) close(ctx context.Context, clean bool) error {
	g.mu.Lock()
	g.closed = true
	g.end()
	if clean {
		g.tell(byeLine)
	}
	if g.pipe >= 0 {
		unix.Close(g.pipe)
		g.pipe = -1
	}
	running := g.running
	g.mu.Unlock()
	if !running || closesBy(ctx, g.done) {
		return nil
	}
	if !clean {
		return errors.New("the guard stays, to end them")
	}
	g.mu.Lock()
	if g.pid != 0 {
		_ = unix.Kill(g.pid, unix.SIGKILL)
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
