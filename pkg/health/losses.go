package health

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Losses decides, on the head, which nodes are lost, and when the known failures are sufficient for
// the verdict. It is a pure state machine: its user passes it what happens, and carries out the
// actions. It has no clock, no lock and no tasks.
type Losses struct {
	LossesConfig
	Failures    []ObservedFailure // those that end the run
	SilentAtEnd []int             // the nodes whose heartbeats have stopped at the end of the run

	daemons, standbys *Detector
	silent            map[int]bool      // nodes that were lost by their silence
	left              map[int]LossInput // the goodbyes of daemons that have not published their end
	listed            int               // the number of polls up to the last listing
	settling          bool              // the verdict waits until it is known which peers are lost
	held              []ObservedFailure // failed checks that the records of other nodes will decide
	released          bool              // nothing is held back any more
}

// LossesConfig configures [Losses].
type LossesConfig struct {
	Timing, StandbyTiming HeartbeatTiming
	PeerTimeout           time.Duration
	Size                  int    // the number of nodes
	Links                 *Links // nil if there are no peer links
	// Monitored returns the members that should be alive according to a listing, or the spares, with
	// their newest heartbeats.
	Monitored func(l signal.Listing, standby bool) map[int]int64
	Name      func(node int) string // for messages
	Names     func(nodes []int) string
	LinkDown  func() *Failure           // nil if the head's network interface is up
	CutOff    func(why string) *Failure // the head is cut off
}

// LossInput is what the head knows, and what has happened: nothing if only time has passed.
type LossInput struct {
	Now           time.Time
	Listing       signal.Listing // the newest one of Nodes
	ShareSilence  time.Duration  // time for which the shared file system has not responded
	OutlastsShare bool           // the running job tolerates that
	RunOver       bool           // the run is ending

	Listed bool // the listing is new, and the failures in it have been passed on
	Ended  bool // the peer link to Node has ended, by Reason
	Node   int
	Reason peerlink.CloseReason
	Failed []ObservedFailure // the run cannot go on after these failures
	Wait   *EvidenceWait     // a verdict waits for this
}

// EvidenceWait defines for what evidence a verdict waits.
type EvidenceWait struct {
	Until time.Time // at the latest, except for Causes
	Polls int       // for a listing with a higher number of polls
	// Peers means to wait until every peer has sent a recent heartbeat or is lost: a failure may be the
	// consequence of a loss that is not certain yet.
	Peers  bool
	Asked  time.Time // when all peers were asked for a heartbeat, or zero
	Causes bool      // while other records may have the cause: see [UndecidedUntil]
}

// LossActions are what the head must do.
type LossActions struct {
	Record   []ObservedFailure // record these losses, and handle them as failures
	Verify   []ObservedFailure // the same, if a write to the file system succeeds; else end the run
	Classify []ObservedFailure // handle the result of [ClassifyEnvironmentFailures] as failures
	Complete bool              // the awaited evidence is complete
}

// NewLosses returns the state before all events.
func NewLosses(cfg LossesConfig) *Losses {
	return &Losses{LossesConfig: cfg, daemons: NewDetector(cfg.Timing, cfg.Links),
		standbys: NewDetector(cfg.StandbyTiming, cfg.Links),
		silent:   make(map[int]bool), left: make(map[int]LossInput)}
}

// Next returns what the head must do.
func (s *Losses) Next(in LossInput) (out LossActions) {
	switch {
	case in.Listed:
		s.evaluateListing(in, &out)
	case in.Ended && in.Reason == peerlink.Goodbye:
		s.left[in.Node] = in
	case in.Ended && in.Reason == peerlink.Closed: // without a goodbye, so the daemon has died
		out.Record = s.endDaemon(in.Node, in.Now.Add(-peerlink.ReconnectTimeout), in, DaemonDied,
			"the daemon of %s has died: its host has closed the peer link")
	case in.Ended: // the link broke, and the heartbeat files decide
	case in.Failed != nil:
		s.Failures = append(s.Failures, in.Failed...)
	case in.Wait != nil:
		out.Complete = s.isEvidenceComplete(*in.Wait, in)
		s.settling = in.Wait.Peers && !out.Complete
	default:
		out.Record = append(s.checkLinks(in), s.checkGoodbyes(in)...)
	}
	return out
}

// evaluateListing declares silent peers lost, and releases the failed checks that can be decided.
func (s *Losses) evaluateListing(in LossInput, out *LossActions) {
	s.listed, out.Record = in.Listing.Polls, s.checkGoodbyes(in)
	if !s.isUndecided(s.held, in) {
		out.Classify, s.held = s.held, nil
	}
	silent := s.daemons.RecordPoll(s.Monitored(in.Listing, false), in.Listing.PolledAt)
	// At the end, silence alone may be due to this node's own mount.
	if in.RunOver && !s.settling {
		s.SilentAtEnd = slices.Clone(silent)
		silent = s.Links.EndSilent(silent, in.Listing.PolledAt)
	}
	silent = slices.DeleteFunc(silent, func(node int) bool { return s.silent[node] })
	for _, node := range silent {
		s.silent[node] = true
	}
	s.evaluateSilence(silent, s.daemons, in, out)
	if !in.RunOver {
		silent = s.standbys.RecordPoll(s.Monitored(in.Listing, true), in.Listing.PolledAt)
		s.evaluateSilence(silent, s.standbys, in, out)
	}
}

// evaluateSilence declares silent peers lost. If all are silent, or one is known only by its files,
// the reason may be the file system: a write must first prove that it works.
func (s *Losses) evaluateSilence(silent []int, liveness *Detector, in LossInput, out *LossActions) {
	if len(silent) == 0 {
		return
	}
	losses := s.silenceFailures(silent, liveness.SilenceOf(silent[0]), in.Listing.PolledAt, in)
	byFiles := func(node int) bool { return s.Links.LossKind(node, in.Now) == PeerLost }
	if s.isEveryPeer(silent, in) || slices.ContainsFunc(silent, byFiles) {
		out.Verify = append(out.Verify, losses...)
	} else {
		out.Record = append(out.Record, losses...)
	}
}

// isEveryPeer reports whether the silent nodes are exactly the peers that should be alive.
func (s *Losses) isEveryPeer(silent []int, in LossInput) bool {
	alive := s.Monitored(in.Listing, false)
	return len(silent) == len(alive) && !slices.ContainsFunc(silent, func(node int) bool {
		_, needed := alive[node]
		return !needed
	})
}

// checkLinks declares peers lost by their heartbeats on the peer links alone, while the job runs
// and no poll of the file system succeeds.
func (s *Losses) checkLinks(in LossInput) []ObservedFailure {
	if in.ShareSilence <= s.PeerTimeout || !s.Links.IsRunning() || in.RunOver {
		return nil
	}
	silent, longest := s.Links.SilentPeers(s.Monitored(in.Listing, false), s.Timing.SilenceTimeout, in.Now)
	return s.silenceFailures(silent, longest, in.Now, in)
}

// silenceFailures returns one failure for each kind of loss among nodes that have been silent for
// quiet, or only that the head itself is cut off: its interface is down, or none of several other
// nodes answers. They may have failed as early as their first missing heartbeat.
func (s *Losses) silenceFailures(
	silent []int, quiet time.Duration, at time.Time, in LossInput,
) (all []ObservedFailure) {
	since, kinds := quiet.Round(time.Second/10), make(map[Kind][]int)
	for _, node := range silent {
		kind := s.Links.LossKind(node, in.Now)
		kinds[kind] = append(kinds[kind], node)
	}
	losses := PeerLossFailures(kinds, since, s.Name, s.Names)
	if lost := kinds[HostLost]; len(lost) > 0 {
		if f := s.LinkDown(); f != nil {
			losses = []*Failure{f}
		} else if len(lost) > 1 && s.isEveryPeer(lost, in) {
			losses = []*Failure{s.CutOff(fmt.Sprintf("none of the %d others has responded for %s", len(lost), since))}
		}
	}
	for _, f := range losses {
		f.SeenAt, f.RecordDelay = at, max(0, quiet-s.Timing.HeartbeatInterval)
		all = append(all, ObservedFailure{f.Failure, at})
	}
	return all
}

// checkGoodbyes declares lost each daemon that has said goodbye, but does not publish its end in
// time: it cannot write, or the head cannot read while the job runs without the file system. Two
// polls must show that: the first may have started before the daemon's last record appeared.
func (s *Losses) checkGoodbyes(in LossInput) (losses []ObservedFailure) {
	for _, node := range slices.Sorted(maps.Keys(s.left)) {
		goodbye := s.left[node]
		seen := in.Listing.Polls > goodbye.Listing.Polls+1
		unreadable := in.ShareSilence > s.Timing.SilenceTimeout/2
		if !seen && !unreadable && in.Now.Sub(goodbye.Now) < s.Timing.SilenceTimeout {
			continue
		}
		delete(s.left, node)
		if seen || unreadable && in.OutlastsShare {
			losses = append(losses, s.endDaemon(node, goodbye.Now, in, HostHangs, "the daemon of %s "+
				"has ended and could not record this in the run directory: see its standard error")...)
		}
	}
	return losses
}

// endDaemon declares a daemon lost that has ended at a time, unless it has published its end. If its
// file system was unresponsive, its host hangs.
func (s *Losses) endDaemon(node int, at time.Time, in LossInput, kind Kind, format string) []ObservedFailure {
	if in.Listing.IsIn(node, record.StateDone, record.StateFailed) {
		return nil
	}
	if s.Links.Peer(node, in.Now).ShareUnresponsive {
		kind, format = HostHangs,
			"%s hangs: its mount of the shared file system has not responded, and its daemon has ended"
	}
	f := NewFailure(kind, format, s.Name(node))
	f.LostNodes, f.SeenAt, f.RecordDelay = []int{node}, in.Now, in.Now.Sub(at)
	return []ObservedFailure{{f.Failure, in.Now}}
}

// Hold reports whether a failure is held back: a failed check of the environment, until the records
// of other nodes decide about it, or a verdict is needed.
func (s *Losses) Hold(seen ObservedFailure) bool {
	if seen.Kind != CheckEnvironment || s.released {
		return false
	}
	s.held = append(s.held, seen)
	return true
}

// isEvidenceComplete reports whether the evidence that a verdict awaits is complete, or the time for
// it is over. Nothing is held back from a verdict that waits for causes, nor afterwards.
func (s *Losses) isEvidenceComplete(wait EvidenceWait, in LossInput) bool {
	switch {
	case wait.Causes:
		s.Failures, s.held, s.released = append(s.Failures, s.held...), nil, true
		return !s.isUndecided(s.Failures, in)
	case !in.Now.Before(wait.Until):
		return true
	case wait.Peers:
		return !s.HasUncertainPeer(in.Listing, in.Now, wait.Asked)
	default:
		return s.listed > wait.Polls
	}
}

// isUndecided reports whether other records may have the cause of failures: see [UndecidedUntil].
func (s *Losses) isUndecided(failures []ObservedFailure, in LossInput) bool {
	return in.Now.Before(UndecidedUntil(failures, PassedNodes(in.Listing), s.Size))
}

// HasUncertainPeer reports whether it is uncertain for any peer that is not lost if it is alive. See
// [Links.IsUncertain].
func (s *Losses) HasUncertainPeer(l signal.Listing, now, asked time.Time) bool {
	limit := s.Timing.SilenceTimeout + s.Timing.MaxPollInterval
	for node := range s.Monitored(l, false) {
		isLost := func(f ObservedFailure) bool { return slices.Contains(f.LostNodes, node) }
		if s.Links.IsUncertain(node, limit, now, asked) && !slices.ContainsFunc(s.Failures, isLost) {
			return true
		}
	}
	return false
}
