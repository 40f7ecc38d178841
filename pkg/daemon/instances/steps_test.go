package instances

import (
	"slices"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestStepsOfPrimaries checks that the steps of the processes of primary roles are those of the job,
// and that the slowest of those that run is named.
func TestStepsOfPrimaries(t *testing.T) {
	inBubble(t, 3, `
  - {name: trainer, nodes: 2, ranks-per-node: 2, primary: true, command: train}
  - {name: probe, nodes: 1, primary: true, command: probe}
  - {name: judge, nodes: all, command: serve}
`, func(r *run) {
		for name, line := range map[string]string{
			"trainer.0.0.g0": "step 100", "trainer.0.1.g0": "step 100", "trainer.0.2.g0": "step 90",
			"trainer.0.3.g0": "step 99", "probe.0.0.g0": "step 7", "judge.0.0.g0": "step 5000",
		} {
			r.print(name, line)
		}
		r.later()
		r.later()
		r.want("names", r.names(signal.NodesDir, "step"), "0001.i0000.g0.step-2.090000", "0002.i0001.g0.step.007000")
		r.wantProgress(record.Progress{Step: 100, MaxStep: 100},
			&record.SlowestRank{Rank: -1, World: "probe.0", NodeIndex: 2, Step: 7, Median: 90, Count: 3})
		// An instance that has ended is not the slowest.
		r.exit("probe.0.0.g0", 0)
		r.later()
		r.wantProgress(record.Progress{Step: 100, MaxStep: 100},
			&record.SlowestRank{Rank: 2, World: "trainer.0", NodeIndex: 1, Step: 90, Median: 95, Count: 2})
		if step, known := r.nodes[1].steps.LastStep("trainer.0.3"); step != 99 || !known {
			t.Errorf("the step of a rank is %v, %v", step, known)
		}
		if _, known := r.nodes[0].steps.LastStep("judge.0"); known {
			t.Error("a role that is not primary has steps")
		}
	})
}

// TestStepsOfRestart checks that the steps that an instance repeats after a restart are lost.
func TestStepsOfRestart(t *testing.T) {
	inBubble(t, 2, `
  - {name: trainer, nodes: 2, ranks-per-node: 1, primary: true, command: train, restarts: 1}
`, func(r *run) {
		for _, line := range []string{"step 10", "step 20"} {
			r.print("trainer.0.1.g0", line)
			r.later()
		}
		r.exit("trainer.0.0.g0", 3)
		r.later()
		r.later()
		// Its last step stays that of the job until the next generation reports one.
		r.wantProgress(record.Progress{Step: 20, MaxStep: 20}, nil)
		r.print("trainer.0.1.g1", "step 15")
		r.later()
		r.later()
		r.want("names", r.names(signal.NodesDir, "step"), "0001.i0000.g1.step-1.015000")
		lost := record.LostSteps{InAttempt: true, Reached: 20, Resumed: 15, Steps: 15}
		r.wantProgress(record.Progress{Step: 15, MaxStep: 20, Lost: []record.LostSteps{lost}}, nil)
		if _, known := r.nodes[0].steps.LastStep("trainer.0.0"); known {
			t.Error("a rank that has reported no step has one")
		}
	})
}

// wantProgress compares the progress of the job, as the head knows it.
func (r *run) wantProgress(want record.Progress, slowest *record.SlowestRank) {
	r.t.Helper()
	got := r.nodes[0].steps.Summary()
	if got == nil {
		r.t.Fatal("there is no progress")
	}
	if got.Step != want.Step || got.MaxStep != want.MaxStep || !slices.Equal(got.Lost, want.Lost) {
		r.t.Errorf("the progress is %+v, want %+v", got, want)
	}
	if (got.Slowest == nil) != (slowest == nil) || slowest != nil && *got.Slowest != *slowest {
		r.t.Errorf("the slowest is %+v, want %+v", got.Slowest, slowest)
	}
}
