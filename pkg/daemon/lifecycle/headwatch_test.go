package lifecycle_test

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
)

// The states of the peer link to the head.
var (
	noLink    health.PeerState
	connected = health.PeerState{Known: true, Connected: true}
	left      = health.PeerState{Known: true, CloseReason: peerlink.Goodbye}
	closed    = health.PeerState{Known: true, CloseReason: peerlink.Closed}
	refused   = health.PeerState{Known: true, CloseReason: peerlink.Refused}
	reset     = health.PeerState{Known: true, CloseReason: peerlink.Broken}
)

type situation = lifecycle.HeadSituation

// row is a situation and the action that must follow. The table has the event.
type row struct {
	name string
	in   situation
	want lifecycle.HeadAction
}

// verify verifies the rows of one event.
func verify(t *testing.T, event lifecycle.HeadEvent, rows []row) {
	t.Helper()
	for _, r := range rows {
		r.in.Event = event
		if got := lifecycle.NextHeadAction(r.in); got != r.want {
			t.Errorf("%s: action %d, want %d", r.name, got, r.want)
		}
	}
}

// TestListed verifies which end of the run a node takes from a listing of the control directory.
func TestListed(t *testing.T) {
	byHead, byPeer, byBoth := []int{0}, []int{3}, []int{0, 3}
	verify(t, lifecycle.ControlListed, []row{
		{"nothing", situation{Link: connected}, lifecycle.KeepWaiting},
		{"nothing of a lost head", situation{Link: closed, HeadLost: true}, lifecycle.KeepWaiting},
		{"the orderly end", situation{Orderly: true, Link: connected}, lifecycle.TakeOrderlyEnd},
		{"the orderly end of a head that is lost now",
			situation{Orderly: true, HeadLost: true, Link: closed},
			lifecycle.TakeOrderlyEnd},
		{"the orderly end, and a peer with an unresponsive mount",
			situation{Orderly: true, Aborts: byPeer, Link: reset}, lifecycle.TakeOrderlyEnd},
		{"the head's abort", situation{Aborts: byHead, Link: connected}, lifecycle.TakeHeadAbort},
		{"the head's abort after its orderly end", situation{Orderly: true, Aborts: byHead},
			lifecycle.TakeHeadAbort},
		{"aborts of the head and of a peer", situation{Aborts: byBoth, Link: closed},
			lifecycle.TakeHeadAbort},
		{"a peer's abort: the head decides", situation{Aborts: byPeer, Link: connected},
			lifecycle.KeepWaiting},
		{"the same without peer links", situation{Aborts: byPeer, Link: noLink},
			lifecycle.KeepWaiting},
		{"a peer's abort, and the head is silent",
			situation{Aborts: byPeer, Link: connected, HeadLost: true},
			lifecycle.TakePeerAbort},
		{"a peer's abort, and the link was closed", situation{Aborts: byPeer, Link: closed},
			lifecycle.TakePeerAbort},
		{"a peer's abort, and the head refuses links", situation{Aborts: byPeer, Link: refused},
			lifecycle.TakePeerAbort},
		{"a peer's abort, and the head has left", situation{Aborts: byPeer, Link: left},
			lifecycle.TakePeerAbort},
		{"a peer's abort, and the link was reset, too", situation{Aborts: byPeer, Link: reset},
			lifecycle.TakeHeadLoss},
		{"the same, and the head is silent", situation{Aborts: byPeer, Link: reset, HeadLost: true},
			lifecycle.TakePeerAbort},
	})
}

// TestHeadSilent verifies what follows when the heartbeats of the head have stopped.
func TestHeadSilent(t *testing.T) {
	verify(t, lifecycle.HeadSilent, []row{
		{"while the job runs", situation{Kind: health.HostLost}, lifecycle.DeclareHeadLost},
		{"this node is cut off", situation{Kind: health.CutOff}, lifecycle.DeclareCutOff},
		{"after the end", situation{Kind: health.HostLost, EndKnown: true}, lifecycle.StopWaiting},
		{"after the end, and this node is cut off", situation{Kind: health.CutOff, EndKnown: true},
			lifecycle.StopWaiting},
	})
}

// TestLinkEnded verifies what follows at once from the end of the peer link.
func TestLinkEnded(t *testing.T) {
	verify(t, lifecycle.HeadLinkEnded, []row{
		{"a goodbye after the end", situation{Link: left, EndKnown: true}, lifecycle.StopWaiting},
		{"a goodbye before the end is known", situation{Link: left}, lifecycle.KeepWaiting},
		{"a close after the end", situation{Link: closed, EndKnown: true}, lifecycle.KeepWaiting},
		{"a close", situation{Link: closed}, lifecycle.KeepWaiting},
		{"a reset", situation{Link: reset}, lifecycle.KeepWaiting},
	})
}

// TestLossSuspected verifies what follows from the polls after the end of the peer link.
func TestLossSuspected(t *testing.T) {
	verify(t, lifecycle.HeadLossSuspected, []row{
		{"no poll", situation{Link: closed, Quiet: true}, lifecycle.KeepWaiting},
		{"one poll, which may have started before", situation{Link: closed, Polls: 1, Quiet: true},
			lifecycle.KeepWaiting},
		{"two polls", situation{Link: closed, Polls: 2, Quiet: true}, lifecycle.DeclareHeadLost},
		{"two polls, and heartbeats", situation{Link: reset, Polls: 2}, lifecycle.KeepWaiting},
		{"two polls, and no heartbeats", situation{Link: reset, Polls: 2, Quiet: true},
			lifecycle.DeclareHeadLost},
		{"two polls, and the end is known",
			situation{Link: closed, Polls: 2, Quiet: true, EndKnown: true},
			lifecycle.StopWaiting},
		{"one poll, and the end is known",
			situation{Link: closed, Polls: 1, Quiet: true, EndKnown: true},
			lifecycle.KeepWaiting},
		{"the file system does not respond", situation{Link: closed, ShareSilent: true},
			lifecycle.KeepWaiting},
		{"the job can do without it", situation{Link: closed, OutlastsShare: true},
			lifecycle.KeepWaiting},
		{"both", situation{Link: closed, ShareSilent: true, OutlastsShare: true},
			lifecycle.DeclareUnverified},
		{"both, and the head refuses links",
			situation{Link: refused, ShareSilent: true, OutlastsShare: true},
			lifecycle.DeclareUnverified},
		{"both, and the head has left without a record",
			situation{Link: left, ShareSilent: true, OutlastsShare: true},
			lifecycle.DeclareUnverified},
		{"both, after a reset", situation{Link: reset, ShareSilent: true, OutlastsShare: true},
			lifecycle.KeepWaiting},
		{"both, and the end is known",
			situation{Link: closed, ShareSilent: true, OutlastsShare: true, EndKnown: true},
			lifecycle.StopWaiting},
		{"both, although two polls were possible",
			situation{Link: closed, Polls: 2, Quiet: true, ShareSilent: true, OutlastsShare: true},
			lifecycle.DeclareUnverified},
	})
}

// TestNodeFailed verifies who decides the outcome after a failure of this node.
func TestNodeFailed(t *testing.T) {
	verify(t, lifecycle.NodeFailed, []row{
		{"a service died", situation{Kind: health.ServiceDied}, lifecycle.AwaitHead},
		{"this node was asked to end", situation{Kind: health.Terminated}, lifecycle.AwaitHead},
		{"the head is lost", situation{Kind: health.HostLost}, lifecycle.ActAsHead},
		{"this node is cut off", situation{Kind: health.CutOff}, lifecycle.ActAsHead},
		{"the head publishes no outcome", situation{Kind: health.ServiceDied, HeadLost: true},
			lifecycle.ActAsHead},
		{"the file system does not respond", situation{Kind: health.ServiceDied, ShareSilent: true},
			lifecycle.StopWaiting},
		{"the head is lost, and the file system does not respond",
			situation{Kind: health.HostLost, ShareSilent: true},
			lifecycle.StopWaiting},
		{"the file system is the failure", situation{Kind: health.ShareUnusable, HeadLost: true},
			lifecycle.StopWaiting},
	})
}

// TestLeavingRun verifies whether a node waits for the head before it exits.
func TestLeavingRun(t *testing.T) {
	verify(t, lifecycle.LeavingRun, []row{
		{"after a failure", situation{}, lifecycle.AwaitHead},
		{"the head is lost", situation{HeadLost: true}, lifecycle.StopWaiting},
		{"the file system does not respond", situation{ShareSilent: true}, lifecycle.StopWaiting},
		{"the driver may be saving its work", situation{ShareSilent: true, Requested: true},
			lifecycle.AwaitHead},
		{"the same, and the head is lost", situation{HeadLost: true, Requested: true},
			lifecycle.StopWaiting},
	})
}
