package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pause"
)

const (
	// guardName is the guard's argv[0], by which the binary knows what it is to be, and its name in ps. It is another than
	// the program's: who types pkill -9 bringupd must not hit the guard too.
	guardName = "family-guard"
	// guardSignal tells the guard that its parent has died. Before the guard handles it, it is ignored.
	guardSignal = unix.SIGCHLD
	// guardPatience is how long a guard tries to end what does not end.
	guardPatience = time.Minute
	// unreadWait is for what a dead daemon left in the pipe.
	unreadWait = 50 * time.Millisecond
	// tidyFirst is for how long the directories, of which removal takes 1 ms, go before what runs.
	tidyFirst = 20 * time.Millisecond
	byeLine   = "bye"
)

// OwnBinary is the binary that runs here, also where its file was replaced or unmounted since.
const OwnBinary = "/proc/self/exe"

// A process that is started under the guard's name is the guard, and nothing else of the program runs in it. It is here
// and not a call in main so that no program, and no test binary, that starts children can lack it, and so that
// the guard runs before most of the program's packages have initialised.
func init() {
	if len(os.Args) == 0 || os.Args[0] != guardName {
		return
	}
	order, err := parseOrder(os.Args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", guardName, err)
		os.Exit(2)
	}
	os.Exit(guard(order))
}

func parseOrder(argv []string) (guardOrder, error) {
	if len(argv) != 4 || !strings.HasSuffix(argv[1], ".") {
		return guardOrder{}, fmt.Errorf("cannot be run by hand: it is started by a daemon")
	}
	daemon, err := strconv.Atoi(argv[2])
	since, sinceErr := strconv.ParseUint(argv[3], 10, 64)
	if err := errors.Join(err, sinceErr); err != nil {
		return guardOrder{}, fmt.Errorf("cannot read its command line: %v", err)
	}
	return guardOrder{mark: argv[1], daemon: daemon, since: since}, nil
}

// guard is the life of the guard process. It returns its exit code.
func guard(order guardOrder) int {
	reportSignals()
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTSTP)
	becomeGuard()
	// A pipe's end may come late: whoever was being forked when the daemon died holds it until its exec.
	_ = unix.SetNonblock(0, true)
	pipe := os.NewFile(0, "pipe from the daemon")
	watchParent(order.daemon, func() { _ = pipe.SetReadDeadline(time.Now().Add(unreadWait)) })

	state := guardState{roots: make(map[int]root)}
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if state.apply(lines.Text()) {
			return 0
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), guardPatience)
	defer cancel()
	// First of all: what has started the daemon may end the guard with it. On a busy machine it would not even begin
	// while this thread looks at processes.
	tidied := make(chan struct{})
	go func() {
		defer close(tidied)
		_ = state.tidy()
	}()
	pause.Until(tidied, tidyFirst)
	s := newSweep(state.claim(order), newLooks(order.since))
	_, _ = s.until(ctx, unix.SIGKILL) // there is nobody left to tell of who can't be ended
	_, _ = pause.Bounded(ctx, 0, func() (struct{}, error) { return struct{}{}, state.tidy() })
	return 1
}

// reportSignals has the daemon know of each signal of Relayed that the guard gets, by its number on standard output.
func reportSignals() {
	signals := make(chan os.Signal, 16)
	for _, sig := range Relayed {
		signal.Notify(signals, sig)
	}
	go func() {
		for sig := range signals {
			_, _ = unix.Write(unix.Stdout, []byte{byte(sig.(unix.Signal))}) // it fails if the daemon has died
		}
	}()
}

// becomeGuard gives the process its name in ps, and keeps the kernel from choosing it when memory runs out. The latter
// takes a privilege that few have.
func becomeGuard() {
	_ = os.WriteFile("/proc/self/comm", []byte(guardName), 0)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
}

// watchParent calls died when the daemon is not, or not any more, the parent.
func watchParent(daemon int, died func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, guardSignal)
	check := func() {
		if os.Getppid() != daemon {
			died()
		}
	}
	check()
	go func() {
		for range signals {
			check()
		}
	}()
}

// guardState is what a guard is told.
type guardState struct {
	roots map[int]root
	dirs  []string
}

// tidy removes the directories that the daemon would have removed, as far as it can.
func (g *guardState) tidy() error {
	var errs []error
	for _, dir := range g.dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

func addLine(r root) string     { return fmt.Sprintf("+ %d %d %d", r.sid, r.start, r.gone) }
func removeLine(sid int) string { return fmt.Sprintf("- %d", sid) }
func ownLine(dir string) string { return fmt.Sprintf("own %q", dir) }

// apply takes one line. It returns true for the goodbye. What it can't read is nothing.
func (g *guardState) apply(line string) (bye bool) {
	if line == byeLine {
		return true
	}
	if quoted, found := strings.CutPrefix(line, "own "); found {
		if dir, err := strconv.Unquote(quoted); err == nil {
			g.dirs = append(g.dirs, dir)
		}
		return false
	}
	var r root
	if n, _ := fmt.Sscanf(line, "+ %d %d %d", &r.sid, &r.start, &r.gone); n == 3 {
		g.roots[r.sid] = r
	} else if n, _ := fmt.Sscanf(line, "- %d", &r.sid); n == 1 {
		delete(g.roots, r.sid)
	}
	return false
}

// claim is all that the daemon's children are known by. A child that was forked in the daemon's last moment may have
// the mark only.
func (g *guardState) claim(order guardOrder) claim {
	c := claim{mark: order.mark, since: order.since, self: os.Getpid()}
	for _, r := range g.roots {
		c.roots = append(c.roots, r)
	}
	return c
}
