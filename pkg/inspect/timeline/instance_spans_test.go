package timeline_test

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestInstanceSpans verifies the states and the generations of all instances of recorded runs.
func TestInstanceSpans(t *testing.T) {
	for _, tc := range []struct {
		run  string
		want map[string]string // keyed by instance
	}{
		{"roles-running", map[string]string{
			"judge.0":   "waiting 0, starting 0, ready 0",
			"judge.1":   "waiting 0, starting 0, ready 0, restarting 0, ready 1",
			"judge.2":   "waiting 0, starting 0, ready 0",
			"judge.3":   "waiting 0, starting 0, ready 0",
			"reward.0":  "waiting 0, starting 0, ready 0",
			"reward.1":  "waiting 0, starting 0, ready 0, lost 0",
			"trainer.0": "waiting 0, ready 0",
		}},
		{"roles-waiting", map[string]string{
			"judge.0":   "waiting 0, starting 0, ready 0",
			"judge.1":   "waiting 0, starting 0",
			"router.0":  "waiting 0",
			"setup.0":   "waiting 0, starting 0, ready 0, done 0",
			"setup.1":   "waiting 0, starting 0, ready 0, done 0",
			"setup.2":   "waiting 0, starting 0, ready 0, done 0",
			"setup.3":   "waiting 0, starting 0, ready 0, done 0",
			"trainer.0": "waiting 0",
		}},
		{"roles-77", map[string]string{
			"judge.0":   "waiting 0, starting 0, ready 0, stopped 0",
			"judge.1":   "waiting 0, starting 0, ready 0, lost 0",
			"judge.2":   "waiting 0, starting 0, ready 0, lost 0",
			"trainer.0": "waiting 0, ready 0, stopped 0",
		}},
	} {
		t.Run(tc.run, func(t *testing.T) {
			run, err := timeline.Read(context.Background(), filepath.Join("testdata/runs", tc.run), timeline.DepthFull)
			if err != nil {
				t.Fatal(err)
			}
			got := formatSpans(run)
			for instance, spans := range got { // times differ between recordings
				got[instance] = regexp.MustCompile(` [\d.]+m?s`).ReplaceAllString(spans, "")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// formatSpans formats the state, the generation and the beginning of all spans, by instance.
func formatSpans(run *timeline.Run) map[string]string {
	spans, got := run.InstanceSpans(), make(map[string]string)
	for _, role := range run.Roles.Roles {
		for _, instance := range role.Instances {
			var parts []string
			for _, span := range spans[instance.Number] {
				from := span.From.Sub(run.Control.Job.At).Round(time.Millisecond)
				parts = append(parts, fmt.Sprintf("%s %d %s", span.Status, span.Generation, from))
			}
			got[fmt.Sprint(role.Name, ".", instance.Index)] = strings.Join(parts, ", ")
		}
	}
	return got
}

// TestInstanceSpansOfFlags verifies the spans of roles for which flags stand: services, whose nodes
// publish their readiness, and ranks that are started again.
func TestInstanceSpansOfFlags(t *testing.T) {
	begin := time.Date(2026, 11, 21, 2, 10, 50, 0, time.UTC)
	at := func(seconds int) timeline.RecordTime {
		return timeline.RecordTime{Exists: true, At: begin.Add(time.Duration(seconds) * time.Second)}
	}
	one := roles.Placement{Nodes: 2, InstancesPerNode: 1, NodesPerInstance: 1, RanksPerNode: 1}
	both := roles.Placement{Nodes: 2, InstancesPerNode: 1, NodesPerInstance: 2, RanksPerNode: 1, HasRanks: true}
	plan := &roles.Plan{Roles: []roles.RolePlan{
		{Definition: &roles.Definition{Name: "worker", BuiltIn: roles.BuiltInWorker, Placement: one}},
		{Definition: &roles.Definition{
			Name: "ranks", BuiltIn: roles.BuiltInRanks, Placement: both, Primary: true, After: []string{"worker"},
		}},
	}}
	instance := func(number, index int, nodes ...int) timeline.Instance {
		return timeline.Instance{
			Instance: &roles.Instance{Number: number, Index: index}, Nodes: nodes,
			InstanceState: roles.InstanceState{Status: roles.StatusStopped},
		}
	}
	ranks := instance(2, 0, 0, 1)
	ranks.Generation = 1
	joined := timeline.NodeState{Word: record.StateJoined, At: begin}
	checked := timeline.NodeState{Word: record.StateChecked, At: at(1).At}
	up := func(seconds int) []timeline.NodeState {
		state := timeline.NodeState{Word: record.StateServiceUp, At: at(seconds).At}
		return []timeline.NodeState{joined, checked, state}
	}
	run := &timeline.Run{
		Job: &record.Job{Plan: &record.Plan{CheckTimeout: time.Minute}},
		Nodes: []timeline.Node{
			{States: up(2), LastSign: at(10).At}, {NodeIndex: 1, States: up(3)},
			{NodeIndex: 2, States: []timeline.NodeState{joined}},
		},
		Control: timeline.Control{Job: at(0), Go: at(4), Drain: at(9)},
		Roles: &timeline.PlacedRoles{Plan: plan, Roles: []timeline.Role{
			{RolePlan: &plan.Roles[0], Instances: []timeline.Instance{
				instance(0, 0, 0), instance(1, 1, 1), instance(3, 2, 2),
			}},
			{RolePlan: &plan.Roles[1], Instances: []timeline.Instance{ranks}, StartRule: roles.StartAtGate},
		}},
	}
	for seconds, name := range map[int]string{
		5: "0001.i0002.g0.exited", 6: "inst.0002.g1.start", 7: "0000.i0002.g1.ready", 8: "0001.i0002.g1.ready",
	} {
		run.Events = append(run.Events, timeline.Event{
			Name: eventlog.RecordPublished, At: at(seconds).At,
			Fields: eventlog.Fields{ObjectFields: eventlog.ObjectFields{Record: name}},
		})
	}
	want := map[string]string{
		"worker.0": "waiting 0 0s, starting 0 1s, ready 0 2s, stopped 0 9s",
		"worker.1": "waiting 0 0s, starting 0 1s, ready 0 3s, stopped 0 9s",
		"worker.2": "waiting 0 0s, stopped 0 9s", // its node has not passed its checks
		"ranks.0":  "waiting 0 0s, ready 0 4s, restarting 0 5s, starting 1 6s, ready 1 8s, stopped 1 9s",
	}
	if diff := cmp.Diff(want, formatSpans(run)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
