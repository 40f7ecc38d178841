package membership

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestParseRequire(t *testing.T) {
	for _, tc := range []struct {
		text string
		well bool
	}{
		{"all", true},
		{"any", true},
		{"head", true},
		{"1", true},
		{"64", true},
		{"", false},
		{"0", false},
		{"-1", false},
		{"1.5", false},
		{"ALL", false},
		{"none", false},
	} {
		t.Run(tc.text, func(t *testing.T) {
			r, err := ParseSandboxQuorum(tc.text)
			if (err == nil) != tc.well {
				t.Fatalf("the error is %v", err)
			}
			if tc.well && r.String() != tc.text {
				t.Errorf("it became %q", r)
			}
		})
	}
}

func TestRequire(t *testing.T) {
	for _, tc := range []struct {
		name        string
		require     string
		ready, lost []int
		size        int
		met, missed bool
	}{
		{"all, nothing known", "all", nil, nil, 3, false, false},
		{"all, but one", "all", []int{0, 2}, nil, 3, false, false},
		{"all", "all", []int{0, 1, 2}, nil, 3, true, false},
		{"all, and one lost", "all", []int{0, 1}, []int{2}, 3, false, true},
		{"all of one", "all", []int{0}, nil, 1, true, false},
		{"all of one lost", "all", nil, []int{0}, 1, false, true},
		{"any, nothing known", "any", nil, nil, 3, false, false},
		{"any", "any", []int{2}, nil, 3, true, false},
		{"any, and all but one lost", "any", nil, []int{0, 1}, 3, false, false},
		{"any, and all lost", "any", nil, []int{0, 1, 2}, 3, false, true},
		{"the head's, nothing known", "head", nil, nil, 3, false, false},
		{"the head's, and all but it", "head", []int{1, 2}, nil, 3, false, false},
		{"the head's", "head", []int{0}, []int{1, 2}, 3, true, false},
		{"the head's lost", "head", []int{1, 2}, []int{0}, 3, false, true},
		{"two, and one there", "2", []int{1}, nil, 3, false, false},
		{"two", "2", []int{0, 2}, []int{1}, 3, true, false},
		{"two, and two of three lost", "2", []int{1}, []int{0, 2}, 3, false, true},
		{"three of three, one lost", "3", []int{0, 1}, []int{2}, 3, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := ParseSandboxQuorum(tc.require)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.IsMet(tc.ready, tc.size); got != tc.met {
				t.Errorf("met is %v", got)
			}
			if got := r.IsUnreachable(tc.lost, tc.size); got != tc.missed {
				t.Errorf("missed is %v", got)
			}
		})
	}
}

func TestLacks(t *testing.T) {
	all := map[record.State][]int{record.StateJoined: {0, 1, 2, 3}, record.StateChecked: {0, 1, 2, 3}, record.StateSandboxReady: {0, 1, 2, 3}, record.StateServiceUp: {0, 1, 2, 3}}
	with := func(state record.State, nodes ...int) map[record.State][]int {
		there := map[record.State][]int{state: nodes}
		for other, nodes := range all {
			if other != state {
				there[other] = nodes
			}
		}
		return there
	}
	full := Requirements{NeedChecks: true, NeedSandboxes: true, NeedServices: true, HeadServiceUp: true}
	for _, tc := range []struct {
		name  string
		a     Requirements
		there map[record.State][]int
		want  string
	}{
		{"nobody has come", Requirements{}, nil, "join [0 1 2 3]"},
		{"nothing is missing", full, all, ""},
		{"of a node the first thing alone", full, map[record.State][]int{record.StateJoined: {0, 1}, record.StateChecked: {0}, record.StateSandboxReady: {0}, record.StateServiceUp: {0}},
			"join [2 3]; check [1]"},
		{"a sandbox and a service at once", full, map[record.State][]int{record.StateJoined: all["up"], record.StateChecked: all["up"], record.StateSandboxReady: {0, 1}, record.StateServiceUp: {0, 2}},
			"sandbox [2 3]; workers [1 3]"},
		{"sandboxes enough", Requirements{NeedServices: true, HeadServiceUp: true}, with(record.StateSandboxReady), ""},
		{"no service is up before the head's", Requirements{NeedServices: true}, with(record.StateServiceUp), "head []"},
		{"the head's own checks come first", Requirements{NeedChecks: true, NeedServices: true}, with(record.StateChecked, 1, 2, 3), "check [0]"},
		{"nobody is to have a service", Requirements{}, with(record.StateServiceUp), ""},
		{"the framework counts", Requirements{NeedServices: true, HeadServiceUp: true, FrameworkPending: true}, all, "workers []"},
		{"a service is missed before the framework counts", Requirements{NeedServices: true, HeadServiceUp: true, FrameworkPending: true}, with(record.StateServiceUp, 0, 1, 3), "workers [2]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			missing := func(state record.State) (missing []int) {
				for node := range 4 {
					if !slices.Contains(tc.there[state], node) {
						missing = append(missing, node)
					}
				}
				return missing
			}
			var got []string
			for _, l := range tc.a.UnmetSteps(missing) {
				got = append(got, fmt.Sprint(l.Step, " ", l.Nodes))
			}
			if strings.Join(got, "; ") != tc.want {
				t.Errorf("it lacks %q, not %q", strings.Join(got, "; "), tc.want)
			}
		})
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
	long := FormatWait(missing, 64, time.Minute, "ray", func([]int) string { return strings.Repeat("\x1b", 10<<20) })
	if utf8.RuneCountInString(long) > 2*maxPartLength || strings.Contains(long, "\x1b") {
		t.Errorf("a line is %d characters long", utf8.RuneCountInString(long))
	}
}

func TestReminderSchedule(t *testing.T) {
	start := time.Unix(1000, 0)
	joins, serves := []UnmetStep{{record.PhaseJoin, []int{3}}}, []UnmetStep{{record.PhaseWorkers, []int{3, 4}}}
	var v ReminderSchedule
	var told []string
	for s := range 3601 { // an hour of joining, without an end
		if waited, due := v.CheckDue(joins, start.Add(time.Duration(s)*time.Second)); due {
			told = append(told, waited.String())
		}
	}
	want := "15s 30s 1m0s 5m0s 10m0s 15m0s 20m0s 25m0s 30m0s 35m0s 40m0s 45m0s 50m0s 55m0s 1h0m0s"
	if got := strings.Join(told, " "); got != want {
		t.Errorf("it told after %s, not after %s", got, want)
	}
	now := start.Add(2 * time.Hour)
	if _, due := v.CheckDue(serves, now); due {
		t.Error("another stage is told of at once")
	}
	if waited, due := v.CheckDue(serves, now.Add(16*time.Second)); !due || waited != 16*time.Second {
		t.Errorf("another stage is told of: %v, after %s", due, waited)
	}
	if _, due := v.CheckDue(serves, now.Add(20*time.Minute)); !due {
		t.Error("a head that did not run tells nothing")
	}
	if _, due := v.CheckDue(serves, now.Add(20*time.Minute+time.Second)); due {
		t.Error("a head that did not run makes up for it")
	}
	if _, due := v.CheckDue([]UnmetStep{{Step: record.PhaseWorkers}}, now.Add(20*time.Minute+2*time.Second)); due {
		t.Error("that the framework counts is told of at once")
	}
	if _, due := v.CheckDue(nil, now.Add(time.Hour)); due {
		t.Error("it tells that it waits for nothing")
	}
}

func TestSaid(t *testing.T) {
	waits := func(what string) eventlog.Event {
		return eventlog.Event{Type: eventlog.ChecksWaiting, Fields: eventlog.Fields{CheckFields: eventlog.CheckFields{Checks: what}}}
	}
	probe := func(child, seen string) eventlog.Event {
		return eventlog.Event{Type: eventlog.ProbeChanged, Fields: eventlog.Fields{ObjectFields: eventlog.ObjectFields{Child: child}, OK: new(seen == ""), Seen: seen}}
	}
	for _, tc := range []struct {
		step   record.Phase
		events []eventlog.Event
		want   string
	}{
		{record.PhaseCheck, nil, ""},
		{record.PhaseCheck, []eventlog.Event{{Type: eventlog.PhaseEntered}}, ""},
		{record.PhaseCheck, []eventlog.Event{waits("a"), waits("b")}, "b"},
		{record.PhaseCheck, []eventlog.Event{waits("a"), {Type: eventlog.ChecksDone, Fields: eventlog.Fields{CheckFields: eventlog.CheckFields{Verdict: "PASS"}}}}, ""},
		{record.PhaseCheck, []eventlog.Event{probe("worker", "refused")}, ""},
		{record.PhaseWorkers, []eventlog.Event{waits("a"), probe("worker", "refused")}, "refused"},
		{record.PhaseWorkers, []eventlog.Event{probe("worker", "refused"), probe("worker", "")}, ""},
		{record.PhaseSandbox, []eventlog.Event{probe("worker", "refused")}, ""},
		{record.PhaseSandbox, []eventlog.Event{probe("sandbox", "404"), probe("worker", "refused")}, "404"},
		{record.PhaseJoin, []eventlog.Event{waits("a")}, ""},
	} {
		var said LastReported
		for _, e := range tc.events {
			said.RecordEvent(e.Type, e.Fields)
		}
		if got := said[tc.step]; got != tc.want {
			t.Errorf("%s, by %+v: it says %q, not %q", tc.step, tc.events, got, tc.want)
		}
	}
}
