package health

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestDecideRestart(t *testing.T) {
	const most = 3
	for _, tc := range []struct {
		name   string
		kind   Kind
		policy RestartPolicy
		again  bool
		why    string // a part of the reason
	}{
		{"nobody asks", PeerLost, RestartPolicy{Nodes: 4, MinNodes: 4}, false, ""},
		{"a peer is lost", PeerLost, RestartPolicy{MaxRestarts: most, Nodes: 4, MinNodes: 4}, true, "peer-lost (76): attempt 2 of at most 4 follows"},
		{"the daemon died", DaemonDied, RestartPolicy{MaxRestarts: most, Attempt: 2, Nodes: 4, MinNodes: 4}, true, "attempt 4 of at most 4 follows"},
		{"once too often", DaemonDied, RestartPolicy{MaxRestarts: most, Attempt: 3, Nodes: 4, MinNodes: 4}, false, "again, in attempt 4 of at most 4"},
		{"a bad node and a spare", CheckFailed, RestartPolicy{MaxRestarts: most, UnfitNodes: []int{2}, Nodes: 4, MinNodes: 3}, true, "check (75): attempt 2"},
		{"a bad node too many", CheckFailed, RestartPolicy{MaxRestarts: most, UnfitNodes: []int{1, 2}, Nodes: 4, MinNodes: 3}, false, "2 of 4 nodes are left, and the driver needs 3"},
		{"the head's node", GPUFailed, RestartPolicy{MaxRestarts: most, UnfitNodes: []int{0}, Nodes: 4, MinNodes: 3}, false, "the head's node has failed"},
		{"not back", NotReturned, RestartPolicy{MaxRestarts: most, Nodes: 4, MinNodes: 4}, false, "the lost daemons were not restarted"},
		{"told to end", PeerLost, RestartPolicy{MaxRestarts: most, EndRequested: true, Nodes: 4, MinNodes: 4}, false, "told to end from outside"},
		{"terminated", Terminated, RestartPolicy{MaxRestarts: most, Nodes: 4, MinNodes: 4}, false, "cannot be fixed by another attempt"},
		{"a service", ServiceDied, RestartPolicy{MaxRestarts: most, Nodes: 4, MinNodes: 4}, false, "service (77) cannot be fixed"},
		{"a rank", RankFailed, RestartPolicy{MaxRestarts: most, Nodes: 4, MinNodes: 4}, false, "cannot be fixed"},
		{"the share", ShareUnusable, RestartPolicy{MaxRestarts: most, Nodes: 4, MinNodes: 4}, false, "share (66) cannot be fixed"},
		{"gave up", RequeuesExhausted, RestartPolicy{MaxRestarts: most, Nodes: 4, MinNodes: 4}, false, "gave-up (69) cannot be fixed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := DecideRestart(record.Failure{Kind: tc.kind}, tc.policy)
			if got.Restart != tc.again || !strings.Contains(got.Reason, tc.why) || (tc.why == "") != (got.Reason == "") {
				t.Errorf("got %+v, want %v and %q", got, tc.again, tc.why)
			}
		})
	}
}

func TestUnfitAndMissed(t *testing.T) {
	rec := func(node int, kind Kind, report string, lost ...int) record.Failure {
		return record.Failure{Header: record.Header{NodeIndex: node}, Kind: kind, LostNodes: lost, Report: json.RawMessage(report)}
	}
	all := []record.Failure{
		rec(0, DaemonDied, "", 3), rec(0, HostLost, "", 5, 3), rec(2, CheckFailed, ""), rec(4, GPUFailed, `{"next": "fit"}`),
		rec(1, GPUFailed, ""), rec(0, NodesDiffer, "", 6), rec(7, ServiceDied, ""),
	}
	if got := UnfitNodes(all...); !slices.Equal(got, []int{1, 2, 6}) {
		t.Errorf("unfit are %v", got)
	}
	if got := LostNodes(all...); !slices.Equal(got, []int{3, 5}) {
		t.Errorf("missed are %v", got)
	}
	if UnfitNodes() != nil || LostNodes() != nil {
		t.Error("without a failure somebody is to blame")
	}
}
