package roles

import "testing"

func TestSurvivesNodeLoss(t *testing.T) {
	all := Requirement{Start: QuorumAll, Run: QuorumAll}
	for _, tc := range []struct {
		name     string
		restarts int
		run      Quorum
		spares   Spares
		want     bool
	}{
		{"all instances are needed", 0, QuorumAll, nil, false},
		{"restarts without a spare", 3, QuorumAll, Spares{0: 0}, false},
		{"a spare without restarts", 0, QuorumAll, Spares{0: 1}, false},
		{"a spare of the second component", 3, QuorumAll, Spares{0: 0, 1: 1}, true},
		{"fewer instances", 0, 6, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			def := Definition{Required: all}
			def.Restarts.Max, def.Required.Run = tc.restarts, tc.run
			if got := tc.spares.SurvivesNodeLoss([]Definition{{Required: all}, def}); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
