package process

import (
	"context"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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
	mu       sync.Mutex
	arrivals map[syscall.Signal][]time.Time // arrival times, ascending; guarded by mu
	// closed when a signal arrives; nil if no goroutine waits; guarded by mu
	arrived chan struct{}
	// called when a guard reports that it ends the children of a silent daemon; nil if nobody asked
	onSilence atomic.Pointer[func()]
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

// addSignal records a signal that a guard has received.
func (e *guardSignals) addSignal(sig syscall.Signal, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.arrivals == nil {
		e.arrivals = make(map[syscall.Signal][]time.Time)
	}
	e.arrivals[sig] = append(e.arrivals[sig], at)
	if e.arrived != nil {
		close(e.arrived)
		e.arrived = nil
	}
}

// takeSignal removes the oldest signal sig that is not older than maxSignalSkew. If there is none,
// it returns a channel that is closed when another signal arrives.
func (e *guardSignals) takeSignal(sig syscall.Signal) (taken bool, news <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := slices.DeleteFunc(e.arrivals[sig], func(at time.Time) bool { return time.Since(at) > maxSignalSkew })
	if len(kept) > 0 {
		e.arrivals[sig] = kept[1:]
		return true, nil
	}
	delete(e.arrivals, sig)
	if e.arrived == nil {
		e.arrived = make(chan struct{})
	}
	return false, e.arrived
}

// SignalReachedGuard reports whether a signal of [ForwardedSignals] that this process has just
// received has also reached the guard. If so, it was sent to all processes of the step, and the
// children have received it too. Reached waits for at most one second, and not beyond the end of
// ctx.
func (s *Supervisor) SignalReachedGuard(ctx context.Context, sig syscall.Signal) bool {
	ctx, cancel := context.WithTimeout(ctx, maxSignalSkew)
	defer cancel()
	for {
		taken, news := s.guardLink.signals.takeSignal(sig)
		if taken {
			return true
		}
		select {
		case <-news:
		case <-ctx.Done():
			return false
		}
	}
}
