package timeline

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestGateWaitsForRoles verifies that programs learn which roles the gate waits for.
func TestGateWaitsForRoles(t *testing.T) {
	run := read(t, "roles-waiting", DepthFull)
	status := SummarizeRun(run, Observation{Now: run.ReadAt})
	if len(status.Waits) != 1 || status.Waits[0].What != "judge (1 of 2 ready)" || status.Waits[0].Role != "judge" {
		t.Errorf("got %+v", status.Waits)
	}
	// A quick read of a large run has no events.
	quick := read(t, "roles-waiting", DepthQuick)
	got := SummarizeRun(quick, Observation{Now: time.Now()}).Roles
	if len(got) != 4 || got[1].Ready != 1 || got[1].Starting != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestStepWithoutDaemon verifies that the status names a further job step whose daemons are missing.
func TestStepWithoutDaemon(t *testing.T) {
	run := read(t, "roles-waiting", DepthFull)
	run.Job.Steps = []string{"other", "judges"}
	for i := range run.Roles.Roles {
		if role := &run.Roles.Roles[i]; role.Name == "judge" {
			role.Program.Step = "judges"
		}
	}
	const missing = "no daemon of step judges has joined there"
	if text := SummarizeRun(run, Observation{Now: run.ReadAt}).Text(TextStyle{}); !strings.Contains(text, missing) {
		t.Errorf("%q is missing in:\n%s", missing, text)
	}
	for i := range run.Nodes {
		run.Nodes[i].StepDaemons = []int{2}
	}
	if text := SummarizeRun(run, Observation{Now: run.ReadAt}).Text(TextStyle{}); strings.Contains(text, missing) {
		t.Errorf("%q is in:\n%s", missing, text)
	}
}

func TestRoleLines(t *testing.T) {
	role := RoleStatus{
		Name: "judge", Instances: 12, Need: 8, instanceCounts: instanceCounts{Ready: 5, Restarting: 6, Lost: 1},
		Restarts: 9, MoreWaits: 2, LastExit: "died",
		Waits: []InstanceStatus{{Instance: "judge.1", State: "restarting", Nodes: "n1", What: "died"}},
	}
	want := "  role judge  5/12 ready, 6 restarting, 1 failed, needs 8, 9 restarts\n" +
		"    judge.1 restarting on n1: died\n    +2 more"
	if got := strings.Join(RoleLines([]RoleStatus{role}), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestDamagedPlan verifies that a plan with nodes that the run does not have, or with a role without
// processes, is a problem and nothing else.
func TestDamagedPlan(t *testing.T) {
	for _, tc := range []struct{ recording, from, to string }{
		{"roles-waiting", `"node_index":1`, `"node_index":-1`},
		{"roles-waiting", `"node_index":1`, `"node_index":2147483647`},
		{"waiting", `"node_index":1`, `"node_index":4`},
		{"good", `"ranks_per_node":1`, `"ranks_per_node":-11`},
	} {
		dir, now := recorded(t, tc.recording)
		plan := filepath.Join(dir, "control", "plan.0000")
		data, err := os.ReadFile(plan)
		if err != nil || !bytes.Contains(data, []byte(tc.from)) {
			t.Fatalf("%s has no %s: %v", plan, tc.from, err)
		}
		if err := os.WriteFile(plan, bytes.ReplaceAll(data, []byte(tc.from), []byte(tc.to)), 0o600); err != nil {
			t.Fatal(err)
		}
		run, err := Read(t.Context(), dir, DepthFull)
		if err != nil || run.Roles != nil || len(run.Problems) == 0 {
			t.Errorf("%s with %s: %+v, %v", tc.recording, tc.to, run.Problems, err)
			continue
		}
		SummarizeRun(run, Observation{Now: now})
	}
}
