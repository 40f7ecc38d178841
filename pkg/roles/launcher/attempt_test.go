package launcher

import (
	"strings"
	"testing"
)

func TestRunNameOfAttempts(t *testing.T) {
	for _, tc := range []struct {
		id   Identity
		want string
	}{
		{Identity{Job: "123", Step: "0", Attempt: 2}, "123.0-a2"},
		{Identity{Job: "123", Step: "0", Restart: 1, Attempt: 2}, "123.0-r1-a2"},
		{Identity{Job: "x", Attempt: 1}, "x-a1"},
		{Identity{Job: "x"}, "x"},
	} {
		if got := tc.id.RunName(); got != tc.want {
			t.Errorf("attempt %d is called %s, not %s", tc.id.Attempt, got, tc.want)
		}
	}
}

func TestRequeueName(t *testing.T) {
	for run, want := range map[string]string{"123.0": "123.0-r1", "123.4-r1-a2": "123.4-r2", "123": "123-r1"} {
		if got := RequeueName(run, "123"); got != want {
			t.Errorf("%s is followed by %s, not by %s", run, got, want)
		}
	}
}

// TestAdoptRun makes the identity of a daemon of a further step that of a member of a run.
func TestAdoptRun(t *testing.T) {
	for _, tc := range []struct {
		name string
		own  Identity // before
		run  string
		want Identity // step and attempt
	}{
		{"a run of another step", Identity{Job: "123", Step: "4"}, "123.0", Identity{Step: "0"}},
		{"a second attempt", Identity{Job: "123", Step: "4"}, "123.1-a2", Identity{Step: "1", Attempt: 2}},
		{"a name that was taken", Identity{Job: "123", Step: "4"}, "123.1-a2+0123abcd",
			Identity{Step: "1", Attempt: 2}},
		{"a job that was requeued", Identity{Job: "123", Step: "4", Restart: 3}, "123.0-r3-a1",
			Identity{Step: "0", Attempt: 1}},
		{"a launcher without steps", Identity{Job: "local-a1"}, "local-a1", Identity{}},
		{"a second attempt without steps", Identity{Job: "local-a1"}, "local-a1-a3", Identity{Attempt: 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !tc.own.IsRunOfJob(tc.run) {
				t.Errorf("%s is no run of the job", tc.run)
			}
			id := tc.own
			id.AdoptRun(tc.run, "key", 5, 4)
			if id.Step != tc.want.Step || id.Attempt != tc.want.Attempt || id.NodeIndex != 5 ||
				id.Size != 4 || id.LaunchKey != "key" {
				t.Errorf("got %+v", id)
			}
			if name, _, _ := strings.Cut(tc.run, "+"); id.RunName() != name {
				t.Errorf("its run is %s, not %s", id.RunName(), name)
			}
		})
	}
	for _, name := range []string{"124.0", "12.0", "123.0-r1", "123.0-x", "1230", "123-a1.0", "latest"} {
		if id := (Identity{Job: "123", Step: "4"}); id.IsRunOfJob(name) {
			t.Errorf("%s is a run of job 123", name)
		}
	}
}

// TestMembers names the daemons of further steps.
func TestMembers(t *testing.T) {
	id := Identity{NodeIndex: 5, Size: 4, Host: "n1", Hosts: []string{"n0", "n1", "n2", "n3"},
		Steps: []string{"judge", "sandbox"}}
	for member, want := range map[int]string{0: "node 0 (n0)", 1: "node 1 (n1)",
		4: "step judge of node 0 (n0)", 11: "step sandbox of node 3 (n3)", 12: "node 0"} {
		if got := id.MemberLabel(member, id.HostOf(member)); got != want {
			t.Errorf("member %d is %q, want %q", member, got, want)
		}
	}
	if got, want := id.FormatNodes([]int{2, 5, 1, 9}, id.HostOf),
		"n[1-2], step judge of node 1 (n1), step sandbox of node 1 (n1)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if id.CountMembers() != 12 || id.StepNameOf(5) != "judge" || id.StepNameOf(3) != "" ||
		DaemonLogKind("judge") != "judge-daemon" {
		t.Error("the members are wrong")
	}
}
