package daemon

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/exec/rsh"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/signal"
)

// failureTracker is the head's failure detector: it collects the failures and losses of all nodes,
// from their first signs to the verdict.
type failureTracker struct {
	*node
	nodeWatch  *signal.Watch   // watches Nodes
	peerLinks  *peerlink.Links // nil if there are no peer links
	membership *membership.Membership
	updateTeam func(l signal.Listing) // [membershipManager.updateTeam]

	rendezvous  rendezvous.LazyHead // the rendezvous of ranks
	broker      *rsh.Broker
	settling    atomic.Bool // the verdict waits until it is known which peers are lost
	resultFinal atomic.Bool // the result is final, and later losses are ignored

	mu       sync.Mutex
	failures []health.ObservedFailure // failures so far, guarded by mu
}

// isEveryPeer reports whether the silent nodes are exactly the peers that should be alive.
func (d *failureTracker) isEveryPeer(silent []int) bool {
	alive := d.membership.MonitoredPeers(d.membership.ExpectedPeers(d.nodeWatch.LastListing()), false)
	for _, nodeIndex := range silent {
		if _, needed := alive[nodeIndex]; !needed {
			return false
		}
	}
	return len(silent) == len(alive)
}

// recordLoss records failure f, the loss of nodes, which was detected at the given time. It ends
// what their ranks and remote commands wait for.
func (d *failureTracker) recordLoss(f *health.Failure, nodes []int, at time.Time) {
	record := f.Failure
	record.Header, record.Phase, record.LostNodes = d.recordHeader(), d.Events.CurrentPhase(), nodes
	for _, nodeIndex := range nodes {
		d.broker.CloseNodeConns(nodeIndex)
		d.rendezvous.MarkNodeLost(slices.Index(d.membership.MemberNodes(), nodeIndex), record.Message)
	}
	d.handleFailure(record, at)
}

// lostNodes returns the set of nodes that are lost according to the recorded failures.
func (d *failureTracker) lostNodes() map[int]bool {
	missed := make(map[int]bool)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, failure := range d.failures {
		for _, nodeIndex := range failure.LostNodes {
			missed[nodeIndex] = true
		}
	}
	return missed
}

// applyLinkLiveness reports the heartbeats that have arrived on the peer links to daemons, which
// otherwise knows only those in listings. alive are the nodes that should be alive.
func (d *failureTracker) applyLinkLiveness(daemons *health.Liveness, alive map[int]int64, now time.Time) {
	if d.peerLinks == nil {
		return
	}
	for nodeIndex := range alive {
		if at, heard := d.peerLinks.LastHeartbeat(nodeIndex, now); heard {
			daemons.RecordSignOfLife(nodeIndex, at)
		}
		// A peer with an unresponsive file system cannot write heartbeat files. If this node could not
		// poll either, the whole file system has failed, and this node's mount may recover a moment
		// before the peer's: then the peer is not lost.
		if known, _ := d.peerLinks.PeerState(nodeIndex); known.ShareUnresponsive {
			daemons.ExcuseStall(nodeIndex)
		}
	}
}

// checkLinkLiveness declares peers lost by their heartbeats on the peer links alone, while the job
// runs and no poll of the file system succeeds. If all peers are silent, this node itself may be
// unreachable, which watchShare handles.
func (d *failureTracker) checkLinkLiveness(now time.Time) {
	if d.FileSystemSilence() <= d.cfg.Times.Peer || !d.peerLinks.IsRunning() || d.RunCtx.Err() != nil {
		return
	}
	// silent are the nodes whose heartbeats have stopped for the peer timeout. unheard also has those
	// that will be silent in less than a heartbeat interval, and those that never had a link.
	var silent, unheard []int
	longest := time.Duration(0)
	missed := d.lostNodes()
	for nodeIndex := range d.membership.MonitoredPeers(d.membership.ExpectedPeers(d.nodeWatch.LastListing()), false) {
		quiet, ever := d.peerLinks.PeerSilence(nodeIndex, now)
		if !ever || quiet >= d.timing.SilenceTimeout-d.cfg.Times.LinkHeartbeatInterval() {
			unheard = append(unheard, nodeIndex)
		}
		if ever && quiet >= d.timing.SilenceTimeout && !missed[nodeIndex] {
			silent, longest = append(silent, nodeIndex), max(longest, quiet)
		}
	}
	if len(silent) == 0 || d.isEveryPeer(unheard) {
		return
	}
	slices.Sort(silent)
	for _, f := range d.lossFailures(silent, longest) {
		f.RecordDelay = max(0, longest-d.timing.HeartbeatInterval)
		d.recordLoss(f, f.LostNodes, now)
	}
}

// allPeersAlive reports whether every peer that should be alive has sent a heartbeat on its link
// within the peer timeout plus one interval. The interval leaves checkLinkLiveness time to declare
// a peer lost before this node stops tolerating the unresponsive file system.
func (d *failureTracker) allPeersAlive(now time.Time) bool {
	for nodeIndex := range d.membership.MonitoredPeers(d.membership.ExpectedPeers(d.nodeWatch.LastListing()), false) {
		if quiet, ever := d.peerLinks.PeerSilence(nodeIndex, now); !ever || quiet >= d.timing.SilenceTimeout+d.cfg.Times.LinkHeartbeatInterval() {
			return false
		}
	}
	return true
}

// lossKind classifies the loss of a silent worker according to its peer link.
func (d *failureTracker) lossKind(nodeIndex int) health.Kind {
	if d.peerLinks == nil {
		return health.PeerLost
	}
	known, ever := d.peerLinks.PeerState(nodeIndex)
	switch {
	case !ever:
		return health.PeerLost
	case !known.Connected && known.CloseReason == peerlink.Goodbye: // it could not publish that it has ended
		return health.HostHangs
	case known.Connected && (known.ShareUnresponsive || d.peerLinks.Head.WorkerTCPState(nodeIndex).Acknowledges):
		return health.HostHangs
	case !known.Connected && known.CloseReason == peerlink.Broken:
		return health.DaemonDied // the kernel of its host is alive, because it has sent the reset
	default:
		return health.HostLost
	}
}

// lossFailures returns one failure for each kind of loss among the silent nodes. quiet is how long
// they have been silent. If it is the head that is unreachable, it returns that as the only
// failure.
func (d *failureTracker) lossFailures(silent []int, quiet time.Duration) []*health.Failure {
	since := quiet.Round(time.Second / 10)
	kinds := make(map[health.Kind][]int)
	for _, nodeIndex := range silent {
		kind := d.lossKind(nodeIndex)
		kinds[kind] = append(kinds[kind], nodeIndex)
	}
	if f := d.headCutOffFailure(kinds[health.HostLost], since); f != nil {
		return []*health.Failure{f}
	}
	return health.PeerLossFailures(kinds, since, d.nodeName, d.nodeNames)
}

// headCutOffFailure returns the failure that the head itself is cut off from the lost nodes: its
// network interface is down, or there are several other nodes and none of them answers. It returns
// nil if there is no evidence of that.
func (d *failureTracker) headCutOffFailure(lost []int, since time.Duration) *health.Failure {
	if len(lost) == 0 {
		return nil
	}
	if f := d.linkDownFailure(); f != nil {
		return f
	}
	if len(lost) > 1 && d.isEveryPeer(lost) {
		return d.cutOffFailure(fmt.Sprintf("none of the %d others has responded for %s", len(lost), since))
	}
	return nil
}

// shareOutageReporter logs, on the head, the nodes for which the shared file system is
// unresponsive. The zero value is ready for use.
type shareOutageReporter struct {
	since    time.Time // when the present outage was detected; zero if there is none
	reported bool
}

// logChanges logs an outage that lasts longer than the peer timeout, and its end. It must be called
// regularly.
func (o *shareOutageReporter) logChanges(d *failureTracker, now time.Time) {
	sick := d.peerLinks.UnresponsivePeers()
	if d.FileSystemSilence() > lifecycle.UnresponsiveTimeout {
		sick = append([]int{0}, sick...)
	}
	switch {
	case len(sick) == 0 && o.reported:
		d.Log.Warn("the shared file system responds to all nodes again", zap.Duration("after", now.Sub(o.since).Round(time.Second/10)))
		fallthrough
	case len(sick) == 0:
		*o = shareOutageReporter{}
	case o.since.IsZero():
		o.since = now
	case !o.reported && now.Sub(o.since) > d.cfg.Times.Peer && d.peerLinks.IsRunning() && d.RunCtx.Err() == nil:
		o.reported = true
		d.Log.Warn("the shared file system does not respond to "+d.nodeNames(sick)+": the job continues while every peer link is healthy, for at most --share-timeout",
			zap.Duration("timeout", d.cfg.Times.Share))
	}
}
