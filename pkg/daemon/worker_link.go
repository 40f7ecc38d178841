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
	*node
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
	if w.cfg.Lifeline != config.LinkOff && len(job.LinkAddresses) > 0 {
		w.Links = health.NewLinks(health.LinksConfig{
			Interval: w.cfg.Times.LinkHeartbeatInterval(), Required: 1,
			NeededPeers: func() map[int]int64 { return map[int]int64{0: 0} }, OutageLimit: w.Timing.SilenceTimeout,
			TCPState:     func(int) peerlink.TCPState { return w.link.worker.TCPState() },
			LocalAddress: func() netip.Addr { return w.link.worker.LocalAddress() },
		}, time.Now())
	}
}

// startLink starts the peer link that prepareLink has prepared, if any.
func (w *worker) startLink(job record.Job) {
	if w.Links == nil {
		return
	}
	w.link = &headLink{addresses: job.LinkAddresses, started: time.Now(), connected: make(chan struct{})}
	cfg := peerlink.Config{Key: w.Dir.DeriveSecret(peerlink.SecretName), Nodes: w.id.Size,
		HeartbeatInterval: w.cfg.Times.LinkHeartbeatInterval(), Jitter: w.cfg.Access.Jitter}
	unresponsive := func() bool { return w.FileSystemSilence() > lifecycle.UnresponsiveTimeout }
	w.link.worker = peerlink.NewWorker(cfg, w.id.NodeIndex, w.cfg.Network, job.LinkAddresses,
		&headLinkHandler{w}, unresponsive)
	w.Notify, w.Reports.Send = w.link.worker.NotifyHead, w.link.worker.SendReport
	w.exits.ForwardTo(w.link.worker.NotifyExit)
	w.commands.Dial = w.headDialer(peerlink.CommandStream)
	w.link.worker.HandleStreamRequests(w.commands.HandleConnRequest)
	w.link.worker.HandleReports(w.acceptHeadReport)
	w.Background(w.link.worker.Run)
	w.Background(w.watchHeadLink)
}

// acceptHeadReport takes over a record that the head has sent, as if a listing had shown its name.
// A head that ends because its own mount does not work is lost to the others: such an end counts only
// where no new poll succeeds, either. A full file system is that of all nodes.
func (w *worker) acceptHeadReport(_ int, name string, content []byte) {
	accept := func() {
		if err := w.Dir.AcceptHeadReport(name, content); err != nil {
			w.Log.Warn("a record of the head is not accepted", zap.Error(err))
		}
	}
	var rec record.Abort
	if json.Unmarshal(content, &rec) != nil || rec.Cause.Kind != health.ShareUnusable || rec.Cause.ShareIsFull {
		accept()
		return
	}
	// On a busy machine, a poll may take a second although the mount works.
	within := max(w.Timing.SilenceTimeout/2, 2*lifecycle.UnresponsiveTimeout)
	w.Background(func(ctx context.Context) {
		if !w.IsResponsive(ctx, within) {
			accept()
		}
	})
}

// headDialer returns a function that opens a further connection to the head for the given purpose.
func (w *worker) headDialer(purpose peerlink.StreamKind) func(context.Context) (io.ReadWriteCloser, error) {
	return peerlink.StreamDialer(purpose, w.Dir.DeriveSecret(peerlink.SecretName), w.id.NodeIndex,
		w.cfg.Network, w.link.addresses)
}

// watchHeadLink adapts the polling interval of Control to the peer link: once the job runs, polls
// are rare while it is healthy. It warns once if no link can be made.
func (w *worker) watchHeadLink(ctx context.Context) {
	tick := time.NewTicker(w.cfg.Times.LinkHeartbeatInterval() / 2)
	defer tick.Stop()
	warned, pace := false, w.Timing.MaxPollInterval // [worker.slowPolling] sets this pace
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// Warn if there is no link.
		now := time.Now()
		w.Links.RecordTick(now)
		w.CheckNetworkLink(now)
		ever := w.Links.Peer(0, now).Known
		if !ever && !warned && now.Sub(w.link.started) > w.cfg.Times.Peer {
			warned = true
			w.Log.Warn("cannot establish a peer link to the head: heartbeat files replace it, and "+
				"failures are detected later",
				zap.String("host", w.id.Host), zap.Strings("tried", w.link.addresses))
		}
		if wanted := w.controlPollInterval(now, ever); w.Links.IsRunning() && wanted != pace {
			pace = wanted
			w.ControlWatch.SlowDown(pace)
		}
	}
}

// controlPollInterval returns the maximum interval between two polls of Control while only the end
// is expected there.
func (w *worker) controlPollInterval(now time.Time, ever bool) time.Duration {
	switch {
	case w.Links.AllOnTime(now):
		return w.cfg.Times.RelaxedPollInterval()
	case ever: // but not healthy now
		return health.HeadHeartbeatTiming(w.cfg.Times.Peer, w.id.Size).MaxPollInterval
	default:
		return w.Timing.MaxPollInterval
	}
}

// newDuplicateError returns the failure of a daemon that is not the first one of its node.
func (w *worker) newDuplicateError(why string) *lifecycle.DuplicateDaemonError {
	f := health.NewFailure(health.Launch, "cannot take part as %s: %s; start one daemon per node",
		w.nodeName(w.id.NodeIndex), why)
	f.Phase = w.Events.CurrentPhase()
	return &lifecycle.DuplicateDaemonError{Failure: f}
}

// slowPolling makes polls of Control rare and records that the job runs: only its end is expected
// there.
func (w *worker) slowPolling() {
	w.ControlWatch.SlowDown(w.Timing.MaxPollInterval)
	w.Links.SetRunning(w.cfg.Times.ToleratesShareOutage())
}
