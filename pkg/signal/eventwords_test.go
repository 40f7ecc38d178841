package signal

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The documentation has a row for each event, and none for another.
func TestEventsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/run-directory.md")
	if err != nil {
		t.Fatal(err)
	}
	_, events, found := strings.Cut(string(text), "| event | tells that | fields |")
	if !found {
		t.Fatal("docs/run-directory.md has no table of events")
	}
	table, _, _ := strings.Cut(events, "\n\n")
	var documented []EventWord
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		documented = append(documented, EventWord(row[1]))
	}
	if words := EventWords(); !slices.Equal(documented, words) {
		t.Errorf("docs/run-directory.md tells of the events\n%v, and the code of\n%v", documented, words)
	}
}

func TestParseNodeName(t *testing.T) {
	for _, test := range []struct {
		name  string
		size  int
		rank  int
		state string
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
		rank, state, count, ok := ParseNodeName(test.name, test.size)
		if ok != test.ok || ok && (rank != test.rank || state != test.state || count != test.count) {
			t.Errorf("%s of %d nodes is %d %q %d %v", test.name, test.size, rank, state, count, ok)
		}
	}
}

func TestParseEventsName(t *testing.T) {
	for _, kind := range []string{"daemon", "sandbox-daemon"} {
		if rank, got, ok := ParseEventsName(EventsName(kind, 7, 8)); rank != 7 || got != kind || !ok {
			t.Errorf("%s is of rank %d, %q, %v", EventsName(kind, 7, 8), rank, got, ok)
		}
	}
	for _, name := range []string{"7.jsonl", "0007", "0007.", "0007..jsonl", "x.jsonl", ""} {
		if _, _, ok := ParseEventsName(name); ok {
			t.Errorf("%q is taken for a timeline", name)
		}
	}
}

func TestParseUp(t *testing.T) {
	for state, want := range map[string]int{"up": 0, "up-3": 3, "upper": -1, "up-": -1, "up-x": -1, "": -1, "joined": -1} {
		got, ok := ParseUp(state)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q is up since %d, %v", state, got, ok)
		}
	}
}
