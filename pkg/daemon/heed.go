package daemon

import (
	"context"
	"math"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/run"
)

// heedSignals ends the run at TERM or INT, ends the graces when the notices say
// so, and passes on to the driver what is meant for it.
func (n *node) heedSignals(ctx context.Context) {
	var heard health.Notices
	driver := time.AfterFunc(math.MaxInt64, func() { n.Insist(run.ErrHurry) })
	defer driver.Stop()
	all := time.AfterFunc(math.MaxInt64, func() { n.Hasten(run.ErrHurry) })
	defer all.Stop()
	for {
		var sig syscall.Signal
		select {
		case <-ctx.Done():
			return
		case got := <-n.cfg.Signals:
			sig = got.(syscall.Signal)
		}
		before := heard
		heard = heard.With(sig, time.Now())
		if !before.Final() && heard.Final() {
			n.Log.Info("TERM came with CONT, so KILL is near: the graces are cut", zap.Duration("to", health.EndTime))
		}
		if driverBy, allBy := heard.Limits(n.cfg.Times.StopGrace); !allBy.IsZero() {
			driver.Reset(time.Until(driverBy))
			all.Reset(time.Until(allBy))
		}
		switch sig {
		case syscall.SIGTERM, syscall.SIGINT:
			n.Told.Store(true)
			n.End(signalled(sig, n.id.Host, int(n.Rank.Load())))
		case syscall.SIGPIPE:
		default:
			n.children.PassOn(sig)
		}
	}
}

// signalled is the failure that a signal to this daemon is.
func signalled(sig os.Signal, host string, rank int) *health.Failure {
	kind := health.Terminated
	if sig == os.Interrupt {
		kind = health.Interrupted
	}
	f := health.Failed(kind, "rank %d (%s) was told to end by %s", rank, host, process.SignalName(sig.(syscall.Signal)))
	f.Signal = process.SignalName(sig.(syscall.Signal))
	return f
}
