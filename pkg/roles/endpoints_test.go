package roles_test

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/roles"
)

// TestReadinessOfRole verifies what is known of a role's endpoints without a probe: that they are
// listed only when a process listens there, unless the framework of a cluster without a command has
// proven that it serves; and which roles may wait for the endpoints of others before they are ready.
func TestReadinessOfRole(t *testing.T) {
	type traits struct{ listsListeners, isUnprobed, mayAwaitOthers bool }
	ports := []roles.PortRequest{{Name: "http", Count: 1}}
	server := roles.Program{Command: "x", Ports: ports}
	probe := roles.ReadyProbe{Probe: "tcp:80"}
	for name, tc := range map[string]struct {
		role roles.Definition
		want traits
	}{
		"no ports":  {roles.Definition{Program: roles.Program{Command: "x"}}, traits{}},
		"ports":     {roles.Definition{Program: server}, traits{true, true, false}},
		"a probe":   {roles.Definition{Program: server, Ready: probe}, traits{false, false, true}},
		"a primary": {roles.Definition{Program: server, Primary: true}, traits{true, false, false}},
		"a oneshot": {roles.Definition{Program: server, Oneshot: true}, traits{true, false, true}},
		"a cluster": {
			roles.Definition{Program: roles.Program{Framework: "ray", Ports: ports}}, traits{},
		},
		"a cluster with a command": {
			roles.Definition{Program: roles.Program{Framework: "ray", Command: "x", Ports: ports}},
			traits{true, true, false},
		},
	} {
		got := traits{tc.role.ListsListeners(), tc.role.IsUnprobed(), tc.role.MayAwaitOthers()}
		if got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}
