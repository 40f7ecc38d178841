package lifecycle

import (
	"context"
	"fmt"
	"math"
	"os"
	ossignal "os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
)

// HandleSignals handles signals until ctx ends: it ends the run at TERM, INT or the launcher's ALRM
// and if the launch has failed, ends the grace periods according to the notices, and forwards other signals to the
// driver. host is this node's, and stopGrace the grace period of services.
func (r *Publisher) HandleSignals(ctx context.Context, signals <-chan os.Signal, host string,
	stopGrace time.Duration, passOn func(syscall.Signal)) {
	heard := health.SignalHistory{LauncherSignals: r.LauncherSignals}
	var began time.Time          // when the end was first requested
	var settled <-chan time.Time // when the meaning of that signal is known
	var ending syscall.Signal    // the first signal that requested the end
	driver := time.AfterFunc(math.MaxInt64, func() { r.CancelDriverGrace(ErrGraceEnded) })
	defer driver.Stop()
	all := time.AfterFunc(math.MaxInt64, func() { r.CancelGrace(ErrGraceEnded) })
	defer all.Stop()
	for {
		// Wait for the next signal, or for the time when the meaning of the first one is known.
		var sig syscall.Signal
		select {
		case <-ctx.Done():
			return
		case <-settled:
			by := ""
			if heard.ByLauncher {
				by = r.LauncherTitle
			}
			r.CancelRun(NewSignalFailure(ending, host, by, r.NodeIndex))
			continue
		case got := <-signals:
			if why, is := got.(health.LaunchFailureSignal); is {
				r.CancelRun(health.NewFailure(health.Launch, "%s", why))
				continue
			}
			sig = got.(syscall.Signal)
		}
		before, now := heard, time.Now()
		heard = heard.WithSignal(sig, now)
		if began.IsZero() && heard.IsEnd(sig) {
			r.EndRequested.Store(true)
			began, ending, settled = now, sig, time.After(pairingDelay)
		}
		if driverBy, allBy := heard.GraceDeadlines(stopGrace); !allBy.IsZero() {
			driver.Reset(time.Until(driverBy))
			all.Reset(time.Until(allBy))
			r.cutDriverGrace.Store(int64(driverBy.Sub(began)))
			if !before.HasFinalTerm() && heard.HasFinalTerm() {
				r.Log.Info("KILL will follow: the grace periods are shortened",
					zap.Duration("driver", time.Until(driverBy).Round(time.Second/10)),
					zap.Duration("all", time.Until(allBy).Round(time.Second/10)))
			}
		}
		// A signal that does not end the run is for the driver, except for SIGPIPE and SIGALRM.
		if !heard.IsEnd(sig) && sig != syscall.SIGPIPE && sig != syscall.SIGALRM {
			passOn(sig)
		}
	}
}

// pairingDelay is how long a TERM waits for the CONT that was sent before it: the Go runtime
// delivers pending signals in the order of their numbers.
const pairingDelay = 10 * time.Millisecond

// NewSignalFailure returns the failure for a signal to this daemon. by is the title of the launcher
// that has sent it, or empty if it is unknown.
func NewSignalFailure(sig os.Signal, host, by string, node int) *health.Failure {
	kind := health.Terminated
	if sig == os.Interrupt {
		kind = health.Interrupted
	}
	name := process.SignalName(sig.(syscall.Signal))
	f := health.NewFailure(kind, "node %d (%s) was told to end by %s", node, host, name)
	if by != "" {
		f.Message = fmt.Sprintf("%s ended the job: node %d (%s) got %s", by, node, host, name)
	}
	f.Signal = name
	return f
}

// Signals returns the channel of signals that a daemon handles. It must be called first, so that no
// signal is lost.
func Signals() <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	// PIPE is caught and ignored: otherwise a line to a closed standard error would end the daemon.
	ossignal.Notify(signals, syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGALRM)
	return signals
}
