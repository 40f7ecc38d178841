package service

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// TestChildren verifies what each kind of child inherits, what it is told, and that what a user has set
// for it takes precedence.
func TestChildren(t *testing.T) {
	base := strings.Fields(`PATH=/bin RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=n1 PMI_RANK=1 PMIX_MCA_gds=hash
SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NNODES=2 SLURM_JOB_NODELIST=n[1-2] BRINGUPD_NODE_RANK=9
BRINGUPD_RANK=3 BRINGUPD_SOCKET=/outer`)
	job := []string{"PATH=/bin", "PMIX_MCA_gds=hash", "SLURM_JOB_ID=17"}
	step := append(slices.Clip(job), "SLURM_NNODES=2", "SLURM_STEP_ID=0", "SLURM_JOB_NODELIST=n[1-2]")
	team := &Team{Hosts: []string{"n1", "n2"}, Endpoint: framework.Endpoint{Address: "n1:1",
		Env: map[string]string{"RAY_ADDRESS": "n1:1"}}}
	ofTeam := []string{"BRINGUPD_HOSTS=n1,n2", "BRINGUPD_HEAD_ADDRESS=n1:1", "RAY_ADDRESS=n1:1", "A_KEY=k"}
	for _, tc := range []struct {
		name string
		kind launcher.ChildKind
		team *Team
		more map[string]string
		want []string
	}{
		{"a driver", launcher.ChildCommand, team, nil, slices.Concat(step, ofTeam, []string{"SLURM_PROCID=1"})},
		{"a setup command", launcher.ChildCommand, nil, map[string]string{"RANK": "7", "PATH": ""},
			append(step[1:len(step):len(step)], "SLURM_PROCID=1", "RANK=7")},
		{"a process of a role", launcher.ChildProcess, team, map[string]string{"SLURM_PROCID": "0"},
			slices.Concat(step, ofTeam, []string{"SLURM_PROCID=0"})},
		{"a service", launcher.ChildService, nil, nil, append(slices.Clip(job), "SLURM_NNODES=2")},
		// its numbers follow: see ranks.RankEnviron
		{"a rank", launcher.ChildRank, team, nil, slices.Concat(step, ofTeam, []string{"SLURM_PROCID=1", "RANK=1",
			"WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=n1", "PMI_RANK=1", "BRINGUPD_RANK=3"})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			child := Environment{Kind: tc.kind, Run: "17.0", Dir: "/logs/17.0", Team: tc.team,
				Slot: &Slot{Place: 1, Size: 2}, ID: launcher.Identity{NodeIndex: 1, Size: 2, Host: "n2"},
				Credentials: map[string]string{"A_KEY": "k"}}
			want := append(slices.Clip(tc.want), "BRINGUPD_RUN=17.0", "BRINGUPD_RUN_DIR=/logs/17.0",
				"BRINGUPD_ATTEMPT=0", "BRINGUPD_NODE_HOST=n2", "BRINGUPD_NODE_RANK=1", "BRINGUPD_NODE_COUNT=2",
				"BRINGUPD_LAUNCH_RANK=1", "BRINGUPD_LAUNCH_COUNT=2")
			got := child.Of(base, tc.more)
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNetworkVariables verifies which variables select the node's interface in programs.
func TestNetworkVariables(t *testing.T) {
	here := launcher.NodeAddress{Address: "10.0.0.7", Interface: "ib0"}
	selected, misnamed := here, here
	selected.Selected = true
	misnamed.CheckName = func() string { return "its own host name resolves to 127.0.1.1" }
	own := func(address, device string) string {
		return "BRINGUPD_NODE_ADDRESS=" + address + " BRINGUPD_NODE_INTERFACE=" + device
	}
	ofPrograms := func(address, device, nccl string) string {
		return " GLOO_SOCKET_IFNAME=" + device + " NCCL_SOCKET_IFNAME=" + nccl + " TP_SOCKET_IFNAME=" + device +
			" VLLM_HOST_IP=" + address
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
		{"its own name leads elsewhere", misnamed, "VLLM_HOST_IP=10.9.9.9", own("10.0.0.7", "ib0") +
			" GLOO_SOCKET_IFNAME=ib0 TP_SOCKET_IFNAME=ib0 VLLM_HOST_IP=10.9.9.9"},
		{"those of a run around this one", here, own("10.0.0.9", "ib1") + ofPrograms("10.0.0.9", "ib1", "=ib1"),
			own("10.0.0.7", "ib0")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, variable := range (Environment{Address: tc.address}).Of(strings.Fields(tc.base)) {
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
		lookup := launcher.EnvironmentOf(Environment{Dir: "/logs/7.0"}.Of(tc.base))
		gotNewest, _ := lookup(newest)
		gotOldest, _ := lookup(older)
		if gotNewest != tc.wantNewest || gotOldest != tc.wantOldest {
			t.Errorf("%s: %q, %q, want %q, %q", tc.name, gotNewest, gotOldest, tc.wantNewest, tc.wantOldest)
		}
	}
}

func TestLogRemoved(t *testing.T) {
	for _, tc := range []struct{ environ, driver, want string }{
		{"HOME=/h", "./driver", ""},
		{"MASTER_ADDR=n1 MASTER_PORT=29500 WORLD_SIZE=8", "torchrun", "get WORLD_SIZE: to keep WORLD_SIZE, start"},
		{"MASTER_ADDR=n1 MASTER_PORT=29500 WORLD_SIZE=8", "env WORLD_SIZE=8 torchrun", ""},
		{"MASTER_ADDR=n1 MASTER_PORT=1 WORLD_SIZE=8 RANK=0 PMI_RANK=0", "./driver",
			"get RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: to keep RANK, start the driver with: -- env RANK=$RANK"},
	} {
		core, logged := observer.New(zap.InfoLevel)
		LogRemoved(zap.New(core), strings.Fields(tc.environ), strings.Fields(tc.driver))
		got := ""
		for _, entry := range logged.All() {
			got += entry.Message
		}
		if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s: got %q, want %q", tc.environ, got, tc.want)
		}
	}
}
