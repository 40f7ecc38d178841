package run

import (
	"context"
	"math"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
)

// Heed ends the run at TERM or INT and where the launch has failed, ends the graces when the notices say so, and
// passes on to the driver what is meant for it, until ctx ends. host is this node's, and
// stopGrace what services have.
func (r *Records) Heed(ctx context.Context, signals <-chan os.Signal, host string, stopGrace time.Duration, passOn func(syscall.Signal)) {
	var heard health.Notices
	driver := time.AfterFunc(math.MaxInt64, func() { r.Insist(ErrHurry) })
	defer driver.Stop()
	all := time.AfterFunc(math.MaxInt64, func() { r.Hasten(ErrHurry) })
	defer all.Stop()
	for {
		var sig syscall.Signal
		select {
		case <-ctx.Done():
			return
		case got := <-signals:
			if why, is := got.(health.LaunchFailed); is {
				r.End(health.Failed(health.Launch, "%s", why))
				continue
			}
			sig = got.(syscall.Signal)
		}
		before := heard
		heard = heard.With(sig, time.Now())
		if !before.Final() && heard.Final() {
			r.Log.Info("TERM came with CONT, so KILL is near: the graces are cut", zap.Duration("to", health.EndTime))
		}
		if driverBy, allBy := heard.Limits(stopGrace); !allBy.IsZero() {
			driver.Reset(time.Until(driverBy))
			all.Reset(time.Until(allBy))
		}
		switch sig {
		case syscall.SIGTERM, syscall.SIGINT:
			r.Told.Store(true)
			r.End(Signalled(sig, host, int(r.Rank.Load())))
		case syscall.SIGPIPE:
		default:
			passOn(sig)
		}
	}
}

// Signalled is the failure that a signal to this daemon is.
func Signalled(sig os.Signal, host string, rank int) *health.Failure {
	kind := health.Terminated
	if sig == os.Interrupt {
		kind = health.Interrupted
	}
	f := health.Failed(kind, "rank %d (%s) was told to end by %s", rank, host, process.SignalName(sig.(syscall.Signal)))
	f.Signal = process.SignalName(sig.(syscall.Signal))
	return f
}
