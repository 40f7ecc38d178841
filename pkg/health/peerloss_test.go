package health_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
)

// TestPeerLossFailures verifies that there is one failure for each kind of loss, with the lost nodes,
// and that it names them: one by its name, and several together.
func TestPeerLossFailures(t *testing.T) {
	lost := map[health.Kind][]int{
		health.PeerLost: {5}, health.HostHangs: {}, health.HostLost: {2}, health.DaemonDied: {3, 4},
	}
	name := func(node int) string { return fmt.Sprintf("node %d", node) }
	names := func(nodes []int) string { return fmt.Sprintf("nodes %v", nodes) }
	failures := health.PeerLossFailures(lost, 3*time.Second, name, names)
	if len(failures) != 3 {
		t.Fatalf("got %d failures: %v", len(failures), failures)
	}
	for _, f := range failures {
		want := "node " + fmt.Sprint(f.LostNodes[0])
		if len(f.LostNodes) > 1 {
			want = "nodes [3 4]"
		}
		text := f.Error()
		if !slices.Equal(f.LostNodes, lost[f.Kind]) || !strings.Contains(text, want+" ") ||
			!strings.Contains(text, "3s") {
			t.Errorf("got %+v, want %v and %q", f.Failure, lost[f.Kind], want)
		}
	}
	if none := health.PeerLossFailures(nil, time.Second, name, names); none != nil {
		t.Errorf("without losses there are %v", none)
	}
}

// TestHeadLoss verifies the kind of each loss of the head, and that each message names the head and,
// if the evidence is silence, its time.
func TestHeadLoss(t *testing.T) {
	const quiet = 12_340 * time.Millisecond
	ended := func(how peerlink.CloseReason) health.PeerState {
		return health.PeerState{Known: true, CloseReason: how}
	}
	up := health.PeerState{Known: true, Connected: true}
	for _, tc := range []struct {
		name   string
		loss   health.HeadLoss
		kind   health.Kind
		silent bool
	}{
		{"link closed", health.HeadLoss{Link: ended(peerlink.Closed)}, health.DaemonDied, false},
		{"link refused", health.HeadLoss{Link: ended(peerlink.Refused)}, health.DaemonDied, false},
		{"link reset", health.HeadLoss{Link: ended(peerlink.Broken)}, health.DaemonDied, false},
		{"never accepted", health.HeadLoss{PortClosed: true}, health.DaemonDied, true},
		{"left without an outcome", health.HeadLoss{Link: ended(peerlink.Goodbye)}, health.HostHangs, false},
		{"daemon hangs", health.HeadLoss{Link: up, Acknowledges: true}, health.HostHangs, true},
		{"host unreachable", health.HeadLoss{Link: up}, health.HostLost, true},
		{"heartbeats missing", health.HeadLoss{}, health.PeerLost, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.loss.Head, tc.loss.Observer, tc.loss.Quiet = "node 0 (n0)", "node 3 (n3)", quiet
			f := tc.loss.Failure()
			if f.Kind != tc.kind || !strings.Contains(f.Error(), "node 0 (n0)") ||
				strings.Contains(f.Error(), "12.3s") != tc.silent {
				t.Errorf("got %+v", f.Failure)
			}
		})
	}
}
