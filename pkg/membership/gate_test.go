package membership

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// indices returns the nodes of a text with one digit for each.
func indices(digits string) (nodes []int) {
	for _, digit := range digits {
		nodes = append(nodes, int(digit-'0'))
	}
	return nodes
}

func TestParseSandboxQuorum(t *testing.T) {
	for _, text := range []string{"all", "any", "head", "1", "64"} {
		if r, err := ParseSandboxQuorum(text); err != nil || r.String() != text {
			t.Errorf("%q becomes %q, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "1.5", "ALL", "none"} {
		if r, err := ParseSandboxQuorum(text); err == nil {
			t.Errorf("%q becomes %q", text, r)
		}
	}
}

// progress returns how far a role with a process on each of four nodes has come: the instances on the
// nodes of the text late are starting, and all others ready.
func progress(kind roles.BuiltIn, late string, after ...string) roles.Progress {
	plan := &roles.RolePlan{Definition: &roles.Definition{
		Name: string(kind), BuiltIn: kind, After: after, Ready: roles.ReadyProbe{Timeout: 30 * time.Minute},
		Required: roles.Requirement{Start: roles.QuorumAll}, Program: roles.Program{Log: string(kind)},
	}, Instances: make([]roles.Instance, 4)}
	all := roles.Progress{RolePlan: plan}
	for node := range plan.Instances {
		instance := &plan.Instances[node]
		*instance = roles.Instance{Index: node, Processes: []roles.Process{{Place: node}}}
		state := roles.InstanceState{Status: roles.StatusReady, LateNode: -1}
		if strings.Contains(late, fmt.Sprint(node)) {
			state = roles.InstanceState{Status: roles.StatusStarting, LateNode: node}
		}
		all.AddInstance(instance, state, []int{node}, 4, time.Unix(1000, 0))
	}
	return all
}

// waiting returns a role whose instances all wait for other roles.
func waiting(name string, after ...string) roles.Progress {
	all := progress(roles.BuiltIn(name), "", after...)
	all.Count = roles.Count{}
	return all
}

func TestUnmetSteps(t *testing.T) {
	primary := waiting("driver")
	primary.Primary = true
	oneIsEnough := progress("sandbox", "123")
	oneIsEnough.Required.Start = 1
	for _, tc := range []struct {
		name    string
		needs   Requirements
		missing map[record.State]string
		want    string
	}{
		{"nobody has come", Requirements{}, map[record.State]string{record.StateJoined: "0123"}, "join [0 1 2 3]"},
		{"nothing is missing", Requirements{NeedChecks: true, Roles: []roles.Progress{progress("worker", ""), primary}},
			nil, ""},
		{"of a node the first thing alone",
			Requirements{NeedChecks: true, Roles: []roles.Progress{progress("worker", "123")}},
			map[record.State]string{record.StateJoined: "23", record.StateChecked: "123"}, "join [2 3]; check [1]"},
		{"a sandbox and a service at once",
			Requirements{Roles: []roles.Progress{progress("worker", "13"), progress("sandbox", "23")}}, nil,
			"sandbox sandbox [2 3]; workers worker [1 3]"},
		{"sandboxes enough", Requirements{Roles: []roles.Progress{oneIsEnough}}, nil, ""},
		{"a role after another one that is missing",
			Requirements{Roles: []roles.Progress{progress("head", "0"), progress("worker", "0123", "head")}}, nil,
			"head head [0]"},
		{"a role that has not started yet", Requirements{Roles: []roles.Progress{waiting("judge")}}, nil,
			"workers judge []"},
		{"the framework counts", Requirements{FrameworkPending: true, Roles: []roles.Progress{progress("worker", "")}},
			nil, "workers []"},
		{"a service is missed first",
			Requirements{FrameworkPending: true, Roles: []roles.Progress{progress("worker", "2")}}, nil,
			"workers worker [2]"},
	} {
		var got []string
		for _, l := range tc.needs.UnmetSteps(func(state record.State) []int { return indices(tc.missing[state]) }) {
			role := ""
			if l.Role != nil {
				role = l.Role.Name + " "
			}
			got = append(got, fmt.Sprintf("%s %s%d", l.Step, role, l.Nodes))
		}
		if strings.Join(got, "; ") != tc.want {
			t.Errorf("%s: it lacks %q, not %q", tc.name, got, tc.want)
		}
	}
}

func TestWaitFormat(t *testing.T) {
	format := WaitFormat{Size: 64, Framework: "ray",
		Who: func(nodes []int) string { return "n" + strings.Trim(fmt.Sprint(nodes), "[]") }}
	now := time.Unix(1045, 0)
	roleStep := func(role roles.Progress, last string) UnmetStep {
		if last != "" {
			role.Late[0].Last = last
		}
		lacks := Requirements{Roles: []roles.Progress{role}}.UnmetSteps(func(record.State) []int { return nil })
		return lacks[0]
	}
	judges := progress("", "12")
	judges.Name, judges.Late[0].Name = "judge", "judge.1"
	oneshot := progress("setup", "3")
	oneshot.Oneshot, oneshot.Timeout = true, 0
	const prefix = "still waiting, 45s now"
	for _, tc := range []struct {
		name, want string
		hasSetup   bool
		lacks      []UnmetStep
	}{
		{"nodes", ", for 3 of 64 nodes: not joined: n17; checks not passed: n3 4", false, []UnmetStep{
			{Step: record.PhaseJoin, Nodes: []int{17}}, {Step: record.PhaseCheck, Nodes: []int{3, 4}},
		}},
		{"a setup command", ", for 1 of 64 nodes: setup command or checks not done: n5", true, []UnmetStep{
			{Step: record.PhaseCheck, Nodes: []int{5}},
		}},
		{"what it prints", ", for 2 of 64 nodes: setup command or checks not done: n5 6, of which n5 has printed: " +
			"wheel 3 of 9", true, []UnmetStep{{Step: record.PhaseCheck, Nodes: []int{5, 6}, Last: "wheel 3 of 9"}}},
		{"services", ", for 2 of 64 nodes: worker (2 of 4 ready): worker.1 on n1: not ready for 45s of 30m: " +
			"loading 61 %, and 1 more on n2", false, []UnmetStep{roleStep(progress("worker", "12"), "loading 61 %")}},
		{"a role of a file", ", for 2 of 64 nodes: judge (2 of 4 ready): judge.1 on n1: not ready for 45s of 30m, " +
			"and 1 more", false, []UnmetStep{roleStep(judges, "")}},
		{"a oneshot role", ", for 1 of 64 nodes: setup (0 of 4 done): setup.3 on n3: not done for 45s", false,
			[]UnmetStep{roleStep(oneshot, "")}},
		{"a role that has not started", ": judge (0 of 4 ready)", false, []UnmetStep{roleStep(waiting("judge"), "")}},
		{"framework", ": ray does not report all 64 nodes yet", false, []UnmetStep{{Step: record.PhaseWorkers}}},
	} {
		format.HasSetup = tc.hasSetup
		if got := format.Format(tc.lacks, now, 45*time.Second); got != prefix+tc.want {
			t.Errorf("%s: the line is %q, not %q", tc.name, got, prefix+tc.want)
		}
	}
	format.Who = func([]int) string { return strings.Repeat("\x1b", 1<<16) }
	missing := []UnmetStep{{Step: record.PhaseCheck, Nodes: []int{5}}}
	long := format.Format(missing, now, time.Minute)
	if utf8.RuneCountInString(long) > 2*maxPartLength || strings.Contains(long, "\x1b") {
		t.Errorf("a line is %d characters long", utf8.RuneCountInString(long))
	}
}

// TestReminderSchedule verifies when lines about long waits are due, also after a head did not run for
// a while.
func TestReminderSchedule(t *testing.T) {
	start := time.Unix(1000, 0)
	role := progress("worker", "3")
	joins := []UnmetStep{{Step: record.PhaseJoin, Nodes: []int{3}}}
	serves := []UnmetStep{{Step: record.PhaseWorkers, Nodes: []int{3, 4}, Role: &role}}
	var v ReminderSchedule
	var lines []string
	for s := range 3601 { // an hour of joining, without an end
		if waited, due := v.CheckDue(joins, start.Add(time.Duration(s)*time.Second)); due {
			lines = append(lines, waited.String())
		}
	}
	want := "15s 30s 1m0s 5m0s 10m0s 15m0s 20m0s 25m0s 30m0s 35m0s 40m0s 45m0s 50m0s 55m0s 1h0m0s"
	if got := strings.Join(lines, " "); got != want {
		t.Errorf("lines are due after %s, not after %s", got, want)
	}
	for _, tc := range []struct {
		after time.Duration
		lacks []UnmetStep
		due   bool
	}{
		{0, serves, false},
		{16 * time.Second, serves, true},
		{20 * time.Minute, serves, true},
		{20*time.Minute + time.Second, serves, false},
		{20*time.Minute + 2*time.Second, []UnmetStep{{Step: record.PhaseWorkers}}, false},
		{time.Hour, nil, false},
	} {
		if _, due := v.CheckDue(tc.lacks, start.Add(2*time.Hour+tc.after)); due != tc.due {
			t.Errorf("after %s: due is %t", tc.after, due)
		}
	}
}

func TestLastReported(t *testing.T) {
	event := func(name eventlog.EventType, child, checks string) eventlog.Event {
		return eventlog.Event{Type: name, Fields: eventlog.Fields{
			ObjectFields: eventlog.ObjectFields{Child: child}, CheckFields: eventlog.CheckFields{Checks: checks}}}
	}
	waits := func(what string) eventlog.Event { return event(eventlog.ChecksWaiting, "", what) }
	begins, ends := event(eventlog.ChildStarted, SetupName, ""), event(eventlog.ChildExited, SetupName, "")
	for _, tc := range []struct {
		events []eventlog.Event
		want   LastReported
	}{
		{nil, ""},
		{[]eventlog.Event{event(eventlog.PhaseEntered, "", "")}, ""},
		{[]eventlog.Event{waits("a"), waits("b")}, "b"},
		{[]eventlog.Event{waits("a"), event(eventlog.ChecksDone, "", "")}, ""},
		{[]eventlog.Event{begins}, SetupRuns},
		{[]eventlog.Event{begins, event(eventlog.ChildExited, "worker", "")}, SetupRuns},
		{[]eventlog.Event{begins, ends}, ""},
		{[]eventlog.Event{begins, ends, waits("a")}, "a"},
	} {
		var reported LastReported
		for _, e := range tc.events {
			reported.RecordEvent(e.Type, e.Fields)
		}
		if reported != tc.want {
			t.Errorf("by %+v: the reason is %q, not %q", tc.events, reported, tc.want)
		}
	}
}
