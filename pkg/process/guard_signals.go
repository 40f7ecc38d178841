package process

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// ForwardedSignals lists the signals that only have a meaning for the user's program, and that a
// daemon forwards to its driver or ranks. A launcher may send them to the daemon alone or to all
// processes of its step.
var ForwardedSignals = []syscall.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGHUP}

// maxSignalSkew is the maximum time between the arrivals of one signal at two processes of a step.
// Slurm signals them in a loop without waits, which takes longer only on a busy node.
const maxSignalSkew = time.Second

// guardSignals holds the signals that the guard has received and that this process has not matched
// with its own yet.
type guardSignals struct {
	arrivals map[syscall.Signal]chan time.Time // arrival times, for each of [ForwardedSignals]
	// called when a guard reports that it ends the children of a silent daemon; nil if nobody asked
	onSilence atomic.Pointer[func()]
}

const maxUnmatchedSignals = 16

func newGuardSignals() *guardSignals {
	e := &guardSignals{arrivals: make(map[syscall.Signal]chan time.Time)}
	for _, sig := range ForwardedSignals {
		e.arrivals[sig] = make(chan time.Time, maxUnmatchedSignals)
	}
	return e
}

// readReports records the signals that a guard reports, until the end of the file.
func (e *guardSignals) readReports(from *os.File) {
	defer from.Close()
	for buffer := make([]byte, 16); ; {
		n, err := from.Read(buffer)
		for _, number := range buffer[:n] {
			if ended := e.onSilence.Load(); number == silenceReport && ended != nil {
				(*ended)()
				continue
			}
			e.addSignal(syscall.Signal(number), time.Now())
		}
		if err == io.EOF || n == 0 {
			return
		}
	}
}

// addSignal records a signal that a guard has received. If too many are unmatched, it drops the oldest.
func (e *guardSignals) addSignal(sig syscall.Signal, at time.Time) {
	arrivals, isForwarded := e.arrivals[sig]
	for isForwarded {
		select {
		case arrivals <- at:
			return
		default:
		}
		select {
		case <-arrivals:
		default:
		}
	}
}

// SignalReachedGuard reports whether a signal of [ForwardedSignals] that this process has just
// received has also reached the guard. If so, it was sent to all processes of the step, and the
// children have received it too. SignalReachedGuard waits for at most one second, and not beyond the
// end of ctx.
func (s *Supervisor) SignalReachedGuard(ctx context.Context, sig syscall.Signal) bool {
	ctx, cancel := context.WithTimeout(ctx, maxSignalSkew)
	defer cancel()
	for {
		select {
		case at := <-s.guardLink.signals.arrivals[sig]:
			if time.Since(at) <= maxSignalSkew {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

const (
	// signLine is what a daemon sends to show that it runs.
	signLine = "."
	// signsPerLimit is the number of signs that a daemon sends within the time after which it counts as
	// silent.
	signsPerLimit = 10
	// silenceReport is what a guard writes to its standard output, in place of the number of a signal,
	// when it ends the children of a silent daemon.
	silenceReport = 0
)

func silenceLine(limit time.Duration) string { return fmt.Sprintf("silence %d", limit) }

// silenceWatch detects that a daemon gives no sign. It counts wake-ups of the guard and compares no
// times: if the launcher stops all processes of a step, the guard's too, none of that time counts.
type silenceWatch struct {
	ticks   <-chan time.Time // wake-ups; nil if silence does not matter
	missing int              // wake-ups since the last line of the daemon
	over    bool             // the daemon has been silent for the limit once
}

// setLimit begins to watch, unless the limit is 0 or known.
func (w *silenceWatch) setLimit(limit time.Duration) {
	if limit > 0 && w.ticks == nil {
		w.ticks = time.NewTicker(limit / signsPerLimit).C
	}
}

// addTick records a wake-up, and reports whether the daemon has become silent with it.
func (w *silenceWatch) addTick() bool {
	if w.missing++; w.missing <= signsPerLimit || w.over {
		return false
	}
	w.over = true
	return true
}

// EndIfSilent makes the guard kill all children, and from then on each that is started, if this
// daemon gives no sign of life for limit although the guard runs: if it was stopped, or can get no
// memory. Others take such a daemon for lost, and may start elsewhere what it has started. ended is
// called, at least once, when the daemon runs again. Only the first call of EndIfSilent has an
// effect.
func (s *Supervisor) EndIfSilent(limit time.Duration, ended func()) {
	g := s.guardLink
	g.mu.Lock()
	isFirst := g.state.silenceLimit == 0 && g.ctx.Err() == nil
	if isFirst {
		g.state.silenceLimit = limit
		g.signals.onSilence.Store(&ended)
		g.writeLine(silenceLine(limit))
		g.signs.Add(1)
	}
	g.mu.Unlock()
	if isFirst {
		go g.sendSigns(limit / signsPerLimit)
	}
}

// sendSigns sends signs to the guard until no guard is wanted.
func (g *guardLink) sendSigns(interval time.Duration) {
	defer g.signs.Done()
	for ctxutil.SleepContext(g.ctx, interval) {
		g.mu.Lock()
		g.writeLine(signLine)
		g.mu.Unlock()
	}
}
