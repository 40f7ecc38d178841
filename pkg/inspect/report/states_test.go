package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestLanesOfStates shows the phases of nodes whose event logs have not been written yet.
func TestLanesOfStates(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	state := func(word record.State, after time.Duration) timeline.NodeState {
		return timeline.NodeState{Word: word, At: start.Add(after)}
	}
	l := viewBuilder{
		run: &timeline.Run{ReadAt: start.Add(10 * time.Second), Job: &record.Job{Plan: &record.Plan{
			Phases: []record.Phase{record.PhaseJoin, record.PhaseCheck, record.PhaseSandbox, record.PhaseWorkers, record.PhaseDriver},
		}}}, startedAt: start,
	}
	up := []timeline.NodeState{state(record.StateJoined, time.Second), state(record.StateChecked, 2*time.Second), state(record.StateSandboxReady, 4*time.Second), state(record.StateServiceUp, 3*time.Second)}
	for _, tc := range []struct {
		name   string
		states []timeline.NodeState
		gate   time.Duration
		want   string
	}{
		{"nothing", nil, 0, "join 0s-10s open"},
		{"joined", up[:1], 0, "join 0s-1s, check 1s-10s open"},
		{"checked", up[:2], 0, "join 0s-1s, check 1s-2s, sandbox 2s-10s open, workers 2s-10s open"},
		{"up", up, 0, "join 0s-1s, check 1s-2s, sandbox 2s-4s, workers 2s-3s"},
		{"running", up, 5 * time.Second, "join 0s-1s, check 1s-2s, sandbox 2s-4s, workers 2s-3s, driver 5s-10s open"},
	} {
		l.gateAfter = tc.gate
		var got []string
		for _, lane := range l.lanesOfStates(&timeline.Node{States: tc.states}) {
			words := fmt.Sprintf("%s %s-%s", lane.Phase, lane.From, lane.To)
			if lane.Open {
				words += " open"
			}
			got = append(got, words)
		}
		if text := strings.Join(got, ", "); text != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, text, tc.want)
		}
	}
}
