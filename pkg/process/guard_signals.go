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

// Relayed are the signals that mean something to programs alone, and that a daemon passes on to its driver or ranks. A
// launcher may send them to the daemon, or to all processes of its step.
var Relayed = []syscall.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGHUP}

// signalSpread is how far the same signal to two processes of a step may be apart. Slurm signals one after the other in a
// loop without a wait, which takes longer only on a node that is busy.
const signalSpread = time.Second

// guardSignals are the signals that the guard got, until this process gets them, too.
type guardSignals struct {
	mu   sync.Mutex
	at   map[syscall.Signal][]time.Time // in order; guarded by mu
	news chan struct{}                  // closed when one comes; nil if nobody waits; guarded by mu
}

// read takes in what a guard reports until its end.
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

// add takes in a signal that a guard got.
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

// take removes the oldest signal of this kind that is not too old. It returns a channel that is closed when another
// signal comes if there is none.
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

// Reached reports whether a signal of Relayed that this process has just got has reached the guard, too, and so all
// processes of a step: children have got it then. It waits for a second at most, and not beyond the end of ctx.
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
