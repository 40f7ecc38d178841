package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal"
)

func TestDecodeTrail(t *testing.T) {
	line := func(ms int, at time.Time) string {
		return fmt.Sprintf(`{"at":%q,"event":"enter","v":2,"phase":"p%d","since_start_ns":%d}`+"\n", at.Format(time.RFC3339Nano), ms, ms*1_000_000)
	}
	good := line(1, noon.Add(time.Millisecond)) + line(2, noon.Add(2*time.Millisecond)) + line(3, noon.Add(3*time.Millisecond))
	for _, test := range []struct {
		name     string
		content  signal.FileContent
		events   int
		problems []string
	}{
		{"whole", signal.FileContent{Data: []byte(good)}, 3, nil},
		{"cut off", signal.FileContent{Data: []byte(good + `{"at":"20`)}, 3, nil},
		{"damaged", signal.FileContent{Data: []byte("\x00\x00\n" + good + "{}\n\n")}, 3, []string{"2 lines of events/0007.jsonl are not events"}},
		{"its middle left out", signal.FileContent{Data: []byte(good + `{"at`), Tail: []byte(`"event":"x"}` + "\n" + good)}, 6, []string{"part of it is not shown"}},
		{"a huge line", signal.FileContent{Data: []byte(strings.Repeat("x", maxLineLength+1) + "\n" + good)}, 3, []string{"1 lines"}},
		{"odd events", signal.FileContent{Data: []byte(`{"at":"2026-11-21T12:00:00Z","event":"sings","v":2}` + "\n" +
			`{"at":"2026-11-21T12:00:00Z","event":"exit","v":2,"pid":"many","of":{},"ok":3}` + "\n" + `{"dropped":3}` + "\n")}, 3, nil},
		{"no events", signal.FileContent{Data: []byte(`{"event":"enter"}` + "\n" + `{"at":"9026-11-21T12:00:00Z","event":"enter"}` + "\n" +
			`{"at":"2026-11-21T12:00:00Z"}` + "\n[1,2]\nnull\nhello\n")}, 0, []string{"6 lines"}},
		{"nothing", signal.FileContent{}, 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := decodeEventLog("0007.jsonl", test.content, 100)
			if len(got.events) != test.events || len(got.problems) != len(test.problems) {
				t.Fatalf("it has %d events, want %d, and the problems %q", len(got.events), test.events, got.problems)
			}
			for i, want := range test.problems {
				if !strings.Contains(got.problems[i], want) {
					t.Errorf("the problem is %q, want %q", got.problems[i], want)
				}
			}
		})
	}
	if got := decodeEventLog("0007.jsonl", signal.FileContent{Data: []byte(good)}, 2); len(got.events) != 2 || len(got.problems) != 1 {
		t.Errorf("of three events two are asked for: %d, %q", len(got.events), got.problems)
	}
}

// TestEventsAreTimedByTheMonotonicClock verifies that setting the wall clock while the daemon runs
// does not change the times of its events.
func TestEventsAreTimedByTheMonotonicClock(t *testing.T) {
	var text bytes.Buffer
	for i := range 9 {
		at := noon.Add(time.Duration(i) * time.Second)
		if i >= 6 {
			at = at.Add(time.Hour)
		}
		fmt.Fprintf(&text, `{"at":%q,"event":"probe","since_start_ns":%d}`+"\n", at.Format(time.RFC3339Nano), int64(i+1)*int64(time.Second))
	}
	for i, e := range decodeEventLog("0001.jsonl", signal.FileContent{Data: text.Bytes()}, 100).events {
		if want := noon.Add(time.Duration(i) * time.Second); !e.At.Equal(want) || !e.Wrote.Equal(want) {
			t.Errorf("event %d was at %s, want %s", i, e.At, want)
		}
	}
}

// TestFieldsAreDocumented compares the events in the recorded runs with the documentation, field by
// field.
func TestFieldsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/run-directory.md")
	if err != nil {
		t.Fatal(err)
	}
	fields := make(map[string][]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| [^|]* \\| ([^|]*)\\|$").FindAllSubmatch(text, -1) {
		fields[string(row[1])] = []string{"at", "event", "v", "node_index", "host", "phase", "since_start_ns"}
		for _, field := range regexp.MustCompile("`([a-z_]+)`").FindAllSubmatch(row[2], -1) {
			fields[string(row[1])] = append(fields[string(row[1])], string(field[1]))
		}
	}
	files, _ := filepath.Glob(filepath.Join("testdata", "runs", "*", "events", "*.jsonl"))
	seen := make(map[string]bool)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var event map[string]json.RawMessage
			var word string
			if json.Unmarshal(line, &event) != nil || json.Unmarshal(event["event"], &word) != nil {
				continue // it is truncated
			}
			seen[word] = true
			for field := range event {
				if !slices.Contains(fields[word], field) {
					t.Errorf("%s: an event %q has the field %q, which docs/run-directory.md does not give it", file, word, field)
				}
			}
		}
	}
	for _, word := range []eventlog.EventType{
		eventlog.PhaseEntered, eventlog.PhaseLeft, eventlog.RecordPublished, eventlog.RecordSeen, eventlog.StateReached, eventlog.ChildStarted, eventlog.ProbeChanged, eventlog.ChildExited,
		eventlog.CheckNotPassed, eventlog.ChecksDone, eventlog.GPUEvent, eventlog.GPUEventReceived, eventlog.LinkChanged, eventlog.NodeFailed, eventlog.FailureReceived, eventlog.NodeDropped, eventlog.DaemonEnded,
	} {
		if !seen[string(word)] {
			t.Errorf("no recorded run has an event %q", word)
		}
	}
}
