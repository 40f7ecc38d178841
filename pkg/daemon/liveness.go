package daemon

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
)

// failureState is what the head knows of the failures and losses of all nodes, from their first
// signs to the verdict.
type failureState struct {
	settling    atomic.Bool           // the verdict waits until it is known which peers are lost
	resultFinal atomic.Bool           // the result is final, and later losses are ignored
	silentAtEnd atomic.Pointer[[]int] // nodes whose heartbeats have stopped at the end; nil before
	failures    health.FailureSet
	remoteExits lifecycle.RecentExits // that other nodes have reported
}

// monitoredPeers returns the members that should be alive, with their heartbeats.
func (h *head) monitoredPeers() map[int]int64 {
	return h.membership.MonitoredPeers(h.membership.ExpectedPeers(h.nodeWatch.LastListing()), false)
}

// isEveryPeer reports whether the silent nodes are exactly the peers that should be alive.
func (h *head) isEveryPeer(silent []int) bool {
	alive := h.monitoredPeers()
	return len(silent) == len(alive) && !slices.ContainsFunc(silent, func(nodeIndex int) bool {
		_, needed := alive[nodeIndex]
		return !needed
	})
}

// recordLoss records the loss f of nodes, which was detected at a time, and ends what waits for
// them; once the result is final, only roles do.
func (h *head) recordLoss(f *health.Failure, nodes []int, at time.Time) {
	if h.resultFinal.Load() {
		h.membership.LoseAtEnd(nodes)
		return
	}
	record := f.Failure
	record.Header, record.Phase, record.LostNodes = h.recordHeader(), h.Events.CurrentPhase(), nodes
	for _, nodeIndex := range nodes {
		h.requests.CloseNodeConns(nodeIndex)
		h.rendezvous.MarkNodeLost(nodeIndex, record.Message)
	}
	h.handleFailure(record, at)
}

// checkLinkLiveness declares peers lost by their heartbeats on the peer links alone, while the job
// runs and no poll of the file system succeeds.
func (h *head) checkLinkLiveness(now time.Time) {
	if h.FileSystemSilence() <= h.cfg.Times.Peer || !h.Links.IsRunning() || h.RunCtx.Err() != nil {
		return
	}
	silent, longest := h.Links.SilentPeers(h.monitoredPeers(), h.failures.LostNodes(), h.Timing.SilenceTimeout, now)
	h.recordSilence(silent, longest, now)
}

// recordSilence records the loss of nodes that have been silent for quiet. They may have failed as
// early as their first missing heartbeat.
func (h *head) recordSilence(silent []int, quiet time.Duration, at time.Time) {
	for _, f := range h.lossFailures(silent, quiet) {
		f.RecordDelay = max(0, quiet-h.Timing.HeartbeatInterval)
		h.recordLoss(f, f.LostNodes, at)
	}
}

// lossFailures returns one failure for each kind of loss among the silent nodes, or only that the
// head itself is unreachable.
func (h *head) lossFailures(silent []int, quiet time.Duration) []*health.Failure {
	since := quiet.Round(time.Second / 10)
	kinds := make(map[health.Kind][]int)
	for _, nodeIndex := range silent {
		kind := h.Links.LossKind(nodeIndex, time.Now())
		kinds[kind] = append(kinds[kind], nodeIndex)
	}
	if f := h.headCutOffFailure(kinds[health.HostLost], since); f != nil {
		return []*health.Failure{f}
	}
	return health.PeerLossFailures(kinds, since, h.nodeName, h.nodeNames)
}

// headCutOffFailure returns the failure that the head is cut off, if its interface is down or none
// of several other nodes answers, and otherwise nil.
func (h *head) headCutOffFailure(lost []int, since time.Duration) *health.Failure {
	if len(lost) == 0 {
		return nil
	}
	if f := h.LinkDownFailure(); f != nil {
		return f
	}
	if len(lost) > 1 && h.isEveryPeer(lost) {
		return h.CutOffFailure(fmt.Sprintf("none of the %d others has responded for %s", len(lost), since))
	}
	return nil
}
