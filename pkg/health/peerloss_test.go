package health_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
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
	loss := health.HeadLoss{HeadName: "node 0 (n0)", ObserverName: "node 3 (n3)"}
	for _, tc := range []struct {
		name   string
		f      *health.Failure
		kind   health.Kind
		silent bool
	}{
		{"link closed", loss.LinkClosed(), health.DaemonDied, false},
		{"link reset", loss.LinkReset(), health.DaemonDied, false},
		{"connection refused", loss.ConnectionRefused(), health.DaemonDied, false},
		{"never accepted", loss.NeverAccepted(quiet), health.DaemonDied, true},
		{"left without an outcome", loss.LeftWithoutOutcome(), health.HostHangs, false},
		{"daemon hangs", loss.DaemonHangs(quiet), health.HostHangs, true},
		{"host unreachable", loss.HostUnreachable(quiet), health.HostLost, true},
		{"heartbeats missing", loss.HeartbeatsMissing(quiet), health.PeerLost, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := tc.f.Error()
			if tc.f.Kind != tc.kind || !strings.Contains(text, loss.HeadName) ||
				strings.Contains(text, "12.3s") != tc.silent {
				t.Errorf("got %+v", tc.f.Failure)
			}
		})
	}
}
