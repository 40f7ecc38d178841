package process

import (
	"context"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Relayed lists the signals that only have a meaning for the user's program, and that a daemon
// forwards to its driver or ranks. A launcher may send them to the daemon alone or to all processes
// of its step.
var Relayed = []syscall.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGHUP}

// signalSpread is the maximum time between the arrivals of one signal at two processes of a step.
// Slurm signals them in a loop without waits, which takes longer only on a busy node.
const signalSpread = time.Second

// guardSignals holds the signals that the guard has received and that this process has not matched
// with its own yet.
type guardSignals struct {
	mu   sync.Mutex
	at   map[syscall.Signal][]time.Time // arrival times, ascending; guarded by mu
	news chan struct{}                  // closed when a signal arrives; nil if no goroutine waits; guarded by mu
}

// read records the signals that a guard reports, until the end of the file.
func (e *guardSignals) read(from *os.File) {
	defer from.Close()
	for buffer := make([]byte, 16); ; {
		n, err := from.Read(buffer)
		for _, number := range buffer[:n] {
			e.add(syscall.Signal(number), time.Now())
		}
		if err == io.EOF || n == 0 {
			return
		}
	}
}

// add records a signal that a guard has received.
func (e *guardSignals) add(sig syscall.Signal, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at == nil {
		e.at = make(map[syscall.Signal][]time.Time)
	}
	e.at[sig] = append(e.at[sig], at)
	if e.news != nil {
		close(e.news)
		e.news = nil
	}
}

// take removes the oldest signal sig that is not older than signalSpread. If there is none, it
// returns a channel that is closed when another signal arrives.
func (e *guardSignals) take(sig syscall.Signal) (taken bool, news <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := slices.DeleteFunc(e.at[sig], func(at time.Time) bool { return time.Since(at) > signalSpread })
	if len(kept) > 0 {
		e.at[sig] = kept[1:]
		return true, nil
	}
	delete(e.at, sig)
	if e.news == nil {
		e.news = make(chan struct{})
	}
	return false, e.news
}

// Reached reports whether a signal of [Relayed] that this process has just received has also
// reached the guard. If so, it was sent to all processes of the step, and the children have
// received it too. Reached waits for at most one second, and not beyond the end of ctx.
func (s *Supervisor) Reached(ctx context.Context, sig syscall.Signal) bool {
	ctx, cancel := context.WithTimeout(ctx, signalSpread)
	defer cancel()
	for {
		taken, news := s.guard.heard.take(sig)
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
