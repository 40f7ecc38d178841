package daemon

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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

	rendezvous  rendezvous.Worlds // the worlds of ranks
	broker      *rsh.Broker
	settling    atomic.Bool // the verdict waits until it is known which peers are lost
	resultFinal atomic.Bool // the result is final, and later losses are ignored
	failures    health.FailureSet
	remoteExits lifecycle.RecentExits // that other nodes have reported
	// nodes whose daemon of a sandbox in a step of its own is lost
	lostSandboxes struct {
		sync.Mutex
		nodes []int
	}
}

// monitoredPeers returns the members that should be alive, with their heartbeats.
func (d *failureTracker) monitoredPeers() map[int]int64 {
	return d.membership.MonitoredPeers(d.membership.ExpectedPeers(d.nodeWatch.LastListing()), false)
}

// isEveryPeer reports whether the silent nodes are exactly the peers that should be alive.
func (d *failureTracker) isEveryPeer(silent []int) bool {
	alive := d.monitoredPeers()
	return len(silent) == len(alive) && !slices.ContainsFunc(silent, func(nodeIndex int) bool {
		_, needed := alive[nodeIndex]
		return !needed
	})
}

// recordLoss records failure f, the loss of nodes, which was detected at the given time. It ends
// what their ranks and remote commands wait for; once the result is final, only what roles wait for.
func (d *failureTracker) recordLoss(f *health.Failure, nodes []int, at time.Time) {
	if d.resultFinal.Load() {
		d.membership.LoseAtEnd(nodes)
		return
	}
	if d.cfg.Sandbox.Step {
		if nodes = d.recordSandboxLosses(f, nodes, at); len(nodes) == 0 {
			return
		}
	}
	record := f.Failure
	record.Header, record.Phase, record.LostNodes = d.recordHeader(), d.Events.CurrentPhase(), nodes
	for _, nodeIndex := range nodes {
		d.broker.CloseNodeConns(nodeIndex)
		d.rendezvous.MarkNodeLost(nodeIndex, record.Message)
	}
	d.handleFailure(record, at)
}

// checkLinkLiveness declares peers lost by their heartbeats on the peer links alone, while the job
// runs and no poll of the file system succeeds.
func (d *failureTracker) checkLinkLiveness(now time.Time) {
	if d.FileSystemSilence() <= d.cfg.Times.Peer || !d.Links.IsRunning() || d.RunCtx.Err() != nil {
		return
	}
	silent, longest := d.Links.SilentPeers(d.monitoredPeers(), d.failures.LostNodes(), d.Timing.SilenceTimeout, now)
	d.recordSilence(silent, longest, now)
}

// recordSilence records the loss of nodes that have been silent for quiet, as detected at the given
// time. They may have failed as early as the time of their first missing heartbeat.
func (d *failureTracker) recordSilence(silent []int, quiet time.Duration, at time.Time) {
	for _, f := range d.lossFailures(silent, quiet) {
		f.RecordDelay = max(0, quiet-d.Timing.HeartbeatInterval)
		d.recordLoss(f, f.LostNodes, at)
	}
}

// lossFailures returns one failure for each kind of loss among the silent nodes. quiet is how long
// they have been silent. If it is the head that is unreachable, it returns that as the only
// failure.
func (d *failureTracker) lossFailures(silent []int, quiet time.Duration) []*health.Failure {
	since := quiet.Round(time.Second / 10)
	kinds := make(map[health.Kind][]int)
	for _, nodeIndex := range silent {
		kind := d.Links.LossKind(nodeIndex, time.Now())
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
	if f := d.LinkDownFailure(); f != nil {
		return f
	}
	if len(lost) > 1 && d.isEveryPeer(lost) {
		return d.CutOffFailure(fmt.Sprintf("none of the %d others has responded for %s", len(lost), since))
	}
	return nil
}
