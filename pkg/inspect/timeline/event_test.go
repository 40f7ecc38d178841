package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
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

func TestDecodeEventLog(t *testing.T) {
	var good string
	for ms := range 3 {
		good += fmt.Sprintf(`{"at":"2026-11-21T12:00:00.%03dZ","event":"enter","v":2,"since_start_ns":%d}`+"\n", ms, ms)
	}
	const (
		odd = `{"at":"2026-11-21T12:00:00Z","event":"sings","v":2}
{"at":"2026-11-21T12:00:00Z","event":"exit","v":2,"pid":"many","of":{},"ok":3}
{"dropped":3}
`
		none = `{"event":"enter"}
{"at":"9026-11-21T12:00:00Z","event":"enter"}
{"at":"2026-11-21T12:00:00Z"}
[1,2]
null
hello
`
	)
	for _, test := range []struct {
		name, data, tail string
		events           int
		problem          string
	}{
		{"whole", good, "", 3, ""},
		{"cut off", good + `{"at":"20`, "", 3, ""},
		{"damaged", "\x00\x00\n" + good + "{}\n\n", "", 3, "2 lines of events/0007.jsonl are not events"},
		{"its middle left out", good + `{"at`, `"event":"x"}` + "\n" + good, 6, "part of it is not shown"},
		{"a huge line", strings.Repeat("x", maxLineLength+1) + "\n" + good, "", 3, "1 lines"},
		{"odd events", odd, "", 3, ""},
		{"no events", none, "", 0, "6 lines"},
		{"nothing", "", "", 0, ""},
		{"too many lines", good + good + good, "", 6, "part of it is not shown"},
	} {
		t.Run(test.name, func(t *testing.T) {
			content := signal.FileContent{Data: []byte(test.data)}
			if test.tail != "" {
				content.Tail = []byte(test.tail)
			}
			got, errs := decodeEventLog("0007.jsonl", content, 6)
			problems := fmt.Sprint(errors.Join(errs...))
			isExpected := strings.Contains(problems, test.problem) && (test.problem != "" || errs == nil)
			if len(got.events) != test.events || !isExpected {
				t.Errorf("got %d events, want %d, and the problems %q", len(got.events), test.events, problems)
			}
		})
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
		fmt.Fprintf(&text, `{"at":%q,"event":"probe","since_start_ns":%d}`+"\n",
			at.Format(time.RFC3339Nano), time.Duration(i+1)*time.Second)
	}
	log, _ := decodeEventLog("0001.jsonl", signal.FileContent{Data: text.Bytes()}, 100)
	for i, e := range log.events {
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
	rows := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| [^|]* \\| ([^|]*)\\|$").FindAllSubmatch(text, -1)
	for _, row := range rows {
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
					t.Errorf("%s: docs/run-directory.md does not give an event %q the field %q", file, word, field)
				}
			}
		}
	}
	for _, word := range []eventlog.EventType{
		eventlog.PhaseEntered, eventlog.PhaseLeft, eventlog.RecordPublished, eventlog.RecordSeen,
		eventlog.StateReached, eventlog.ChildStarted, eventlog.ProbeChanged, eventlog.ChildExited,
		eventlog.CheckNotPassed, eventlog.ChecksDone, eventlog.GPUEvent, eventlog.GPUEventReceived,
		eventlog.LinkChanged, eventlog.NodeFailed, eventlog.FailureReceived, eventlog.NodeDropped, eventlog.DaemonEnded,
	} {
		if !seen[string(word)] {
			t.Errorf("no recorded run has an event %q", word)
		}
	}
}
