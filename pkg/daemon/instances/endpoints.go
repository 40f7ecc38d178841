package instances

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// followEndpoints replaces the files of endpoints at each new list of ready instances. Before the
// gate a node reads only lists that it may need: when one of its instances starts, and while one
// is not ready.
func (n *Node) followEndpoints(ctx context.Context) {
	_, _ = n.cfg.ControlWatch.FollowListings(ctx, func(l signal.Listing) bool {
		if n.waiting.Load() > 0 || l.HasName(signal.NameGateOpen) {
			n.loadEndpoints(ctx, l)
		}
		return false
	})
}

// loadEndpoints reads the newest list of ready instances in a listing of the control directory,
// unless it is known, and replaces the files of endpoints.
func (n *Node) loadEndpoints(ctx context.Context, l signal.Listing) {
	if !n.writing.Take(ctx) {
		return
	}
	defer n.writing.Leave()
	number := l.Newest(signal.SeriesLive)
	if number < n.nextList {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, recordReadTimeout, health.ErrDeadline)
	defer cancel()
	var live record.LiveInstances
	if err := n.cfg.Dir.ReadRecord(ctx, signal.ControlDir, signal.SeriesLive.Name(number), &live); err != nil {
		return // a newer one follows, or the share does not respond
	}
	if err := n.loadPlan(ctx, l); err != nil {
		return // the next listing shows both again
	}
	n.nextList = number + 1
	n.endpoints.SetReady(live.Ready)
	n.endpoints.Write(n.known().Plan)
}

// setServing records whether an instance of this node serves, and replaces the files of endpoints. The
// returned channel is closed after that.
func (n *Node) setServing(instance int, serves bool) (written <-chan struct{}) {
	done := make(chan struct{})
	if !n.endpoints.SetServing(instance, serves) {
		close(done)
		return done
	}
	n.cfg.Background(func(context.Context) {
		defer close(done)
		n.endpoints.Write(n.known().Plan)
	})
	return done
}

const (
	// withdrawalDelay is how long after the exit of a process its endpoint is withdrawn on other nodes: at
	// an end by a signal to all processes, nothing needs to be published.
	withdrawalDelay = 50 * time.Millisecond
	// maxFileWait is how long the files of endpoints may take to be written before a process is stopped.
	maxFileWait = 100 * time.Millisecond
)

// withdraw takes the endpoints of an instance that does not serve any more out of the files: on this node
// at once, and on the others without waiting for the record of its exit.
func (s *supervisor) withdraw(g *generation, number int) {
	if len(s.role.Program.Ports) == 0 || s.role.BuiltIn != "" || s.cfg.RunCtx.Err() != nil {
		return
	}
	written := s.setServing(s.instance.Number, false)
	s.publishReadiness(number, g.ready.Withdraw())
	ctxutil.AwaitDoneFor(written, maxFileWait)
}

// withdrawAtExit withdraws the instance when one of its processes has exited that should not have, unless
// ctx ends before. An exit that is published at once is sufficient for other nodes.
func (s *supervisor) withdrawAtExit(ctx context.Context, one startedProcess, g *generation, number int) {
	if !ctxutil.AwaitDone(ctx, one.Ended()) || s.mayEnd() || s.role.BuiltIn != "" {
		return
	}
	s.setServing(s.instance.Number, false)
	if service.SignalDelay(one.Exit()) > 0 && ctxutil.SleepContext(ctx, withdrawalDelay) {
		s.withdraw(g, number)
	}
}
