package telemetry

import (
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestProgressMetrics(t *testing.T) {
	s := &Telemetry{daemon: DaemonInfo{ID: launcher.Identity{Job: "17", Step: "0", Size: 4}, Role: roles.RoleHead, Program: "v1", Events: eventlog.New(), Meter: new(signal.CallMeter)}}
	var p *record.Progress
	steps := func() *record.Progress { return p }
	s.steps.Store(&steps)
	none := string(s.collectMetrics())
	if p = new(record.Progress); string(s.collectMetrics()) != none {
		t.Error("there are metrics although no step was reported")
	}
	p = &record.Progress{
		Step: 1200, MaxStep: 1250.5, Rate: 3.5, Goodput: 0.91, Reports: 1200, Lost: []record.LostSteps{{Steps: 10}, {Steps: 2}},
		Slowest: &record.SlowestRank{Rank: 12, NodeIndex: 3, Step: 1190, Median: 1200},
	}
	got := string(s.collectMetrics())
	for _, want := range []string{
		`bringupd_step{run="17.0",rank="0"} 1200`, `bringupd_step_max{run="17.0",rank="0"} 1250.5`, `bringupd_steps_per_second{run="17.0",rank="0"} 3.5`,
		`bringupd_goodput_ratio{run="17.0",rank="0"} 0.91`, `bringupd_lost_steps{run="17.0",rank="0"} 12`,
		`bringupd_slowest_step{run="17.0",rank="0",world_rank="12",node="3"} 1190`, `bringupd_median_step{run="17.0",rank="0"} 1200`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("there is no %s in\n%s", want, got)
		}
	}
}
