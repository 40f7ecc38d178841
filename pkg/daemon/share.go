package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/remote"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// begin sets the run directory and starts the tasks that need it. log is the name of the daemon's
// own log, and pace the polling pace of Control.
func (n *node) begin(dir *signal.Dir, log string, pace signal.Pace) {
	n.Dir = dir
	pace.Steady = min(pace.Steady, n.tempo.Look)
	pace.Fast = min(pace.Fast, pace.Steady)
	n.Control = dir.Watch(signal.Control, pace)
	n.Trail.Open(dir, n.id, log)
	n.children.Open(dir, n.id.Rank, n.id.Size, n.name(n.id.Rank))
	n.commands = runsRequests(n)
	n.remote = remote.NewNode(remote.Daemon{Private: n.private.Dir, Start: n.starts(n.children.Start), Background: n.Background, Environ: n.cfg.Environ, Log: n.Log})
	n.Background(n.Control.Run)
	n.Background(n.watchShare)
}

// watchShare ends this node's part in the run when the file system has been unresponsive for longer
// than the peer timeout, because then the state of the peers is unknown. If the job tolerates that,
// the limit is --share-timeout instead.
func (n *node) watchShare(ctx context.Context) {
	tick := time.NewTicker(n.cfg.Times.Peer / 20)
	defer tick.Stop()
	var outwaited time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// Compare with the present limit, which may change at any time.
		silence, most := n.Silence(), n.cfg.Times.Peer
		if n.outwaits(time.Now()) {
			most = n.cfg.Times.Share
		}
		switch {
		case silence > most:
			n.End(n.unanswered(silence))
			return
		case silence > n.cfg.Times.Peer:
			if outwaited == 0 {
				n.Trail.Event(trail.Share, trail.Fields{Answers: new(false)})
				n.Log.Info("the share does not answer: the job goes on, as every lifeline is well")
			}
			outwaited = silence
		case outwaited > 0:
			n.Trail.Event(trail.Share, trail.Fields{Answers: new(true)})
			n.Log.Info("the share answers again", zap.Duration("after", outwaited.Round(time.Second/10)))
			outwaited = 0
		}
	}
}

// outwaits reports whether an unresponsive file system is tolerated at present. Once the job runs,
// no daemon needs the file system: as long as heartbeats of all peers arrive on the peer links,
// only records are lost.
func (n *node) outwaits(now time.Time) bool {
	return n.cfg.Times.Outwaits() && n.ties.bear(now)
}

// unanswered returns the failure that the file system has not answered for silence. If there have
// been no heartbeats on the peer links either, the failure is that this node is cut off.
func (n *node) unanswered(silence time.Duration) *health.Failure {
	if n.ties != nil {
		if unheard, ever := n.ties.Silence(time.Now()); ever && unheard > n.tempo.Silent {
			return n.cutOff(fmt.Sprintf("neither another node nor the share has answered for %s", min(unheard, silence).Round(time.Second/10)))
		}
	}
	return health.Failed(health.Share, "cannot go on: the share has not answered %s for %s: see whether %s hangs on that node",
		n.name(n.id.Rank), silence.Round(time.Second/10), n.Dir.Path())
}

// pulse returns a task that writes this node's heartbeat files until ctx ends, in the subdirectory
// sub and named by state. While all peer links are healthy, it writes them rarely. If the file
// system refuses them with errors for too long, the task ends this node with that error, before the
// peers declare it lost without a reason. An unresponsive file system is the concern of watchShare.
func (n *node) pulse(sub, state string) func(ctx context.Context) {
	return func(ctx context.Context) {
		tick := time.NewTicker(n.tempo.Beat)
		defer tick.Stop()
		last, rests := time.Now(), 0
		refused := refusals(0)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// Skip heartbeats that are not needed.
			now := time.Now()
			if n.ties.areCalm(now) && refused == 0 && now.Sub(last) < n.cfg.Times.Rest() {
				continue
			}
			if rests++; n.post.StandsBy() && rests%standbyPart != 0 {
				last = now
				continue
			}
			// Write one, and count errors in sequence.
			err := n.beat(ctx, sub, state)
			switch {
			case err == nil:
				last, refused = time.Now(), 0
			case ctx.Err() == nil && !signal.Stalled(err):
				refused++
				if refused == refusedTwice {
					n.Logged(err) // explains it in case the peers declare this node lost
				}
				most := n.tempo.Silent
				if n.outwaits(now) {
					most = n.cfg.Times.Share
				}
				if refused.last(n.tempo.Beat) > most {
					n.End(health.AsFailure(err))
					return
				}
			}
		}
	}
}

// refusals is the number of consecutive heartbeats that the file system has refused.
type refusals int

// refusedTwice is the number of refusals after which the error is logged.
const refusedTwice refusals = 2

// last returns how long the refused heartbeats have lasted, given the heartbeat interval.
func (r refusals) last(beat time.Duration) time.Duration { return time.Duration(r) * beat }

// beat writes one heartbeat file of this node.
func (n *node) beat(ctx context.Context, sub, state string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.tempo.Silent, errors.New("the peers would miss the beat"))
	defer cancel()
	return n.Dir.Beat(ctx, sub, state)
}

// watchLink ends this node's part in the run if no heartbeats arrive and its network interface is
// down. It does not depend on the file system, which may be unresponsive for the same reason.
func (n *node) watchLink(now time.Time) {
	silence, ever := n.ties.Silence(now)
	if !ever || silence < n.tempo.Silent || n.Life.Err() != nil {
		return
	}
	if f := n.linkDown(); f != nil {
		n.End(f)
	}
}

// linkDown returns the failure that the network interface of this node's peer link, or of its
// address, is down. It returns nil if the interface is up or unknown.
func (n *node) linkDown() *health.Failure {
	address, _ := n.cfg.Address()
	addr, err := netip.ParseAddr(address)
	if n.ties != nil && n.ties.address != nil {
		addr, err = n.ties.address(), nil
	}
	if err != nil {
		return nil
	}
	link, down := lifeline.LinkDown(addr)
	if !down {
		return nil
	}
	return n.cutOff("its network interface " + link + " is down")
}

// cutOff returns the failure that the other nodes cannot reach this node; why is the evidence.
func (n *node) cutOff(why string) *health.Failure {
	f := health.Failed(health.CutOff, "%s is cut off from the others: %s", n.name(n.id.Rank), why)
	f.Lost = []int{n.id.Rank}
	return f
}
