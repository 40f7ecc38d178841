package daemon

import (
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// worker is a daemon that is not the head, or the daemon of a sandbox in a step of its own.
type worker struct {
	node     *node
	link     *headLink   // to the head; nil if there is none
	headHost string      // the head's own name of its host
	deciding atomic.Bool // this node decides the outcome, because the head publishes none
}

const (
	// pollCost is the time that one poll, which is three calls, takes of a file system that answers
	// about ten thousand calls a second.
	pollCost             = 300 * time.Microsecond
	maxSimultaneousPolls = 64 // the number of nodes that may poll at the same time
)

// headLink is a worker's peer link.
type headLink struct {
	worker        *peerlink.Worker
	addresses     []string      // the head's addresses
	started       time.Time     // the time of the first connection attempt
	connectedOnce sync.Once     // guards the closing of connected
	connected     chan struct{} // closed at the first connection
	isNew         atomic.Bool   // nothing has arrived on the connection yet
}

// prepareLink prepares the state of the peer link, before [node.startRunTasks], whose tasks read
// it.
func (w *worker) prepareLink(job record.Job) {
	if w.node.cfg.Lifeline != config.LinkOff && len(job.LinkAddresses) > 0 {
		w.node.Links = health.NewLinks(health.LinksConfig{
			Interval: w.node.cfg.Times.LinkHeartbeatInterval(), Required: 1,
			NeededPeers: func() map[int]int64 { return map[int]int64{0: 0} }, OutageLimit: w.node.Timing.SilenceTimeout,
			TCPState:     func(int) peerlink.TCPState { return w.link.worker.TCPState() },
			LocalAddress: func() netip.Addr { return w.link.worker.LocalAddress() },
		}, time.Now())
	}
}

// startLink starts the peer link that prepareLink has prepared, if any.
func (w *worker) startLink(job record.Job) {
	if w.node.Links == nil {
		return
	}
	w.link = &headLink{addresses: job.LinkAddresses, started: time.Now(), connected: make(chan struct{})}
	cfg := peerlink.Config{Key: w.node.Dir.DeriveSecret(peerlink.SecretName), Nodes: w.node.id.Size,
		HeartbeatInterval: w.node.cfg.Times.LinkHeartbeatInterval(), Jitter: w.node.cfg.Access.Jitter}
	unresponsive := func() bool { return w.node.FileSystemSilence() > lifecycle.UnresponsiveTimeout }
	w.link.worker = peerlink.NewWorker(cfg, w.node.id.NodeIndex, w.node.cfg.Network, job.LinkAddresses,
		&headLinkHandler{w}, unresponsive)
	w.node.Notify, w.node.Reports.Send = w.link.worker.NotifyHead, w.link.worker.SendReport
	w.node.exits.ForwardTo(w.link.worker.NotifyExit)
	w.node.commands.Dial = w.headDialer(peerlink.CommandStream)
	w.link.worker.HandleStreamRequests(w.node.commands.HandleConnRequest)
	w.link.worker.HandleReports(w.acceptHeadReport)
	w.node.Background(w.link.worker.Run)
	w.node.Background(w.watchHeadLink)
}

// acceptHeadReport takes over a record that the head has sent, as if a listing had shown its name.
// A head that ends because its own mount does not work is lost to the others: such an end counts only
// where no new poll succeeds, either. A full file system is that of all nodes.
func (w *worker) acceptHeadReport(_ int, name string, content []byte) {
	accept := func() {
		if err := w.node.Dir.AcceptHeadReport(name, content); err != nil {
			w.node.Log.Warn("a record of the head is not accepted", zap.Error(err))
		}
	}
	var rec record.Abort
	if json.Unmarshal(content, &rec) != nil || rec.Cause.Kind != health.ShareUnusable || rec.Cause.ShareIsFull {
		accept()
		return
	}
	// On a busy machine, a poll may take a second although the mount works.
	within := max(w.node.Timing.SilenceTimeout/2, 2*lifecycle.UnresponsiveTimeout)
	w.node.Background(func(ctx context.Context) {
		if !w.node.IsResponsive(ctx, within) {
			accept()
		}
	})
}

// headDialer returns a function that opens a further connection to the head for the given purpose.
func (w *worker) headDialer(purpose peerlink.StreamKind) func(context.Context) (io.ReadWriteCloser, error) {
	return peerlink.StreamDialer(purpose, w.node.Dir.DeriveSecret(peerlink.SecretName), w.node.id.NodeIndex,
		w.node.cfg.Network, w.link.addresses)
}

// watchHeadLink adapts the polling interval of Control to the peer link: once the job runs, polls
// are rare while it is healthy. It warns once if no link can be made.
func (w *worker) watchHeadLink(ctx context.Context) {
	tick := time.NewTicker(w.node.cfg.Times.LinkHeartbeatInterval() / 2)
	defer tick.Stop()
	warned, pace := false, w.node.Timing.MaxPollInterval // [worker.slowPolling] sets this pace
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// Warn if there is no link.
		now := time.Now()
		w.node.Links.RecordTick(now)
		w.node.CheckNetworkLink(now)
		ever := w.node.Links.Peer(0, now).Known
		if !ever && !warned && now.Sub(w.link.started) > w.node.cfg.Times.Peer {
			warned = true
			w.node.Log.Warn("cannot establish a peer link to the head: heartbeat files replace it, and "+
				"failures are detected later",
				zap.String("host", w.node.id.Host), zap.Strings("tried", w.link.addresses))
		}
		if wanted := w.controlPollInterval(now, ever); w.node.Links.IsRunning() && wanted != pace {
			pace = wanted
			w.node.ControlWatch.SlowDown(pace)
		}
	}
}

// controlPollInterval returns the maximum interval between two polls of Control while only the end
// is expected there.
func (w *worker) controlPollInterval(now time.Time, ever bool) time.Duration {
	switch {
	case w.node.Links.AllOnTime(now):
		return w.node.cfg.Times.RelaxedPollInterval()
	case ever: // but not healthy now
		return health.HeadHeartbeatTiming(w.node.cfg.Times.Peer, w.node.id.Size).MaxPollInterval
	default:
		return w.node.Timing.MaxPollInterval
	}
}

// newDuplicateError returns the failure of a daemon that is not the first one of its node.
func (w *worker) newDuplicateError(why string) *lifecycle.DuplicateDaemonError {
	f := health.NewFailure(health.Launch, "cannot take part as %s: %s; start one daemon per node",
		w.node.nodeName(w.node.id.NodeIndex), why)
	f.Phase = w.node.Events.CurrentPhase()
	return &lifecycle.DuplicateDaemonError{Failure: f}
}

// slowPolling makes polls of Control rare and records that the job runs: only its end is expected
// there.
func (w *worker) slowPolling() {
	w.node.ControlWatch.SlowDown(w.node.Timing.MaxPollInterval)
	w.node.Links.SetRunning(w.node.cfg.Times.ToleratesShareOutage())
}
