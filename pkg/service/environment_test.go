package service

import (
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// TestNetworkVariables verifies which variables select the node's interface in programs.
func TestNetworkVariables(t *testing.T) {
	here := launcher.NodeAddress{Address: "10.0.0.7", Interface: "ib0"}
	selected := here
	selected.Selected = true
	for _, tc := range []struct {
		name    string
		address launcher.NodeAddress
		base    string
		want    string
	}{
		{"found by the route", here, "", "BRINGUPD_NODE_ADDRESS=10.0.0.7 BRINGUPD_NODE_INTERFACE=ib0"},
		{"unknown", launcher.NodeAddress{}, "BRINGUPD_NODE_ADDRESS=10.0.0.9 BRINGUPD_NODE_INTERFACE=ib1", ""},
		{"selected", selected, "", "BRINGUPD_NODE_ADDRESS=10.0.0.7 BRINGUPD_NODE_INTERFACE=ib0 GLOO_SOCKET_IFNAME=ib0 NCCL_SOCKET_IFNAME==ib0 VLLM_HOST_IP=10.0.0.7"},
		{"the user's own", selected, "NCCL_SOCKET_IFNAME=ib,eth", "BRINGUPD_NODE_ADDRESS=10.0.0.7 BRINGUPD_NODE_INTERFACE=ib0 GLOO_SOCKET_IFNAME=ib0 NCCL_SOCKET_IFNAME=ib,eth VLLM_HOST_IP=10.0.0.7"},
		{"those of a run around this one", here,
			"BRINGUPD_NODE_ADDRESS=10.0.0.9 BRINGUPD_NODE_INTERFACE=ib1 GLOO_SOCKET_IFNAME=ib1 NCCL_SOCKET_IFNAME==ib1 VLLM_HOST_IP=10.0.0.9",
			"BRINGUPD_NODE_ADDRESS=10.0.0.7 BRINGUPD_NODE_INTERFACE=ib0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, variable := range (Environment{Address: tc.address}).AddTo(strings.Fields(tc.base)) {
				name, _, _ := strings.Cut(variable, "=")
				if strings.HasPrefix(name, "BRINGUPD_NODE_A") || strings.HasPrefix(name, "BRINGUPD_NODE_I") || strings.HasSuffix(name, "_IFNAME") || name == "VLLM_HOST_IP" {
					got = append(got, variable)
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
