package signal

import (
	"math"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestNames(t *testing.T) {
	for _, tc := range []struct{ name, got, want string }{
		{"a node's state", NodeName(7, 8, record.StateJoined), "0007.joined"},
		{"a single node", NodeName(0, 1, record.StateServiceUp), "0000.up"},
		{"the last of four digits", NodeName(9999, 10000, record.StateServiceUp), "9999.up"},
		{"five digits from the first on", NodeName(7, 10001, record.StateServiceUp), "00007.up"},
		{"six digits", NodeName(7, 100_001, record.StateServiceUp), "000007.up"},
		{"as many as a record may say", NodeName(7, math.MaxInt, record.StateServiceUp), "0000000000000000007.up"},
		{"an abort", AbortName(7, 8), "abort.0007"},
		{"a team", SeriesTeam.Name(7), "team.0007"},
		{"a team after many", SeriesTeam.Name(12345), "team.12345"},
		{"up in the first team", NodeName(7, 8, ServiceUpState(0)), "0007.up"},
		{"up in a later one", NodeName(7, 8, ServiceUpState(2)), "0007.up-2"},
		{"a log", LogName("worker", 7, 8), "worker-0007.log"},
		{"a daemon's events", EventsName("daemon", 7, 8), "0007.jsonl"},
		{"another daemon's events", EventsName("sandbox-daemon", 7, 8), "0007.sandbox-daemon.jsonl"},
		{"a beat", numberedName(7, 8, record.StateHeartbeat, 123), "0007.beat.000123"},
		{"a node that is fit", CheckedName(7, 8, 0), "0007.checked"},
		{"a node of some kind", CheckedName(7, 8, 123456789012), "0007.checked.123456789012"},
		{"an event", EventName(7, 8, 3), "0007.event.000003"},
		{"a beat of many days", numberedName(7, 8, record.StateHeartbeat, 12345678), "0007.beat.12345678"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("got %q, want %q", tc.got, tc.want)
			}
		})
	}
}

func TestNodeName(t *testing.T) {
	for _, tc := range []struct {
		name  string
		in    string
		node  int
		state record.State
		count int64
		ok    bool
	}{
		{"a state", "0007.up", 7, record.StateServiceUp, 0, true},
		{"a wide index", "00012.sandbox-failed", 12, record.StateSandboxFailed, 0, true},
		{"a state of a later version", "0007.settled", 7, "settled", 0, true},
		{"a beat", "0007.beat.000123", 7, record.StateHeartbeat, 123, true},
		{"a state of a further step", "0007-1.up", 0, "", 0, false},
		{"a node that is fit", "0007.checked", 7, record.StateChecked, 0, true},
		{"a node of some kind", "0007.checked.123456789012", 7, record.StateChecked, 123456789012, true},
		{"a kind that is none", "0007.checked.x", 0, "", 0, false},
		{"an event", "0007.event.000003", 7, record.StateEvent, 3, true},
		{"an event without a number", "0007.event", 0, "", 0, false},
		{"a beat without a count", "0007.beat", 0, "", 0, false},
		{"a count of what is not counted", "0007.up.000001", 0, "", 0, false},
		{"a count that is none", "0007.beat.x", 0, "", 0, false},
		{"a count below zero", "0007.beat.-1", 0, "", 0, false},
		{"a count too large", "0007.beat.9223372036854775808", 0, "", 0, false},
		{"two counts", "0007.beat.1.2", 0, "", 0, false},
		{"no state", "0007", 0, "", 0, false},
		{"an empty state", "0007.", 0, "", 0, false},
		{"no index", ".up", 0, "", 0, false},
		{"a index not padded", "7.up", 0, "", 0, false},
		{"a index with a sign", "+007.up", 0, "", 0, false},
		{"a index below zero", "-007.up", 0, "", 0, false},
		{"a index too large", "99999999999999999999.up", 0, "", 0, false},
		{"an abort", "abort.0007", 0, "", 0, false},
		{"empty", "", 0, "", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node, state, count, ok := ParseNodeName(tc.in, 0)
			if node != tc.node || state != tc.state || count != tc.count || ok != tc.ok {
				t.Errorf("ParseNodeName(%q) = %d, %q, %d, %t", tc.in, node, state, count, ok)
			}
		})
	}
}

func TestAbortRank(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   string
		node int
		ok   bool
	}{
		{"the head's", "abort.0000", 0, true},
		{"a worker's", "abort.0007", 7, true},
		{"of a wide job", "abort.00012", 12, true},
		{"no index", "abort", 0, false},
		{"an empty index", "abort.", 0, false},
		{"a index with a sign", "abort.+007", 0, false},
		{"more behind it", "abort.0007.x", 0, false},
		{"another name", "about.0007", 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if node, ok := parseNumbered(tc.in, abortPrefix); node != tc.node || ok != tc.ok {
				t.Errorf("numbered(%q) = %d, %t", tc.in, node, ok)
			}
		})
	}
}

func TestParseNodeName(t *testing.T) {
	for _, test := range []struct {
		name  string
		size  int
		node  int
		state record.State
		count int64
		ok    bool
	}{
		{"0007.up", 8, 7, "up", 0, true},
		{"0007.up", 0, 7, "up", 0, true},
		{"0007.beat.000012", 8, 7, "beat", 12, true},
		{"0008.up", 8, 0, "", 0, false},
		{"00007.up", 8, 0, "", 0, false},
		{"0007.u", 1_000_000, 0, "", 0, false},
		{"latest", 8, 0, "", 0, false},
	} {
		node, state, count, ok := ParseNodeName(test.name, test.size)
		if ok != test.ok || ok && (node != test.node || state != test.state || count != test.count) {
			t.Errorf("%s of %d nodes is %d %q %d %v", test.name, test.size, node, state, count, ok)
		}
	}
}

func TestParseLogName(t *testing.T) {
	for _, tc := range []struct {
		name, what string
		node       int
		ok         bool
	}{
		{"driver.log", "driver", -1, true},
		{"worker-0007.log", "worker", 7, true},
		{"sandbox-daemon-123456.log", "sandbox-daemon", 123456, true},
		{"my-service.log", "my-service", -1, true},
		{"worker-7.log", "worker-7", -1, true},
		{"notes.txt", "", 0, false},
		{".log", "", 0, false},
		{"<b>.log", "", 0, false},
		{"a b.log", "", 0, false},
		{"\u00e4.log", "", 0, false},
	} {
		if what, node, ok := ParseLogName(tc.name); ok != tc.ok || ok && (what != tc.what || node != tc.node) {
			t.Errorf("%s is of %q, node %d, %v", tc.name, what, node, ok)
		}
	}
}

func TestParseEventsName(t *testing.T) {
	for _, kind := range []string{"daemon", "sandbox-daemon"} {
		if node, got, ok := ParseEventsName(EventsName(kind, 7, 8)); node != 7 || got != kind || !ok {
			t.Errorf("%s is of node %d, %q, %v", EventsName(kind, 7, 8), node, got, ok)
		}
	}
	for _, name := range []string{"7.jsonl", "0007", "0007.", "0007..jsonl", "x.jsonl", ""} {
		if _, _, ok := ParseEventsName(name); ok {
			t.Errorf("%q is taken for a timeline", name)
		}
	}
}

func TestParseUp(t *testing.T) {
	for state, want := range map[record.State]int{"up": 0, "up-3": 3, "upper": -1, "up-": -1, "up-x": -1, "": -1, "joined": -1} {
		got, ok := ParseServiceUpState(state)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q is up since %d, %v", state, got, ok)
		}
	}
}
