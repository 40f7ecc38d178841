package report

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestManyInstances verifies that of 1,000 instances those that need attention have a row each,
// that the others share one, and that the page stays small.
func TestManyInstances(t *testing.T) {
	v := NewView(sampleRoles(251, false), nil, time.Time{})
	var got []string
	for _, role := range v.groupByRole() {
		for _, row := range role.Rows {
			lanes := ""
			for _, lane := range row.Lanes {
				lanes += fmt.Sprintf(" %s", lane.State)
			}
			got = append(got, fmt.Sprintf("%d %.9s %s%s", row.Count, row.Instance, row.State, lanes))
		}
		got = append(got, fmt.Sprint(len(role.All), " in the map"))
	}
	again := " waiting starting ready restarting ready restarting ready restarting ready"
	want := []string{
		"1 srv.13 lost waiting starting ready",
		"1 srv.11 unready waiting starting ready unready", "1 srv.211 unready waiting starting ready unready",
		"1 srv.411 unready waiting starting ready unready", "1 srv.611 unready waiting starting ready unready",
		"1 srv.811 unready waiting starting ready unready",
		"1 srv.7 ready" + again, "1 srv.207 ready" + again, "1 srv.407 ready" + again, "1 srv.607 ready" + again,
		"1 srv.807 ready" + again,
		"989 srv.0-6,8 ready waiting starting ready", "1000 in the map",
		"1 trainer.0 ready waiting ready", "0 in the map",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	page := pageOf(t, v)
	if len(page) > 500_000 {
		t.Errorf("the page of 1,000 instances has %d bytes", len(page))
	}
	t.Logf("%d bytes", len(page))
}

// TestStatesOfInstances verifies the state and the severity of instances whose role has only one.
func TestStatesOfInstances(t *testing.T) {
	const exited = "0001.i0000.g0.exited"
	for _, tc := range []struct {
		name   string
		status roles.InstanceStatus
		marks  []string // in the order of the seconds
		result *record.Result
		want   string
	}{
		{"it runs", roles.StatusReady, []string{"0001.i0000.g0.ready"}, nil, "ready good"},
		{"it starts", roles.StatusStarting, nil, nil, "starting idle"},
		{"it never was ready", roles.StatusStopped, nil, &record.Result{}, "never ready mind"},
		{"it was stopped", roles.StatusStopped, []string{"0001.i0000.g0.ready"}, &record.Result{}, "stopped good"},
		{"it was not ready in the end", roles.StatusStopped,
			[]string{"0001.i0000.g0.ready", "0001.i0000.g0.unready.000001"}, &record.Result{}, "unready mind"},
		{"it is lost", roles.StatusLost, []string{"0001.i0000.g0.ready", exited}, nil, "lost bad"},
		{"it has ended the run", roles.StatusStopped, []string{"0001.i0000.g0.ready", exited},
			&record.Result{Code: 77}, "failed bad"},
		{"a driver has ended well", roles.StatusDone, []string{"0001.i0000.g0.done"},
			&record.Result{Outcome: "driver"}, "done good"},
		{"a driver has failed", roles.StatusDone, []string{"0001.i0000.g0.done"},
			&record.Result{Outcome: "driver", Code: 3}, "failed bad"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := &roles.RolePlan{Definition: &roles.Definition{
				Name: "srv", Primary: tc.status == roles.StatusDone, Ready: roles.ReadyProbe{Probe: "tcp:1"},
			}}
			run := &timeline.Run{
				Nodes: make([]timeline.Node, 2), Result: tc.result,
				Control: timeline.Control{Job: mark(0)},
				Roles: &timeline.PlacedRoles{Roles: []timeline.Role{{RolePlan: plan, Instances: []timeline.Instance{{
					Instance: new(roles.Instance), Nodes: []int{1},
					InstanceState: roles.InstanceState{Status: tc.status},
				}}}}},
			}
			if tc.result != nil {
				run.Control.Drain = mark(5 * time.Second)
			}
			for i, name := range tc.marks {
				run.Events = append(run.Events, timeline.Event{
					Name: eventlog.RecordPublished, At: dawn.Add(time.Duration(i+1) * time.Second),
					Fields: eventlog.Fields{ObjectFields: eventlog.ObjectFields{Record: name}},
				})
			}
			l := viewBuilder{run: run, startedAt: dawn}
			row := l.buildInstances(time.Minute)[0]
			if got := fmt.Sprint(row.State, " ", row.Tone); got != tc.want {
				t.Errorf("it is %s, want %s", got, tc.want)
			}
		})
	}
}
