package timeline

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestConditions(t *testing.T) {
	result := func(code, next int) *record.Result {
		return &record.Result{Header: record.Header{WrittenAt: begin.Add(time.Hour)}, Code: code, Outcome: "peer-lost", Reason: "n1 is lost", Succession: record.Succession{NextAttempt: next}}
	}
	open := RecordTime{Exists: true, At: begin.Add(time.Minute)}
	for _, tc := range []struct {
		name string
		make func(run *Run)
		want string // conditions that are true, besides Created
		says string // text of that condition, or of Running
	}{
		{"it stays for a look", func(run *Run) { run.Control.Go, run.Control.LingerRecord = open, &record.OrderlyEnd{Code: 3} }, ConditionRunning,
			"the driver has ended with code 3, and everything else stays up for inspection"},
		{"it ends", func(run *Run) { run.Control.Go, run.Control.Drain = open, open }, "", ""},
		{"it has failed, and another attempt follows", func(run *Run) { run.Result = result(76, 2) }, ConditionRestarting, "attempt 2 follows: n1 is lost"},
		{"it fails, and another attempt will follow", func(run *Run) {
			run.Control.Aborts = []record.Abort{{Code: 76, Outcome: "peer-lost", NextAttempt: 1, Cause: record.Failure{Message: "n1 is lost"}}}
		}, ConditionRestarting, "attempt 1 follows: n1 is lost"},
		{"it is over, and its result cannot be read", func(run *Run) { run.Control.Over = open }, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run := made(2, record.StateJoined)
			tc.make(run)
			var got, says string
			var types []string
			for _, c := range SummarizeRun(run, Observation{Now: begin.Add(2 * time.Hour)}).Conditions {
				types = append(types, c.Type)
				if c.Status && c.Type != ConditionCreated {
					got += c.Type
				}
				if c.Status && c.Type != ConditionCreated || c.Type == ConditionRunning && says == "" {
					says = c.Message
				}
			}
			if diff := cmp.Diff([]string{ConditionCreated, ConditionRunning, ConditionRestarting, ConditionSucceeded, ConditionFailed}, types); diff != "" {
				t.Error(diff)
			}
			if got != tc.want || says != tc.says {
				t.Errorf("%s is so: %q, want %s: %q", got, says, tc.want, tc.says)
			}
		})
	}
}
