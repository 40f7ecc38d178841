package deps_test

import (
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// TestNetworkMistakes verifies which variables of a node of two are wrong, and which only doubtful: "!"
// and "?" before the variable.
func TestNetworkMistakes(t *testing.T) {
	const one, all = 1, roles.NodesAll
	gloo := map[string]string{"GLOO_SOCKET_IFNAME": "none0"}
	for _, tc := range []struct {
		name    string
		nodes   int // of an instance of the only role; 0: there is none
		environ string
		env     map[string]string
		want    string
	}{
		{"a world of ranks", 0, "GLOO_SOCKET_IFNAME=none0", nil, "!GLOO_SOCKET_IFNAME"},
		{"an instance on all nodes", all, "GLOO_SOCKET_IFNAME=none0", nil, "!GLOO_SOCKET_IFNAME"},
		{"instances of one node", one, "GLOO_SOCKET_IFNAME=none0", nil, "?GLOO_SOCKET_IFNAME"},
		{"env of a role on all nodes", all, "", gloo, "?role a: GLOO_SOCKET_IFNAME"},
		{"env of a role with instances of one node", one, "", gloo, ""},
		{"a value that is not known yet", all, "", map[string]string{
			"GLOO_SOCKET_IFNAME": "$BRINGUPD_NODE_INTERFACE", "MASTER_ADDR": "${BRINGUPD_INSTANCE_ADDRESS}",
		}, ""},
		{"NCCL's variable without GPUs", 0, "NCCL_SOCKET_IFNAME=none0 CUDA_VISIBLE_DEVICES=", nil, ""},
		{"NCCL's variable with GPUs", 0, "NCCL_SOCKET_IFNAME=none0 CUDA_VISIBLE_DEVICES=0,1", nil,
			"!NCCL_SOCKET_IFNAME"},
		{"a driver's address", 0, "MASTER_ADDR=127.0.0.1", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := deps.Config{Config: config.Config{Framework: framework.None{},
				Identity: launcher.Identity{Launcher: launcher.LauncherPBS, Size: 2, GPUs: -1}}}
			cfg.Environ, cfg.World.PerNode = strings.Fields(tc.environ), "1"
			if tc.nodes != 0 {
				cfg.World.PerNode = ""
				cfg.Roles.Definitions = []roles.Definition{{Name: "a", Program: roles.Program{Env: tc.env},
					Placement: roles.Placement{Nodes: roles.NodesAll, NodesPerInstance: tc.nodes}}}
			}
			wrong, doubtful, err := cfg.NetworkChecks().FindMistakes()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for mark, found := range map[string][]string{"!": wrong, "?": doubtful} {
				for _, mistake := range found {
					variable, _, _ := strings.Cut(mistake, "=")
					got = append(got, mark+variable)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
