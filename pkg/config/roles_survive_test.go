package config

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/roles"
)

func TestSurviveNodeLoss(t *testing.T) {
	all := roles.Requirement{Start: roles.QuorumAll, Run: roles.QuorumAll}
	for _, tc := range []struct {
		name     string
		restarts int
		run      roles.Quorum
		spares   roles.Spares
		want     bool
	}{
		{"all instances are needed", 0, roles.QuorumAll, nil, false},
		{"restarts without a spare", 3, roles.QuorumAll, roles.Spares{0: 0}, false},
		{"a spare without restarts", 0, roles.QuorumAll, roles.Spares{0: 1}, false},
		{"a spare of the second component", 3, roles.QuorumAll, roles.Spares{1: 1}, true},
		{"fewer instances", 0, 6, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			def := roles.Definition{Required: all}
			def.Restarts.Max, def.Required.Run = tc.restarts, tc.run
			set := RoleSet{Definitions: []roles.Definition{{Required: all}, def}, Spares: tc.spares}
			if got := set.SurviveNodeLoss(); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
