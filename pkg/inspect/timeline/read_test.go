package timeline

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestRecordings reads each recording: a quick read has the same outcome as a full one. The golden
// files of the status have the contents.
func TestRecordings(t *testing.T) {
	for _, name := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			quick, full := read(t, name, DepthQuick), read(t, name, DepthFull)
			for _, run := range []*Run{quick, full} {
				if run.Size() != 4 || run.Job == nil || name != "cut-off" && len(run.Problems) > 0 {
					t.Fatalf("it has %d nodes, the job %+v, and the problems %q", run.Size(), run.Job, run.Problems)
				}
			}
			if diff := cmp.Diff(full.Verdict(), quick.Verdict()); diff != "" {
				t.Error(diff)
			}
			if quick.Control.Go.Exists != full.Control.Go.Exists || quick.HasEnded() != full.HasEnded() {
				t.Errorf("the gate is %+v and %+v", quick.Control.Go, full.Control.Go)
			}
			causal(t, full)
		})
	}
}

// causal fails the test if a node sees a record before the head has begun to write it.
func causal(t *testing.T, run *Run) {
	t.Helper()
	began := make(map[string]time.Time)
	for _, e := range run.Events {
		if e.NodeIndex == 0 && e.Name == eventlog.RecordPublished {
			began[e.Record] = e.At.Add(-e.Took())
		}
	}
	for _, e := range run.Events {
		if wrote, known := began[e.Record]; known && e.Name == eventlog.RecordSeen && e.At.Before(wrote) {
			t.Errorf("node %d sees %s %s before it was written", e.NodeIndex, e.Record, wrote.Sub(e.At))
		}
	}
	if !slices.IsSortedFunc(run.Events, func(a, b Event) int { return a.At.Compare(b.At) }) {
		t.Error("the events are in no order")
	}
}

// TestQuickLookTellsTimes verifies that a quick read knows when each node reached its states, from
// the head's records.
func TestQuickLookTellsTimes(t *testing.T) {
	run := read(t, "good", DepthQuick)
	if len(run.Events) > 0 || run.Nodes[1].Joined != nil {
		t.Error("a quick look has read all of it")
	}
	for _, node := range run.Nodes {
		for _, s := range node.States {
			if s.At.IsZero() {
				t.Errorf("node %d: it is not known since when it is %s", node.NodeIndex, s.Word)
			}
		}
	}
}

// TestClockOff verifies that a clock that is wrong by an hour is corrected.
func TestClockOff(t *testing.T) {
	dir, _ := recorded(t, "good")
	before, err := Read(t.Context(), dir, DepthFull)
	if err != nil {
		t.Fatal(err)
	}
	shift(t, filepath.Join(dir, signal.EventsDir, "0002.jsonl"), time.Hour)
	shift(t, filepath.Join(dir, signal.NodesDir, "0002.joined"), time.Hour)
	after, err := Read(t.Context(), dir, DepthFull)
	if err != nil {
		t.Fatal(err)
	}
	was, is := before.Nodes[2].Clock, after.Nodes[2].Clock
	far := (is.Offset - was.Offset - time.Hour).Abs()
	if !is.Known || far > time.Millisecond || is.Residual > time.Second {
		t.Errorf("the clock is %+v, and was %+v", is, was)
	}
	if far := after.Nodes[2].Phases[0].From.Sub(before.Nodes[2].Phases[0].From).Abs(); far > time.Millisecond {
		t.Errorf("a phase has moved by %s", far)
	}
}

// shift adds a duration to all times in a file of JSON lines.
func shift(t *testing.T, path string, by time.Duration) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var moved []byte
	for line := range strings.Lines(string(data)) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339Nano, fields["at"].(string))
		if err != nil {
			t.Fatal(err)
		}
		fields["at"] = at.Add(by)
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		moved = append(append(moved, text...), '\n')
	}
	if err := os.WriteFile(path, moved, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPlantedFiles verifies that entries that another user has put into a run directory are not
// followed and cause no failure.
func TestPlantedFiles(t *testing.T) {
	dir, _ := recorded(t, "good")
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "not yours\n")
	for _, name := range []string{"nodes/0001.failed", "nodes/0001.event.000001", "control/abort.0002"} {
		if err := os.Symlink(secret, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "nodes/2147483647.up"), "")
	write(t, filepath.Join(dir, "nodes/0003.failed"), `{"v":2,"nonce":"another","kind":"check"}`+"\n")
	write(t, filepath.Join(dir, "control/team.2147483647"), "x")
	write(t, filepath.Join(dir, "events/0009.jsonl"), "{}\n")
	if err := os.Remove(filepath.Join(dir, "events/0001.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "events/0001.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, depth := range []ReadDepth{DepthQuick, DepthFull} {
		run, err := Read(t.Context(), dir, depth)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%+v", run.Problems)
		for _, want := range []string{
			"nodes/0001.failed: it is a symbolic link", "abort.0002: it is a symbolic link",
			"0003.failed: it belongs to another attempt",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the problems lack %q: %s", want, text)
			}
		}
		if all := fmt.Sprintf("%+v", run.Nodes) + text; strings.Contains(all, "not yours") {
			t.Errorf("what a link points at was read: %s", all)
		}
		if len(run.Nodes) != 4 || run.Result == nil {
			t.Errorf("the run has %d nodes, and the result %+v", len(run.Nodes), run.Result)
		}
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestWithoutSomething verifies that, if any part of a run directory is missing, the rest is shown.
func TestWithoutSomething(t *testing.T) {
	for _, name := range []string{
		"control/job", "control/go", "nodes", "events", "logs", "result.json", "nodes/0002.joined", "events/0000.jsonl",
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := recorded(t, "check-75")
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			for _, depth := range []ReadDepth{DepthQuick, DepthFull} {
				run, err := Read(t.Context(), dir, depth)
				if err != nil {
					t.Fatal(err)
				}
				if len(run.Nodes) != 4 || !run.HasEnded() {
					t.Errorf("it has %d nodes, and has ended: %v", len(run.Nodes), run.HasEnded())
				}
			}
		})
	}
}

// many creates a run directory of size nodes, all of them up.
func many(t testing.TB, size int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "1.0")
	for _, sub := range []string{signal.ControlDir, signal.NodesDir, signal.EventsDir, signal.LogsDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	header := `{"v":2,"nonce":"a","rank":%d,"host":"n%d","at":"2026-11-21T12:00:00Z"`
	job := fmt.Sprintf(header+`,"run":"1.0","size":%d,"hosts":"n[0-%d]"}`+"\n", 0, 0, size, size-1)
	write(t, filepath.Join(dir, "control/job"), job)
	events := strings.Repeat(`{"at":"2026-11-21T12:00:01Z","event":"enter","v":2,"since_start_ns":1000000000}`+"\n", 30)
	for node := range size {
		for state, text := range map[record.State]string{
			record.StateJoined: fmt.Sprintf(header+"}\n", node, node), record.StateServiceUp: "",
			record.StateSandboxReady: "", "checked.000123": "", "beat.000007": "",
		} {
			write(t, filepath.Join(dir, signal.NodesDir, signal.NodeName(node, size, state)), text)
		}
		write(t, filepath.Join(dir, signal.EventsDir, signal.EventsName(mainDaemonKind, node, size)), events)
	}
	return dir
}

func TestManyNodes(t *testing.T) {
	const size = 1024
	dir := many(t, size)
	for _, depth := range []ReadDepth{DepthQuick, DepthFull} {
		run, err := Read(t.Context(), dir, depth)
		if err != nil {
			t.Fatal(err)
		}
		up := len(run.NodesInState(record.StateServiceUp))
		if up != size || len(run.Problems) > 0 || run.Nodes[1000].Host != "n1000" {
			t.Errorf("%d are up, there are the problems %q", up, run.Problems)
		}
		if depth == DepthFull && len(run.Events) != 30*size {
			t.Errorf("there are %d events", len(run.Events))
		}
	}
}

func TestReadRefusesWhatIsNoRun(t *testing.T) {
	_, err := Read(t.Context(), t.TempDir(), DepthQuick)
	if err == nil || !strings.Contains(err.Error(), "it has no control") {
		t.Errorf("an empty directory is a run: %v", err)
	}
	if _, err := Read(t.Context(), filepath.Join(t.TempDir(), "none"), DepthQuick); err == nil {
		t.Error("what is not there is a run")
	}
}

// FuzzRead verifies that reading any run directory ends and shows something.
func FuzzRead(f *testing.F) {
	f.Add(`{"v":2,"nonce":"a","size":4}`+"\n", "{}\n", "", `{"dropped":1}`+"\n", "0001.failed")
	f.Add(`{"v":2,"nonce":"a","size":-1,"hosts":"n[0-99999]"}`+"\n", "\n", "x", "", "9999.beat.1")
	f.Add(`{"v":2,"nonce":"a","size":999999999}`+"\n", `{"v":1,"nonce":"a","run":"x","size":5,"hosts":["a"]}`+"\n",
		"x", "", "0000.checked.9")
	f.Fuzz(func(t *testing.T, job, result, record, events, name string) {
		dir := t.TempDir()
		for _, sub := range []string{signal.ControlDir, signal.NodesDir, signal.EventsDir} {
			if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for file, text := range map[string]string{
			"control/job": job, "control/abort.0000": record, "control/team.0000": record, "result.json": result,
			"events/0000.jsonl": events, "events/0001.jsonl": events,
		} {
			write(t, filepath.Join(dir, file), text)
		}
		// The data may be an invalid name.
		_ = os.WriteFile(filepath.Join(dir, signal.NodesDir, filepath.Base(name)), []byte(record), 0o600)
		for _, depth := range []ReadDepth{DepthQuick, DepthFull} {
			run, err := Read(t.Context(), dir, depth)
			if err != nil || len(run.Nodes) > maxNodes {
				t.Fatalf("it is %+v: %v", run, err)
			}
			if run.Job == nil && len(run.Problems) == 0 {
				t.Error("there is no job, and no word of it")
			}
		}
	})
}
