package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Monitor monitors a node's own mount and network. Its fields must be set before its tasks start.
type Monitor struct {
	*Publisher
	Times     config.Timeouts
	Timing    health.HeartbeatTiming
	Links     *health.Links // nil if this daemon has no peer link
	Name      string        // this node's, for messages
	Address   func() (launcher.NodeAddress, error)
	IsStandby func() bool // this node has no part in the running job
}

// StandbyTiming returns the heartbeat timing of spares, for the head. The loss of a spare must be
// detected, but may take longer, to reduce the load on the file system.
func StandbyTiming(timing health.HeartbeatTiming) health.HeartbeatTiming {
	timing.HeartbeatInterval, timing.SilenceTimeout = standbyFactor*timing.HeartbeatInterval,
		standbyFactor*timing.SilenceTimeout
	return timing
}

// standbyFactor is the factor by which the heartbeat interval of a spare is longer than that of
// other nodes once the job runs.
const standbyFactor = 8

// WatchShare ends this node's part in the run when the file system has been unresponsive for longer
// than the peer timeout, because then the state of the peers is unknown. If the job tolerates that,
// the limit is Timeouts.Share instead.
func (m *Monitor) WatchShare(ctx context.Context) {
	tick := time.NewTicker(m.Times.Peer / 20)
	defer tick.Stop()
	var outwaited time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// Compare with the present limit, which may change at any time.
		silence, limit := m.FileSystemSilence(), m.Times.Peer
		if m.ToleratesShareOutage(time.Now()) {
			limit = m.Times.Share
		}
		switch {
		case silence > limit:
			m.CancelRun(m.ShareTimeoutFailure(silence))
			return
		case silence > m.Times.Peer:
			if outwaited == 0 {
				m.Events.WriteEvent(eventlog.ShareChanged,
					eventlog.Fields{LinkFields: eventlog.LinkFields{Responsive: new(false)}})
				m.Log.Info("the shared file system does not respond: the job continues, because " +
					"every peer link is healthy")
			}
			outwaited = silence
		case outwaited > 0:
			m.Events.WriteEvent(eventlog.ShareChanged,
				eventlog.Fields{LinkFields: eventlog.LinkFields{Responsive: new(true)}})
			m.Log.Info("the shared file system responds again", zap.Duration("after", outwaited.Round(time.Second/10)))
			outwaited = 0
		}
	}
}

// ToleratesShareOutage reports whether an unresponsive file system is tolerated at present. Once
// the job runs, no daemon needs the file system: as long as heartbeats of all peers arrive on the
// peer links, only records are lost.
func (m *Monitor) ToleratesShareOutage(now time.Time) bool {
	return m.Times.ToleratesShareOutage() && m.Links.CanReplaceShare(now)
}

// ShareTimeoutFailure returns the failure that the file system has not answered for silence. If
// there have been no heartbeats on the peer links either, the failure is that this node is cut off.
func (m *Monitor) ShareTimeoutFailure(silence time.Duration) *health.Failure {
	if unheard, ever := m.Links.TotalSilence(time.Now()); ever && unheard > m.Timing.SilenceTimeout {
		return m.CutOffFailure(fmt.Sprintf("neither another node nor the shared file system has "+
			"responded for %s", min(unheard, silence).Round(time.Second/10)))
	}
	return health.NewFailure(health.ShareUnusable,
		"cannot continue: the shared file system has not responded to %s for %s: check whether %s hangs on that node",
		m.Name, silence.Round(time.Second/10), m.Dir.Path())
}

// HeartbeatTask returns a task that writes this node's heartbeat files until ctx ends, in the
// subdirectory sub. While all peer links are healthy, it writes them rarely. If
// the file system refuses them with errors for too long, the task ends this node with that error,
// before the peers declare it lost without a reason. An unresponsive file system is the concern of
// WatchShare.
func (m *Monitor) HeartbeatTask(sub string) func(ctx context.Context) {
	return func(ctx context.Context) {
		tick := time.NewTicker(m.Timing.HeartbeatInterval)
		defer tick.Stop()
		last, rests, refused := time.Now(), 0, 0 // refused is the number of consecutive refusals
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// Skip heartbeats that are not needed.
			now := time.Now()
			if m.Links.AreHealthy(now) && refused == 0 && now.Sub(last) < m.Times.RelaxedPollInterval() {
				continue
			}
			if rests++; m.IsStandby() && rests%standbyFactor != 0 {
				last = now
				continue
			}
			err := m.WriteHeartbeat(ctx, sub)
			switch {
			case err == nil:
				last, refused = time.Now(), 0
			case ctx.Err() == nil && !signal.IsStalled(err):
				refused++
				if refused == refusalsBeforeLog {
					m.LogWriteError(err) // explains it in case the peers declare this node lost
				}
				limit := m.Timing.SilenceTimeout
				if m.ToleratesShareOutage(now) {
					limit = m.Times.Share
				}
				if time.Duration(refused)*m.Timing.HeartbeatInterval > limit {
					m.CancelRun(health.AsFailure(err))
					return
				}
			}
		}
	}
}

// refusalsBeforeLog is the number of consecutive refusals of heartbeats after which the error is logged.
const refusalsBeforeLog = 2

// WriteHeartbeat writes one heartbeat file of this node.
func (m *Monitor) WriteHeartbeat(ctx context.Context, sub string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.Timing.SilenceTimeout,
		errors.New("the peers would miss the heartbeat"))
	defer cancel()
	return m.Dir.WriteHeartbeat(ctx, sub)
}

// CheckNetworkLink ends this node's part in the run if no heartbeats arrive and its network
// interface is down. It does not depend on the file system, which may be unresponsive for the same
// reason.
func (m *Monitor) CheckNetworkLink(now time.Time) {
	silence, ever := m.Links.TotalSilence(now)
	if !ever || silence < m.Timing.SilenceTimeout || m.RunCtx.Err() != nil {
		return
	}
	if f := m.LinkDownFailure(); f != nil {
		m.CancelRun(f)
	}
}

// LinkDownFailure returns the failure that the network interface of this node's peer link, or of
// its address, is down. It returns nil if the interface is up or unknown.
func (m *Monitor) LinkDownFailure() *health.Failure {
	address, _ := m.Address()
	addr, err := netip.ParseAddr(address.Address)
	if local, linked := m.Links.LocalAddr(); linked {
		addr, err = local, nil
	}
	if err != nil {
		return nil
	}
	link, down := peerlink.IsInterfaceDown(addr)
	if !down {
		return nil
	}
	return m.CutOffFailure("its network interface " + link + " is down")
}

// CutOffFailure returns the failure that the other nodes cannot reach this node; why is the
// evidence.
func (m *Monitor) CutOffFailure(why string) *health.Failure {
	f := health.NewFailure(health.CutOff, "%s is cut off from the others: %s", m.Name, why)
	f.LostNodes = []int{m.NodeIndex}
	return f
}

// OutageReporter logs, on the head, the nodes for which the shared file system is unresponsive.
type OutageReporter struct {
	*Monitor
	NodeNames func(nodes []int) string // for messages

	since    time.Time // when the present outage was detected; zero if there is none
	reported bool
}

// LogChanges logs an outage that lasts longer than the peer timeout, and its end. It must be called
// regularly.
func (o *OutageReporter) LogChanges(now time.Time) {
	stalled := o.Links.UnresponsivePeers()
	if o.FileSystemSilence() > UnresponsiveTimeout {
		stalled = append([]int{0}, stalled...)
	}
	switch {
	case len(stalled) == 0:
		if o.reported {
			o.Log.Warn("the shared file system responds to all nodes again",
				zap.Duration("after", now.Sub(o.since).Round(time.Second/10)))
		}
		o.since, o.reported = time.Time{}, false
	case o.since.IsZero():
		o.since = now
	case !o.reported && now.Sub(o.since) > o.Times.Peer && o.Links.IsRunning() && o.RunCtx.Err() == nil:
		o.reported = true
		o.Log.Warn("the shared file system does not respond to "+o.NodeNames(stalled)+
			": the job continues while every peer link is healthy, within the timeout",
			zap.Duration("timeout", o.Times.Share))
	}
}
