package membership

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bringupd/bringupd/pkg/eventlog"
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

func TestSandboxQuorum(t *testing.T) {
	for _, tc := range []struct {
		require string
		size    int
		ready   string
		met     bool
	}{
		{require: "all", size: 3},
		{require: "all", size: 3, ready: "02"},
		{require: "all", size: 3, ready: "012", met: true},
		{require: "all", size: 3, ready: "01"},
		{require: "all", size: 1, ready: "0", met: true},
		{require: "all", size: 1},
		{require: "any", size: 3},
		{require: "any", size: 3, ready: "2", met: true},
		{require: "head", size: 3},
		{require: "head", size: 3, ready: "12"},
		{require: "head", size: 3, ready: "0", met: true},
		{require: "2", size: 3, ready: "1"},
		{require: "2", size: 3, ready: "02", met: true},
		{require: "3", size: 3, ready: "01"},
	} {
		r, err := ParseSandboxQuorum(tc.require)
		if err != nil {
			t.Fatal(err)
		}
		if met := r.IsMet(indices(tc.ready), tc.size); met != tc.met {
			t.Errorf("%+v: met %t", tc, met)
		}
	}
}

func TestUnmetSteps(t *testing.T) {
	full := Requirements{NeedChecks: true, NeedSandboxes: true, NeedServices: true, HeadServiceUp: true}
	services := Requirements{NeedServices: true, HeadServiceUp: true}
	listed := Requirements{NeedServices: true, HeadServiceUp: true, FrameworkPending: true}
	for _, tc := range []struct {
		name    string
		needs   Requirements
		missing map[record.State]string
		want    string
	}{
		{"nobody has come", Requirements{}, map[record.State]string{record.StateJoined: "0123"}, "join [0 1 2 3]"},
		{"nothing is missing", full, nil, ""},
		{"of a node the first thing alone", full, map[record.State]string{
			record.StateJoined: "23", record.StateChecked: "123", record.StateSandboxReady: "123",
			record.StateServiceUp: "123"}, "join [2 3]; check [1]"},
		{"a sandbox and a service at once", full, map[record.State]string{
			record.StateSandboxReady: "23", record.StateServiceUp: "13"}, "sandbox [2 3]; workers [1 3]"},
		{"sandboxes enough", services, map[record.State]string{record.StateSandboxReady: "0123"}, ""},
		{"no service is up before the head's", Requirements{NeedServices: true},
			map[record.State]string{record.StateServiceUp: "0123"}, "head []"},
		{"the head's own checks come first", Requirements{NeedChecks: true, NeedServices: true},
			map[record.State]string{record.StateChecked: "0"}, "check [0]"},
		{"nobody is to have a service", Requirements{}, map[record.State]string{record.StateServiceUp: "0123"}, ""},
		{"the framework counts", listed, nil, "workers []"},
		{"a service is missed first", listed, map[record.State]string{record.StateServiceUp: "2"}, "workers [2]"},
	} {
		var got []string
		for _, l := range tc.needs.UnmetSteps(func(state record.State) []int { return indices(tc.missing[state]) }) {
			got = append(got, fmt.Sprint(l.Step, " ", l.Nodes))
		}
		if strings.Join(got, "; ") != tc.want {
			t.Errorf("%s: it lacks %q, not %q", tc.name, got, tc.want)
		}
	}
}

func TestLine(t *testing.T) {
	who := func(nodes []int) string { return "n" + strings.Trim(fmt.Sprint(nodes), "[]") }
	const prefix = "still waiting, 1m30s now"
	for _, tc := range []struct {
		name, want string
		lacks      []UnmetStep
	}{
		{"nodes", ", for 3 of 64 nodes: not joined: n17; service not up: n3 4", []UnmetStep{
			{Step: record.PhaseJoin, Nodes: []int{17}}, {Step: record.PhaseWorkers, Nodes: []int{3, 4}},
		}},
		{"one node twice", ", for 1 of 64 nodes: sandbox not ready: n3; service not up: n3", []UnmetStep{
			{Step: record.PhaseSandbox, Nodes: []int{3}}, {Step: record.PhaseWorkers, Nodes: []int{3}},
		}},
		{"no node", ": the head's service is not up", []UnmetStep{{Step: record.PhaseHead}}},
		{"framework", ": ray does not report all 64 nodes yet", []UnmetStep{{Step: record.PhaseWorkers}}},
	} {
		if got := FormatWait(tc.lacks, 64, 90*time.Second, "ray", who); got != prefix+tc.want {
			t.Errorf("%s: the line is %q, not %q", tc.name, got, prefix+tc.want)
		}
	}
	missing := []UnmetStep{{Step: record.PhaseCheck, Nodes: []int{5}}}
	long := FormatWait(missing, 64, time.Minute, "ray", func([]int) string { return strings.Repeat("\x1b", 1<<16) })
	if utf8.RuneCountInString(long) > 2*maxPartLength || strings.Contains(long, "\x1b") {
		t.Errorf("a line is %d characters long", utf8.RuneCountInString(long))
	}
}

// TestReminderSchedule verifies when lines about long waits are due, also after a head did not run for
// a while.
func TestReminderSchedule(t *testing.T) {
	start := time.Unix(1000, 0)
	joins, serves := []UnmetStep{{record.PhaseJoin, []int{3}}}, []UnmetStep{{record.PhaseWorkers, []int{3, 4}}}
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
	event := func(name eventlog.EventType, child, checks, seen string) eventlog.Event {
		return eventlog.Event{Type: name, Fields: eventlog.Fields{Seen: seen,
			ObjectFields: eventlog.ObjectFields{Child: child}, CheckFields: eventlog.CheckFields{Checks: checks}}}
	}
	waits := func(what string) eventlog.Event { return event(eventlog.ChecksWaiting, "", what, "") }
	probe := func(child, seen string) eventlog.Event { return event(eventlog.ProbeChanged, child, "", seen) }
	for _, tc := range []struct {
		step   record.Phase
		events []eventlog.Event
		want   string
	}{
		{record.PhaseCheck, nil, ""},
		{record.PhaseCheck, []eventlog.Event{event(eventlog.PhaseEntered, "", "", "")}, ""},
		{record.PhaseCheck, []eventlog.Event{waits("a"), waits("b")}, "b"},
		{record.PhaseCheck, []eventlog.Event{waits("a"), event(eventlog.ChecksDone, "", "", "")}, ""},
		{record.PhaseCheck, []eventlog.Event{probe("worker", "refused")}, ""},
		{record.PhaseWorkers, []eventlog.Event{waits("a"), probe("worker", "refused")}, "refused"},
		{record.PhaseWorkers, []eventlog.Event{probe("worker", "refused"), probe("worker", "")}, ""},
		{record.PhaseSandbox, []eventlog.Event{probe("worker", "refused")}, ""},
		{record.PhaseSandbox, []eventlog.Event{probe("sandbox", "404"), probe("worker", "refused")}, "404"},
		{record.PhaseJoin, []eventlog.Event{waits("a")}, ""},
	} {
		var reported LastReported
		for _, e := range tc.events {
			reported.RecordEvent(e.Type, e.Fields)
		}
		if got := reported[tc.step]; got != tc.want {
			t.Errorf("%s, by %+v: the reason is %q, not %q", tc.step, tc.events, got, tc.want)
		}
	}
}
