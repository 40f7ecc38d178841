package world

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestDescribeSteps verifies what the failure of a hang has about steps and ranks.
func TestDescribeSteps(t *testing.T) {
	rank := func(name string, cores, step float64) stackdump.ChildReport {
		report := stackdump.ChildReport{Child: name, Host: "n1", Process: &stackdump.Process{State: "R", Cores: cores}}
		if step >= 0 {
			report.Step = &step
		}
		return report
	}
	known := &record.Progress{Step: 9}
	for _, tc := range []struct {
		name     string
		progress *record.Progress
		reports  []stackdump.ChildReport
		want     string
	}{
		{"no node has answered", known, nil, "; the newest step is 9"},
		{
			"one is behind", known, []stackdump.ChildReport{rank("rank 0", 0, 9), rank("rank 1", 1, 8)},
			"; the newest step is 9; 1 of 2 ranks is behind step 9: rank 1 on n1 at step 8 (busy)",
		},
		{
			"only one reports steps", known, []stackdump.ChildReport{rank("rank 0", 0, 9), rank("rank 1", 1, -1)},
			"; the newest step is 9; only rank 0 reports steps, and is at step 9: steps do not " +
				"show which ranks are behind; rank 0 on n1: running; rank 1 on n1: busy",
		},
		{
			"none is behind", known, []stackdump.ChildReport{rank("rank 0", 0, 9), rank("rank 1", 1, 9)},
			"; the newest step is 9; 2 of 2 ranks report steps, and are at step 9; rank 0 on " +
				"n1: running; rank 1 on n1: busy",
		},
		{"no steps", nil, []stackdump.ChildReport{rank("rank 0", 0, -1)}, "; rank 0 on n1: running"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			diagnosis := exec.Diagnosis{RunSnapshot: stackdump.NewRunSnapshot("demo", 1, tc.reports, nil)}
			if got := (HungWorld{Progress: tc.progress}).describeSteps(diagnosis); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
