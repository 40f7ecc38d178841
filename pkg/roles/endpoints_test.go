package roles_test

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/roles"
)

// TestListsListeners verifies that an endpoint is listed only when a process listens there, unless
// something else proves that it serves: a probe, or the framework of a cluster without a command.
func TestListsListeners(t *testing.T) {
	ports := []roles.PortRequest{{Name: "http", Count: 1}}
	probe := roles.ReadyProbe{Probe: "tcp:80"}
	for name, tc := range map[string]struct {
		role roles.Definition
		want bool
	}{
		"no ports": {roles.Definition{Program: roles.Program{Command: "x"}}, false},
		"ports":    {roles.Definition{Program: roles.Program{Command: "x", Ports: ports}}, true},
		"a probe": {
			roles.Definition{Program: roles.Program{Command: "x", Ports: ports}, Ready: probe}, false,
		},
		"a cluster": {roles.Definition{Program: roles.Program{Framework: "ray", Ports: ports}}, false},
		"a cluster with a command": {
			roles.Definition{Program: roles.Program{Framework: "ray", Command: "x", Ports: ports}}, true,
		},
	} {
		if got := tc.role.ListsListeners(); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
