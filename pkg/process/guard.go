package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
)

const (
	// guardName is the guard's argv[0], by which the binary recognises that it must run as the guard,
	// and its name in ps. It differs from the program's name so that "pkill -9 bringupd" does not kill
	// the guard too.
	guardName = "family-guard"
	// guardSignal is the guard's parent-death signal. The kernel ignores it by default, so it does no
	// harm before the guard handles it.
	guardSignal = unix.SIGCHLD
	// guardKillTimeout is how long a guard tries to kill processes that do not end.
	guardKillTimeout = time.Minute
	// unreadPipeTimeout is how long the guard reads what a dead daemon left in the pipe.
	unreadPipeTimeout = 50 * time.Millisecond
	// removalHeadStart is how long the guard waits for the removal of directories, which usually takes
	// 1 ms, before it kills processes.
	removalHeadStart = 20 * time.Millisecond
	goodbyeLine      = "bye"
	addPrefix        = "+ "
)

// OwnBinary is a path to the binary that is running. It works even if the file has been replaced or
// unmounted.
const OwnBinary = "/proc/self/exe"

// A process that is started under the guard's name runs the guard and nothing else. This is in
// init, not in main, so that every program that starts children has it, including test binaries,
// and so that the guard runs before most packages of the program have initialised.
func init() {
	if len(os.Args) == 0 || os.Args[0] != guardName {
		return
	}
	order, err := parseGuardArgs(os.Args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", guardName, err)
		os.Exit(2)
	}
	os.Exit(guardMain(order))
}

func parseGuardArgs(argv []string) (guardArgs, error) {
	if len(argv) != 4 || !strings.HasSuffix(argv[1], ".") {
		return guardArgs{}, fmt.Errorf("cannot run this by hand: a daemon starts it")
	}
	daemon, err := strconv.Atoi(argv[2])
	since, sinceErr := strconv.ParseUint(argv[3], 10, 64)
	if err := errors.Join(err, sinceErr); err != nil {
		return guardArgs{}, fmt.Errorf("cannot read its command line: %v", err)
	}
	return guardArgs{mark: argv[1], daemon: daemon, since: since}, nil
}

func guardMain(order guardArgs) int {
	// First become independent of the daemon: signals, name, notice of its death.
	reportSignals()
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTSTP)
	_ = os.WriteFile("/proc/self/comm", []byte(guardName), 0) // its name in ps
	// Exempt the guard from the kernel's OOM killer: this needs a privilege and usually fails.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
	// The end of the pipe can be late: a child that was being forked when the daemon died holds the
	// pipe until its execve. So the reads get a deadline when the daemon dies.
	_ = unix.SetNonblock(0, true)
	pipe := os.NewFile(0, "pipe from the daemon")
	watchParent(order.daemon, func() { _ = pipe.SetReadDeadline(time.Now().Add(unreadPipeTimeout)) })

	// Follow the daemon's list until its goodbye message or its death.
	state := guardState{sessions: make(map[int]familySession)}
	bye := state.followDaemon(pipe, func() {
		// First, so that the daemon knows why its children end; it fails if the daemon has died.
		_, _ = unix.Write(unix.Stdout, []byte{silenceReport})
		ctx, cancel := context.WithTimeout(context.Background(), guardKillTimeout)
		defer cancel()
		state.killFamilies(ctx, order)
	})
	if bye {
		return 0
	}
	// The daemon has died: clean up for it.
	ctx, cancel := context.WithTimeout(context.Background(), guardKillTimeout)
	defer cancel()
	// Remove the directories first, because the process that started the daemon may end the guard too.
	// The removal gets a head start: on a busy machine it would not even begin while this thread scans
	// processes.
	tidied := make(chan struct{})
	go func() {
		defer close(tidied)
		_ = state.removeOwned()
	}()
	ctxutil.AwaitDoneFor(tidied, removalHeadStart)
	state.killFamilies(ctx, order)
	_, _ = ctxutil.CallBounded(ctx, 0, func() (struct{}, error) { return struct{}{}, state.removeOwned() })
	return 1
}

// followDaemon applies the lines of the daemon, until its goodbye message or its death, and reports
// whether it has said goodbye. It calls kill when the daemon falls silent, and again for whatever the
// daemon starts afterwards: it has been taken for lost.
func (g *guardState) followDaemon(pipe io.Reader, kill func()) (bye bool) {
	lines := make(chan string)
	go func() { // ends with the pipe
		defer close(lines)
		for scanner := bufio.NewScanner(pipe); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	var silence silenceWatch
	for {
		select {
		case line, isOpen := <-lines:
			if !isOpen || g.applyLine(line) {
				return isOpen
			}
			silence.setLimit(g.silenceLimit)
			silence.missing = 0
			if silence.over && strings.HasPrefix(line, addPrefix) {
				kill()
			}
		case <-silence.ticks:
			if silence.addTick() {
				kill()
			}
		}
	}
}

func (g *guardState) killFamilies(ctx context.Context, order guardArgs) {
	s := newFamilySweep(g.allFamiliesCriteria(order), newProcScanner(order.since))
	_, _ = s.signalUntilGone(ctx, unix.SIGKILL) // there is nobody to whom errors could be reported
}

// reportSignals reports each signal of [ForwardedSignals] that the guard receives to the daemon, by
// writing its number to standard output.
func reportSignals() {
	signals := make(chan os.Signal, 16)
	for _, sig := range ForwardedSignals {
		signal.Notify(signals, sig)
	}
	go func() {
		for sig := range signals {
			_, _ = unix.Write(unix.Stdout, []byte{byte(sig.(unix.Signal))}) // fails if the daemon has died
		}
	}()
}

// watchParent calls died if the daemon is not the parent of this process, now or later.
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

// guardState is what the daemon has reported to the guard.
type guardState struct {
	sessions     map[int]familySession
	owned        []files.OwnedPath
	silenceLimit time.Duration // see [Supervisor.EndIfSilent]; 0 if it was not called
}

// removeOwned removes the files and directories that the daemon would have removed, as far as
// possible.
func (g *guardState) removeOwned() error {
	var errs []error
	for _, path := range g.owned {
		errs = append(errs, path.Remove())
	}
	return errors.Join(errs...)
}

// addLine returns the line by which the daemon adds a session to the guard, or changes it.
func addLine(r familySession) string {
	return fmt.Sprintf(addPrefix+"%d %d %d", r.sid, r.start, r.lastOwned)
}
func removeLine(sid int) string { return fmt.Sprintf("- %d", sid) }
func ownPathLine(p files.OwnedPath) string {
	return fmt.Sprintf("own %d %d %q", p.Device, p.Inode, p.Path)
}

// applyLine processes one line. It returns true for the goodbye message. Lines that it cannot parse
// are ignored.
func (g *guardState) applyLine(line string) (bye bool) {
	if line == goodbyeLine {
		return true
	}
	var path files.OwnedPath
	if n, _ := fmt.Sscanf(line, "own %d %d %q", &path.Device, &path.Inode, &path.Path); n == 3 {
		g.owned = append(g.owned, path)
		return false
	}
	if n, _ := fmt.Sscanf(line, "silence %d", &g.silenceLimit); n == 1 {
		return false
	}
	var r familySession
	if n, _ := fmt.Sscanf(line, addPrefix+"%d %d %d", &r.sid, &r.start, &r.lastOwned); n == 3 {
		g.sessions[r.sid] = r
	} else if n, _ := fmt.Sscanf(line, "- %d", &r.sid); n == 1 {
		delete(g.sessions, r.sid)
	}
	return false
}

// allFamiliesCriteria returns the criteria by which the families of all children are recognised. A
// child that was forked in the daemon's last moment may be recognised by the mark only.
func (g *guardState) allFamiliesCriteria(order guardArgs) familyCriteria {
	c := familyCriteria{
		mark: order.mark, notBefore: order.since, ownPID: os.Getpid(),
		sessions: slices.Collect(maps.Values(g.sessions)),
	}
	if os.Getppid() == order.daemon { // it lives
		c.daemonPID = order.daemon
	}
	return c
}
