package lifecycle

import (
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
)

// HeadEvent is what has happened on a node other than the head.
type HeadEvent int

const (
	ControlListed     HeadEvent = iota // a poll has listed the control directory
	HeadSilent                         // the head has given no sign of life for the silence timeout
	HeadLinkEnded                      // the peer link to the head has ended
	HeadLossSuspected                  // a poll has followed that, or none is possible
	NodeFailed                         // this node has failed, and has published that
	LeavingRun                         // this node has ended its part in a run that has failed
)

// HeadSituation is an event, and what this node knows at that time.
type HeadSituation struct {
	Event         HeadEvent
	Link          health.PeerState // the peer link to the head
	EndKnown      bool             // the end of the run is known
	HeadLost      bool             // it is silent, publishes no outcome, or has caused the end
	ShareSilent   bool             // the shared file system does not respond to this node
	OutlastsShare bool             // the job runs, and tolerates that
	Kind          health.Kind      // kind of the head's loss, or of the failure to publish
	Requested     bool             // the run was asked to end, so the driver may be saving its work
	Orderly       bool             // the head has published the orderly end
	Aborts        []int            // the sorted indices of the nodes that have published aborts
	Polls         int              // the number of polls since the end of the link
	Quiet         bool             // no heartbeat has come since then for long enough
}

// HeadAction is what this node must do.
type HeadAction int

const (
	KeepWaiting       HeadAction = iota // for the next event
	TakeOrderlyEnd                      // end by the head's orderly end
	TakeHeadAbort                       // end by the head's abort record
	TakePeerAbort                       // end by the first abort record: the head is lost, or may be
	TakeHeadLoss                        // the same, but only if the record says that the head is lost
	DeclareHeadLost                     // end because the head is lost, if a write succeeds
	DeclareUnverified                   // the same without a write: the peer link alone decides
	DeclareCutOff                       // end because this node is cut off, without a write
	AwaitHead                           // wait until the head has published the outcome, or finished
	ActAsHead                           // decide the outcome, and publish the result as the head
	StopWaiting                         // for the head: it has ended, is lost, or cannot be observed
)

// NextHeadAction decides, on a node other than the head, who ends the run: the head, a peer that
// has found the head lost, or this node. It is pure: the daemon observes the control directory, the
// peer link and itself, and carries out what is decided.
//
// The head decides as long as it may be alive, because all nodes exit with one code. Otherwise the
// first node that publishes the result decides. A node whose mount is unresponsive publishes none,
// which would appear too late, and waits for the head only if its driver may be saving its work.
func NextHeadAction(s HeadSituation) HeadAction {
	switch unusable := s.ShareSilent || s.Kind == health.ShareUnusable; {
	case s.Event == ControlListed:
		return chooseEnd(s)
	case s.Event == HeadSilent, s.Event == HeadLossSuspected:
		return declareLoss(s)
	case s.Event == HeadLinkEnded && (!s.EndKnown || s.Link.CloseReason != peerlink.Goodbye):
		return KeepWaiting
	case s.Event == NodeFailed && !unusable && (s.HeadLost || health.IsPeerLoss(s.Kind)):
		return ActAsHead
	case s.Event == NodeFailed && !unusable,
		s.Event == LeavingRun && !s.HeadLost && (s.Requested || !s.ShareSilent):
		return AwaitHead
	}
	return StopWaiting
}

// chooseEnd returns which end a listing shows. The head's records have precedence over aborts of
// peers. A peer with an unresponsive mount may have published one after the orderly end, or while
// the head, which knows more, is about to end the run differently. So as long as the head is alive,
// it is the head that handles an abort of a peer. There is one exception: if this node's peer link
// has ended, and the peer's record says that the head is lost, two nodes agree on that.
func chooseEnd(s HeadSituation) HeadAction {
	ended, published := s.Link.Known && !s.Link.Connected, len(s.Aborts) > 0
	switch {
	case published && s.Aborts[0] == 0:
		return TakeHeadAbort
	case s.Orderly:
		return TakeOrderlyEnd
	case published && (s.HeadLost || ended && !s.Link.IsBroken()):
		return TakePeerAbort
	case published && ended: // but the network can reset a link, too
		return TakeHeadLoss
	}
	return KeepWaiting
}

// declareLoss returns what follows from the silence of the head, or the end of its peer link. After
// the latter, two polls must show no heartbeat: the first may have started before. Then a write
// must prove that this node's own mount works, unless this node is cut off. If the head's host has
// closed the link, that suffices while the file system does not respond and the job tolerates it.
func declareLoss(s HeadSituation) HeadAction {
	switch alone := s.ShareSilent && s.OutlastsShare && !s.Link.IsBroken(); {
	case s.Event == HeadLossSuspected && !alone && (s.Polls < 2 || !s.Quiet):
		return KeepWaiting
	case s.EndKnown:
		return StopWaiting
	case alone:
		return DeclareUnverified
	case s.Kind == health.CutOff:
		return DeclareCutOff
	}
	return DeclareHeadLost
}
