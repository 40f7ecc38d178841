package telemetry

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
)

func TestMetrics(t *testing.T) {
	s := &Telemetry{daemon: DaemonInfo{ID: launcher.Identity{Job: "17", Step: "0", NodeIndex: 3, Size: 4}, Role: roles.RoleWorker, Program: "v1", Events: eventlog.New(), Meter: new(signal.CallMeter)}}
	want := `# HELP bringupd_info Identity of this daemon; always 1.
# TYPE bringupd_info gauge
bringupd_info{run="17.0",rank="3",version="v1",role="worker"} 1
# HELP bringupd_up 1 while this node is up; on the head, while the gate is open.
# TYPE bringupd_up gauge
bringupd_up{run="17.0",rank="3"} 0
`
	if diff := cmp.Diff(want, string(s.collectMetrics())); diff != "" {
		t.Error(diff)
	}
	s.checkReport.Store(&check.Report{Findings: []check.Finding{
		{ID: "gpu.ecc", Verdict: check.Fail}, {ID: "disk", Verdict: check.Pass}, {ID: "gpu.ecc", Verdict: check.Pass}, {ID: "gpu.ecc", Verdict: check.Fail},
	}})
	want += `# HELP bringupd_check Findings of a check of this node, by severity.
# TYPE bringupd_check gauge
bringupd_check{run="17.0",rank="3",id="disk",verdict="PASS"} 1
bringupd_check{run="17.0",rank="3",id="gpu.ecc",verdict="FAIL"} 2
bringupd_check{run="17.0",rank="3",id="gpu.ecc",verdict="PASS"} 1
`
	if diff := cmp.Diff(want, string(s.collectMetrics())); diff != "" {
		t.Error(diff)
	}
}
