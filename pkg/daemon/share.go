package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/daemon/stepwatch"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// startRunTasks sets the run directory and starts the tasks that need it. log is the name of the
// daemon's own log, and pace the polling pace of Control.
func (n *node) startRunTasks(dir *signal.Dir, log string, pace signal.Pace) {
	n.Dir = dir
	pace.MaxPause = min(pace.MaxPause, n.timing.MaxPollInterval)
	pace.MinPause = min(pace.MinPause, pace.MaxPause)
	n.ControlWatch = dir.NewWatch(signal.ControlDir, pace)
	n.Events.Open(dir, n.id, log)
	n.children.OpenLogs(dir, n.id.NodeIndex, n.id.Size, n.nodeName(n.id.NodeIndex))
	n.initCommands()
	n.Background(n.ControlWatch.Run)
	n.Background(n.watchShare)
}

// followSteps returns a task that follows the progress of the job. nodes is the head's watch of
// Nodes, and nil on other nodes.
func (n *node) followSteps(nodes *signal.Watch) func(ctx context.Context) {
	return func(ctx context.Context) {
		n.steps.Run(ctx, stepwatch.Store{Dir: n.Dir, Nodes: nodes, WriteTimeout: n.timing.SilenceTimeout, OnWriteError: n.LogWriteError})
	}
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
		silence, most := n.FileSystemSilence(), n.cfg.Times.Peer
		if n.toleratesShareOutage(time.Now()) {
			most = n.cfg.Times.Share
		}
		switch {
		case silence > most:
			n.CancelRun(n.shareTimeoutFailure(silence))
			return
		case silence > n.cfg.Times.Peer:
			if outwaited == 0 {
				n.Events.WriteEvent(eventlog.ShareChanged, eventlog.Fields{LinkFields: eventlog.LinkFields{Responsive: new(false)}})
				n.Log.Info("the shared file system does not respond: the job continues, because every peer link is healthy")
			}
			outwaited = silence
		case outwaited > 0:
			n.Events.WriteEvent(eventlog.ShareChanged, eventlog.Fields{LinkFields: eventlog.LinkFields{Responsive: new(true)}})
			n.Log.Info("the shared file system responds again", zap.Duration("after", outwaited.Round(time.Second/10)))
			outwaited = 0
		}
	}
}

// toleratesShareOutage reports whether an unresponsive file system is tolerated at present. Once
// the job runs, no daemon needs the file system: as long as heartbeats of all peers arrive on the
// peer links, only records are lost.
func (n *node) toleratesShareOutage(now time.Time) bool {
	return n.cfg.Times.ToleratesShareOutage() && n.links.CanReplaceShare(now)
}

// shareTimeoutFailure returns the failure that the file system has not answered for silence. If
// there have been no heartbeats on the peer links either, the failure is that this node is cut off.
func (n *node) shareTimeoutFailure(silence time.Duration) *health.Failure {
	if unheard, ever := n.links.TotalSilence(time.Now()); ever && unheard > n.timing.SilenceTimeout {
		return n.cutOffFailure(fmt.Sprintf("neither another node nor the shared file system has responded for %s", min(unheard, silence).Round(time.Second/10)))
	}
	return health.NewFailure(health.ShareUnusable, "cannot continue: the shared file system has not responded to %s for %s: check whether %s hangs on that node",
		n.nodeName(n.id.NodeIndex), silence.Round(time.Second/10), n.Dir.Path())
}

// heartbeatTask returns a task that writes this node's heartbeat files until ctx ends, in the
// subdirectory sub and named by state. While all peer links are healthy, it writes them rarely. If
// the file system refuses them with errors for too long, the task ends this node with that error,
// before the peers declare it lost without a reason. An unresponsive file system is the concern of
// watchShare.
func (n *node) heartbeatTask(sub string, state record.State) func(ctx context.Context) {
	return func(ctx context.Context) {
		tick := time.NewTicker(n.timing.HeartbeatInterval)
		defer tick.Stop()
		last, rests := time.Now(), 0
		refused := refusedHeartbeats(0)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// Skip heartbeats that are not needed.
			now := time.Now()
			if n.links.AreHealthy(now) && refused == 0 && now.Sub(last) < n.cfg.Times.RelaxedPollInterval() {
				continue
			}
			if rests++; n.placement.IsStandby() && rests%standbyBeatFactor != 0 {
				last = now
				continue
			}
			// Write one, and count errors in sequence.
			err := n.writeHeartbeat(ctx, sub, state)
			switch {
			case err == nil:
				last, refused = time.Now(), 0
			case ctx.Err() == nil && !signal.IsStalled(err):
				refused++
				if refused == refusalsBeforeLog {
					n.LogWriteError(err) // explains it in case the peers declare this node lost
				}
				most := n.timing.SilenceTimeout
				if n.toleratesShareOutage(now) {
					most = n.cfg.Times.Share
				}
				if refused.duration(n.timing.HeartbeatInterval) > most {
					n.CancelRun(health.AsFailure(err))
					return
				}
			}
		}
	}
}

// refusedHeartbeats is the number of consecutive heartbeats that the file system has refused.
type refusedHeartbeats int

// refusalsBeforeLog is the number of refusals after which the error is logged.
const refusalsBeforeLog refusedHeartbeats = 2

// duration returns how long the refused heartbeats have lasted, given the heartbeat interval.
func (r refusedHeartbeats) duration(beat time.Duration) time.Duration { return time.Duration(r) * beat }

// writeHeartbeat writes one heartbeat file of this node.
func (n *node) writeHeartbeat(ctx context.Context, sub string, state record.State) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.timing.SilenceTimeout, errors.New("the peers would miss the heartbeat"))
	defer cancel()
	return n.Dir.WriteHeartbeat(ctx, sub, state)
}

// checkNetworkLink ends this node's part in the run if no heartbeats arrive and its network
// interface is down. It does not depend on the file system, which may be unresponsive for the same
// reason.
func (n *node) checkNetworkLink(now time.Time) {
	silence, ever := n.links.TotalSilence(now)
	if !ever || silence < n.timing.SilenceTimeout || n.RunCtx.Err() != nil {
		return
	}
	if f := n.linkDownFailure(); f != nil {
		n.CancelRun(f)
	}
}

// linkDownFailure returns the failure that the network interface of this node's peer link, or of
// its address, is down. It returns nil if the interface is up or unknown.
func (n *node) linkDownFailure() *health.Failure {
	address, _ := n.cfg.Address()
	addr, err := netip.ParseAddr(address.Address)
	if local, linked := n.links.LocalAddr(); linked {
		addr, err = local, nil
	}
	if err != nil {
		return nil
	}
	link, down := peerlink.IsInterfaceDown(addr)
	if !down {
		return nil
	}
	return n.cutOffFailure("its network interface " + link + " is down")
}

// cutOffFailure returns the failure that the other nodes cannot reach this node; why is the
// evidence.
func (n *node) cutOffFailure(why string) *health.Failure {
	f := health.NewFailure(health.CutOff, "%s is cut off from the others: %s", n.nodeName(n.id.NodeIndex), why)
	f.LostNodes = []int{n.id.NodeIndex}
	return f
}
