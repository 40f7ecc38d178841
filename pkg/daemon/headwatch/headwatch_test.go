package headwatch_test

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/daemon/headwatch"
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

type situation = headwatch.Situation

// row is a situation and the action that must follow. The table has the event.
type row struct {
	name string
	in   situation
	want headwatch.Action
}

// verify verifies the rows of one event.
func verify(t *testing.T, event headwatch.Event, rows []row) {
	t.Helper()
	for _, r := range rows {
		r.in.Event = event
		if got := headwatch.Next(r.in); got != r.want {
			t.Errorf("%s: action %d, want %d", r.name, got, r.want)
		}
	}
}

// TestListed verifies which end of the run a node takes from a listing of the control directory.
func TestListed(t *testing.T) {
	byHead, byPeer, byBoth := []int{0}, []int{3}, []int{0, 3}
	verify(t, headwatch.Listed, []row{
		{"nothing", situation{Link: connected}, headwatch.Wait},
		{"nothing of a lost head", situation{Link: closed, HeadLost: true}, headwatch.Wait},
		{"the orderly end", situation{Orderly: true, Link: connected}, headwatch.TakeOrderlyEnd},
		{"the orderly end of a head that is lost now",
			situation{Orderly: true, HeadLost: true, Link: closed},
			headwatch.TakeOrderlyEnd},
		{"the orderly end, and a peer with an unresponsive mount",
			situation{Orderly: true, Aborts: byPeer, Link: reset}, headwatch.TakeOrderlyEnd},
		{"the head's abort", situation{Aborts: byHead, Link: connected}, headwatch.TakeHeadAbort},
		{"the head's abort after its orderly end", situation{Orderly: true, Aborts: byHead},
			headwatch.TakeHeadAbort},
		{"aborts of the head and of a peer", situation{Aborts: byBoth, Link: closed},
			headwatch.TakeHeadAbort},
		{"a peer's abort: the head decides", situation{Aborts: byPeer, Link: connected},
			headwatch.Wait},
		{"the same without peer links", situation{Aborts: byPeer, Link: noLink}, headwatch.Wait},
		{"a peer's abort, and the head is silent",
			situation{Aborts: byPeer, Link: connected, HeadLost: true},
			headwatch.TakePeerAbort},
		{"a peer's abort, and the link was closed", situation{Aborts: byPeer, Link: closed},
			headwatch.TakePeerAbort},
		{"a peer's abort, and the head refuses links", situation{Aborts: byPeer, Link: refused},
			headwatch.TakePeerAbort},
		{"a peer's abort, and the head has left", situation{Aborts: byPeer, Link: left},
			headwatch.TakePeerAbort},
		{"a peer's abort, and the link was reset, too", situation{Aborts: byPeer, Link: reset},
			headwatch.TakeHeadLoss},
		{"the same, and the head is silent", situation{Aborts: byPeer, Link: reset, HeadLost: true},
			headwatch.TakePeerAbort},
	})
}

// TestHeadSilent verifies what follows when the heartbeats of the head have stopped.
func TestHeadSilent(t *testing.T) {
	verify(t, headwatch.HeadSilent, []row{
		{"while the job runs", situation{Kind: health.HostLost}, headwatch.DeclareLost},
		{"this node is cut off", situation{Kind: health.CutOff}, headwatch.DeclareCutOff},
		{"after the end", situation{Kind: health.HostLost, EndKnown: true}, headwatch.StopWaiting},
		{"after the end, and this node is cut off", situation{Kind: health.CutOff, EndKnown: true},
			headwatch.StopWaiting},
	})
}

// TestLinkEnded verifies what follows at once from the end of the peer link.
func TestLinkEnded(t *testing.T) {
	verify(t, headwatch.LinkEnded, []row{
		{"a goodbye after the end", situation{Link: left, EndKnown: true}, headwatch.StopWaiting},
		{"a goodbye before the end is known", situation{Link: left}, headwatch.Wait},
		{"a close after the end", situation{Link: closed, EndKnown: true}, headwatch.Wait},
		{"a close", situation{Link: closed}, headwatch.Wait},
		{"a reset", situation{Link: reset}, headwatch.Wait},
	})
}

// TestLossSuspected verifies what follows from the polls after the end of the peer link.
func TestLossSuspected(t *testing.T) {
	verify(t, headwatch.LossSuspected, []row{
		{"no poll", situation{Link: closed, Quiet: true}, headwatch.Wait},
		{"one poll, which may have started before", situation{Link: closed, Polls: 1, Quiet: true},
			headwatch.Wait},
		{"two polls", situation{Link: closed, Polls: 2, Quiet: true}, headwatch.DeclareLost},
		{"two polls, and heartbeats", situation{Link: reset, Polls: 2}, headwatch.Wait},
		{"two polls, and no heartbeats", situation{Link: reset, Polls: 2, Quiet: true},
			headwatch.DeclareLost},
		{"two polls, and the end is known",
			situation{Link: closed, Polls: 2, Quiet: true, EndKnown: true},
			headwatch.StopWaiting},
		{"one poll, and the end is known",
			situation{Link: closed, Polls: 1, Quiet: true, EndKnown: true},
			headwatch.Wait},
		{"the file system does not respond", situation{Link: closed, ShareSilent: true},
			headwatch.Wait},
		{"the job can do without it", situation{Link: closed, OutlastsShare: true}, headwatch.Wait},
		{"both", situation{Link: closed, ShareSilent: true, OutlastsShare: true},
			headwatch.DeclareUnverified},
		{"both, and the head refuses links",
			situation{Link: refused, ShareSilent: true, OutlastsShare: true},
			headwatch.DeclareUnverified},
		{"both, and the head has left without a record",
			situation{Link: left, ShareSilent: true, OutlastsShare: true},
			headwatch.DeclareUnverified},
		{"both, after a reset", situation{Link: reset, ShareSilent: true, OutlastsShare: true},
			headwatch.Wait},
		{"both, and the end is known",
			situation{Link: closed, ShareSilent: true, OutlastsShare: true, EndKnown: true},
			headwatch.StopWaiting},
		{"both, although two polls were possible",
			situation{Link: closed, Polls: 2, Quiet: true, ShareSilent: true, OutlastsShare: true},
			headwatch.DeclareUnverified},
	})
}

// TestNodeFailed verifies who decides the outcome after a failure of this node.
func TestNodeFailed(t *testing.T) {
	verify(t, headwatch.NodeFailed, []row{
		{"a service died", situation{Kind: health.ServiceDied}, headwatch.AwaitHead},
		{"this node was asked to end", situation{Kind: health.Terminated}, headwatch.AwaitHead},
		{"the head is lost", situation{Kind: health.HostLost}, headwatch.PublishResult},
		{"this node is cut off", situation{Kind: health.CutOff}, headwatch.PublishResult},
		{"the head publishes no outcome", situation{Kind: health.ServiceDied, HeadLost: true},
			headwatch.PublishResult},
		{"the file system does not respond", situation{Kind: health.ServiceDied, ShareSilent: true},
			headwatch.StopWaiting},
		{"the head is lost, and the file system does not respond",
			situation{Kind: health.HostLost, ShareSilent: true},
			headwatch.StopWaiting},
		{"the file system is the failure", situation{Kind: health.ShareUnusable, HeadLost: true},
			headwatch.StopWaiting},
	})
}

// TestLeavingRun verifies whether a node waits for the head before it exits.
func TestLeavingRun(t *testing.T) {
	verify(t, headwatch.LeavingRun, []row{
		{"after a failure", situation{}, headwatch.AwaitHead},
		{"the head is lost", situation{HeadLost: true}, headwatch.StopWaiting},
		{"the file system does not respond", situation{ShareSilent: true}, headwatch.StopWaiting},
		{"the driver may be saving its work", situation{ShareSilent: true, Requested: true},
			headwatch.AwaitHead},
		{"the same, and the head is lost", situation{HeadLost: true, Requested: true},
			headwatch.StopWaiting},
	})
}
