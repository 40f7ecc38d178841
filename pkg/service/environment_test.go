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
	own := func(address, device string) string {
		return "BRINGUPD_NODE_ADDRESS=" + address + " BRINGUPD_NODE_INTERFACE=" + device
	}
	ofPrograms := func(address, device, nccl string) string {
		return " GLOO_SOCKET_IFNAME=" + device + " NCCL_SOCKET_IFNAME=" + nccl + " VLLM_HOST_IP=" + address
	}
	for _, tc := range []struct {
		name    string
		address launcher.NodeAddress
		base    string
		want    string
	}{
		{"found by the route", here, "", own("10.0.0.7", "ib0")},
		{"unknown", launcher.NodeAddress{}, own("10.0.0.9", "ib1"), ""},
		{"selected", selected, "", own("10.0.0.7", "ib0") + ofPrograms("10.0.0.7", "ib0", "=ib0")},
		{"the user's own", selected, "NCCL_SOCKET_IFNAME=ib,eth",
			own("10.0.0.7", "ib0") + ofPrograms("10.0.0.7", "ib0", "ib,eth")},
		{"those of a run around this one", here, own("10.0.0.9", "ib1") + ofPrograms("10.0.0.9", "ib1", "=ib1"),
			own("10.0.0.7", "ib0")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, variable := range (Environment{Address: tc.address}).AddTo(strings.Fields(tc.base)) {
				if strings.Contains(own("", "")+ofPrograms("", "", ""), strings.SplitAfter(variable, "=")[0]) {
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

// TestFlightRecorderVariables verifies that torch's dumps go to the run directory only if the user has
// given the recorder a buffer, and no other place.
func TestFlightRecorderVariables(t *testing.T) {
	const newest, older = "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
	own := "/logs/7.0/logs/flight-recorder-rank_"
	for _, tc := range []struct {
		name                   string
		base                   []string
		wantNewest, wantOldest string
	}{
		{"no buffer", nil, "", ""},
		{"size 0", []string{"TORCH_FR_BUFFER_SIZE=0"}, "", ""},
		{"a buffer", []string{"TORCH_FR_BUFFER_SIZE=2000"}, own, ""},
		{"the older name", []string{"TORCH_NCCL_TRACE_BUFFER_SIZE=2000"}, "", own},
		{"another place", []string{"TORCH_FR_BUFFER_SIZE=2000", older + "=/tmp/x_"}, "", "/tmp/x_"},
		{"in another run", []string{"TORCH_FR_BUFFER_SIZE=2000",
			newest + "=/logs/6.0/logs/flight-recorder-rank_"}, own, ""},
	} {
		lookup := launcher.EnvironmentOf(Environment{Dir: "/logs/7.0"}.AddTo(tc.base))
		gotNewest, _ := lookup(newest)
		gotOldest, _ := lookup(older)
		if gotNewest != tc.wantNewest || gotOldest != tc.wantOldest {
			t.Errorf("%s: %q, %q, want %q, %q", tc.name, gotNewest, gotOldest, tc.wantNewest, tc.wantOldest)
		}
	}
}
