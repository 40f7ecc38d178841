package report

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestReadinessChanges(t *testing.T) {
	second := func(s int) time.Duration { return time.Duration(s) * time.Second }
	lane := func(state roles.InstanceStatus, from, to int) StateLane {
		return StateLane{State: state, From: second(from), To: second(to)}
	}
	for _, tc := range []struct {
		name string
		view View
		want []StepPoint
		what string
	}{
		{"nodes", View{Nodes: []NodeRow{{Ready: second(3)}, {}}}, []StepPoint{{second(3), 1}}, "nodes"},
		{"ready until the end", View{roleData: roleData{Instances: []InstanceRow{
			{Lanes: []StateLane{lane("starting", 0, 2), lane("ready", 2, 9)}},
		}}}, []StepPoint{{second(2), 1}}, "instances"},
		{"started again, and lost", View{roleData: roleData{Instances: []InstanceRow{
			{Tone: SeverityBad, Lanes: []StateLane{
				lane("starting", 0, 2), lane("ready", 2, 4), lane("restarting", 4, 5), lane("ready", 5, 7),
			}},
		}}}, []StepPoint{{second(2), 1}, {second(4), -1}, {second(5), 1}, {second(7), -1}}, "instances"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, what, _ := tc.view.readinessChanges()
			if diff := cmp.Diff(tc.want, got); diff != "" || what != tc.what {
				t.Errorf("of %s, -want +got:\n%s", what, diff)
			}
		})
	}
}

// TestProgressPlot verifies the steps of a run whose ranks were started again, and that a run
// without steps has no plot.
func TestProgressPlot(t *testing.T) {
	run := sample(4, false)
	if got := (pageTemplateData{View: NewView(run, nil, time.Time{})}).Progress(); got != nil {
		t.Errorf("without steps there is a plot: %s", got.Label)
	}
	for i, step := range []float64{0, 100, 50, 100} {
		run.Events = append(run.Events, timeline.Event{
			Name: eventlog.StepReached, At: dawn.Add(sampleGate + time.Duration(i)*time.Hour),
			Fields: eventlog.Fields{Step: &step},
		})
	}
	restart := dawn.Add(sampleGate + 90*time.Minute)
	run.Result.Progress = &record.Progress{Step: 120, Reports: 9}
	run.Result.History = &record.RestartHistory{Count: 2, Times: []time.Time{dawn.Add(-time.Hour), restart}}
	v := NewView(run, nil, time.Time{})
	want := progressData{
		Steps: []StepPoint{
			{sampleGate, 0}, {sampleGate + time.Hour, 100}, {sampleGate + 2*time.Hour, 50},
			{sampleGate + 3*time.Hour, 100}, {sampleEnd, 120},
		},
		Restarts: []time.Duration{sampleGate + 90*time.Minute},
	}
	if diff := cmp.Diff(want, v.progressData); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	plot := (pageTemplateData{View: v}).Progress()
	if plot == nil || plot.Max != "120" || len(plot.Marks) != 1 || plot.Line[:6] != "M0 100" {
		t.Errorf("the plot is %+v", plot)
	}
}
