package roles_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestPlanFromRecord checks that an observer makes the plan of the run from its record, without the
// commands and secrets of the roles.
func TestPlanFromRecord(t *testing.T) {
	all := roles.Requirement{Start: roles.QuorumAll, Run: roles.QuorumAll}
	server := roles.Definition{
		Name: "server", After: []string{"setup"},
		Placement: roles.Placement{Nodes: 2, Group: 1, InstancesPerNode: 2, GPUs: 1},
		Program: roles.Program{
			Ports: []roles.PortRequest{{Name: "http", Count: 1}, {Name: "kv", Count: 2}},
			Step:  "judge", AllEndpoints: true,
		},
		Ready:    roles.ReadyProbe{Probe: "tcp:$BRINGUPD_PORT", Timeout: time.Minute},
		Restarts: roles.RestartPolicy{Max: 3}, Required: roles.Requirement{Start: 4, Run: 1},
	}
	setup := roles.Definition{
		Name: "setup", Oneshot: true, Required: all,
		Placement: roles.Placement{Nodes: roles.NodesHead},
	}
	train := roles.Definition{
		Name: "train", Primary: true, Required: all,
		Placement: roles.Placement{
			Nodes: roles.NodesRest, NodesPerInstance: roles.NodesAll,
			RanksPerNode: roles.PerGPU, HasRanks: true, GPUs: roles.GPUsDivided,
		},
	}
	rec := &roles.PlanRecord{Offers: []roles.NodeFacts{
		{Host: "a", Address: "10.0.0.1", GPUs: 4, FirstPort: 20000, Domain: "x"},
		{Host: "b", Address: "10.0.0.2", GPUs: 2, Group: 1, FirstPort: 21000, BusyPorts: []int{21000}},
		{Host: "c", Address: "10.0.0.3", GPUs: 2, Group: 1, FirstPort: 22000},
	}}
	shown := []roles.Definition{server, setup, train}
	want, err := roles.MakePlan(shown, rec.Offers)
	if err != nil {
		t.Fatal(err)
	}
	secret := []roles.Definition{server, setup, train}
	secret[0].Program.Command = "serve --key=$KEY"
	secret[0].Program.Env = map[string]string{"KEY": "1"}
	secret[1].Ready.Timeout = time.Hour // it has no probe
	rec.Roles = roles.Describe(secret)
	text, err := json.Marshal(rec)
	if err != nil || strings.Contains(string(text), "KEY") {
		t.Fatalf("published is %s, %v", text, err)
	}
	read := new(roles.PlanRecord)
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	got, err := roles.MakePlan(read.Roles, read.Offers)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDescribeProbe checks that a probe is published without its secrets.
func TestDescribeProbe(t *testing.T) {
	for probe, want := range map[string]string{
		"":                                  "",
		"tcp:80":                            "tcp:80",
		"exec:check --now":                  "exec",
		"exec":                              "exec",
		"http://localhost:80/?api_key=1234": "http://localhost:80/?api_key=…",
	} {
		def := roles.Definition{Ready: roles.ReadyProbe{Probe: probe}}
		if got := roles.Describe([]roles.Definition{def})[0].Ready.Probe; got != want {
			t.Errorf("%q is published as %q", probe, got)
		}
	}
}

// TestTeamOfPlan checks the places of nodes in a plan, and why others are dropped.
func TestTeamOfPlan(t *testing.T) {
	rec := &roles.PlanRecord{Offers: []roles.NodeFacts{{NodeIndex: 0}, {NodeIndex: 5}, {NodeIndex: 2}},
		Dropped: []record.DroppedNode{{NodeIndex: 1, Reason: "its GPU is lost"}}}
	for node, want := range []int{0, -1, 2, -1, -1, 1} {
		if got := rec.PlaceOf(node); got != want {
			t.Errorf("node %d has place %d, not %d", node, got, want)
		}
	}
	if why, unknown := rec.DropReason(1), rec.DropReason(3); why != "its GPU is lost" || unknown == why {
		t.Errorf("the nodes are dropped because %q and %q", why, unknown)
	}
}
