package timeline

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

var updateStatus = flag.Bool("update-status", false, "write the golden files of status anew")

// TestStatusGolden compares the status of each recorded run, as text and as JSON, with the golden
// files.
func TestStatusGolden(t *testing.T) {
	for _, name := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			dir, now := recorded(t, name)
			run, err := Read(t.Context(), dir, DepthFull)
			if err != nil {
				t.Fatal(err)
			}
			status := SummarizeRun(run, Observation{Now: now, Verbose: true, LastSign: now.Add(-2 * time.Second)})
			short := status
			short.All = nil
			data, err := json.MarshalIndent(status, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got := short.Text(TextStyle{}) + "\nwith --verbose:\n" + status.Text(TextStyle{}) + "\nwith --json:\n" + string(data) + "\n"
			got = strings.ReplaceAll(got, dir, "/logs/"+name)
			golden(t, filepath.Join("testdata", "status", name+".golden"), got)
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *updateStatus {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the status is not that of %s (go test ./pkg/inspect/timeline -run StatusGolden -update-status writes it):\n%s", path, got)
	}
}

// begin is the start of the head in all runs here, which are inspected 42 s later.
var begin = time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC)

const age = 42 * time.Second

// made returns a run of size nodes, all of which have reached these states, one second apart.
func made(size int, states ...record.State) *Run {
	run := &Run{Path: "/logs/4711.0", Name: "4711.0", Job: &record.Job{Size: size, Plan: &record.Plan{
		Framework: "ray", Phases: []record.Phase{"join", "check", "sandbox", "head", "workers", "driver"}, NodesNeeded: size, SandboxQuorum: "all", Driver: "train.py",
		PhaseTimeouts: map[record.Phase]time.Duration{"join": 2 * time.Minute, "check": 10 * time.Minute, "sandbox": 5 * time.Minute, "head": 5 * time.Minute, "workers": 5 * time.Minute},
	}}}
	run.Job.WrittenAt = begin
	run.Control.Job = RecordTime{Exists: true, At: begin}
	for node := range size {
		run.Nodes = append(run.Nodes, Node{NodeIndex: node, Host: fmt.Sprintf("n%d", node)})
		only(run, node, states...)
	}
	return run
}

// only sets the states of a node.
func only(run *Run, node int, states ...record.State) {
	run.Nodes[node].States = nil
	for i, word := range states {
		run.Nodes[node].States = append(run.Nodes[node].States, NodeState{Word: word, At: begin.Add(time.Duration(i+1) * time.Second)})
	}
}

var upStates = []record.State{record.StateJoined, record.StateChecked, record.StateSandboxReady, record.StateServiceUp}

func up(size int) *Run {
	run := made(size, upStates...)
	run.Control.Head = RecordTime{Exists: true, At: begin.Add(2 * time.Second)}
	return run
}

func open(run *Run) *Run {
	run.Control.Go = RecordTime{Exists: true, At: begin.Add(5 * time.Second)}
	return run
}

// inStep moves the sandboxes of a run without services to another step.
func inStep(run *Run) *Run {
	run.Job.Steps = []string{"sandbox"}
	run.Job.Plan.Phases = []record.Phase{"join", "check", "sandbox", "driver"}
	return run
}

func resting(rest time.Duration) *Run {
	run := up(2)
	run.Job.Plan.MaxHeartbeatInterval = rest
	return run
}

func TestStatus(t *testing.T) {
	for _, tc := range []struct {
		name   string
		run    func() *Run
		code   int
		silent time.Duration // time without changes
		want   []string      // parts of the text
		not    []string
	}{
		{"nothing is there", func() *Run { return &Run{Name: "x"} }, 2, 0, []string{"BRINGING UP  x  gate: 0/0 ready after 00:00: the gate opens\n"}, nil},
		{"nobody has joined", func() *Run { return made(4) }, 2, 0, []string{
			"BRINGING UP  4711.0  join: 0/4 ready after 00:42: waiting for n[0-3] (join)\n",
			"  … node 0  n0  join  waits 00:42      has not joined\n",
			"next: the job fails unless n[0-3] has joined (--join-timeout): in 01:18\n",
		}, nil},
		{"two are late", func() *Run {
			run := up(4)
			only(run, 1, record.StateJoined)
			only(run, 2, record.StateJoined, record.StateChecked, record.StateSandboxReady)
			run.Events = []Event{{Name: eventlog.ChecksWaiting, NodeIndex: 1, Fields: eventlog.Fields{CheckFields: eventlog.CheckFields{Checks: "gpu.fabric: GPU 3: in progress"}}}}
			return run
		}, 2, 0, []string{
			"check: 2/4 ready after 00:42: waiting for n1 (check), n2 (workers)\n",
			"  phase  join  check  sandbox  workers  ready\n  nodes     0      1        0        1      2\n",
			"  … node 1  n1  check    waits 00:41      has not passed its checks: gpu.fabric: GPU 3: in progress\n",
			"  … node 2  n2  workers  waits 00:39      its service is not up\n",
			"next: the job fails unless the service is up on n2 (--start-timeout): in 04:21\n",
		}, []string{"node 0", "node 3"}},
		{"the head's service is not up", func() *Run { return made(4, record.StateJoined, record.StateChecked, record.StateSandboxReady) }, 2, 0, []string{
			"head: 0/4 ready after 00:42: the head's service is not up\n",
			"unless the head's service is up (--start-timeout): in 04:21\n",
		}, []string{"… rank"}},
		{"the sandboxes are of another step", func() *Run {
			return inStep(made(2, record.StateJoined, record.StateChecked))
		}, 2, 0, []string{"next: the job fails unless the sandbox is ready on n[0-1] (--start-timeout)\n"}, nil},
		{"the framework counts", func() *Run { return up(2) }, 2, 0, []string{"workers: 2/2 ready after 00:42: ray does not report all nodes yet\n"}, nil},
		{"one sandbox is enough", func() *Run {
			run := up(2)
			run.Job.Plan.SandboxQuorum = "any"
			only(run, 1, record.StateJoined, record.StateChecked, record.StateServiceUp)
			return run
		}, 2, 0, []string{"workers: 2/2 ready"}, nil},
		{"an up of an older team is none", func() *Run {
			run := up(3)
			run.Job.Plan.NodesNeeded = 2
			run.Control.Membership = &record.Team{Generation: 1, Members: []record.Member{{NodeIndex: 0}, {NodeIndex: 2, SinceGeneration: 1}},
				Dropped: []record.DroppedNode{{NodeIndex: 1, Host: "n1", Reason: "its GPU is lost"}}}
			return run
		}, 2, 0, []string{
			"workers: 1 ready of 3, 2 needed after 00:42: waiting for n2 (workers)\n", "… node 2  n2  workers",
			"- node 1  n1  dropped  dropped          its GPU is lost\n", "late nodes are dropped: the job waits until the service is up on n2",
		}, nil},
		{"up with a world", func() *Run {
			run := open(up(4))
			run.Job.Plan.HasRanks = true
			return run
		}, 0, 0, []string{"the gate opened after 5s: the ranks of train.py run\n", "next: the job ends when all ranks have ended, or when one fails\n"}, nil},
		{"up for a look", func() *Run {
			run := open(up(4))
			run.Control.LingerRecord = &record.OrderlyEnd{Header: record.Header{WrittenAt: begin.Add(40 * time.Second)}, Code: 3, InspectTime: 10 * time.Minute}
			return run
		}, 0, 0, []string{
			"the gate opened after 5s: the driver train.py has ended with code 3\n",
			"next: everything else ends (--clean=none), or earlier with bringupd stop /logs/4711.0: in 09:58\n",
		}, []string{"runs"}},
		{"up without a driver", func() *Run {
			run := open(up(2))
			run.Job.Plan.Phases, run.Job.Plan.Driver = []record.Phase{"join"}, ""
			return run
		}, 0, 0, []string{"next: the job stays up until it is stopped: bringupd stop /logs/4711.0\n"}, nil},
		{"up with pages", func() *Run {
			run := open(up(2))
			run.Control.HeadRecord = &record.Head{Address: "n0:6379", Dashboard: "http://127.0.0.1:8265"}
			return run
		}, 0, 0, []string{"  dashboard: http://127.0.0.1:8265 on n0\n  next: "}, nil},
		{"no sign of life", func() *Run { return open(up(2)) }, 2, 3 * time.Minute, []string{"UP  ", "nothing has changed for 3m0s: the daemons may be gone\n"}, nil},
		{"the head rests for longer", func() *Run { return open(resting(4 * time.Minute)) }, 0, 8*time.Minute - 1, nil, []string{"gone"}},
		{"it has rested for too long", func() *Run { return open(resting(4 * time.Minute)) }, 2, 8 * time.Minute, []string{"nothing has changed for 8m0s: the daemons may be gone\n"}, nil},
		{"the head rests for less", func() *Run { return open(resting(time.Second)) }, 0, 2 * time.Minute, nil, []string{"gone"}},
		{"the record is damaged", func() *Run { return open(resting(1<<63 - 1)) }, 2, 3 * time.Minute, []string{"gone"}, nil},
		{"it ends", func() *Run {
			run := open(up(2))
			run.Control.Aborts = []record.Abort{{Code: 76, Outcome: "peer-lost", Cause: record.Failure{
				Header: record.Header{NodeIndex: 0, Host: "n0"}, Message: "n1 is lost", Phase: "driver", LostNodes: []int{1}}}}
			run.Nodes[0].Failures = []record.Failure{run.Control.Aborts[0].Cause}
			return run
		}, 2, 0, []string{"ENDING  4711.0  after 00:42: code 76 (peer-lost)\n", "first cause: n1 is lost\n  lost: n1\n  seen by: n0, node 0 of 2, in phase driver\n", "✗ node 1  n1  lost"}, []string{"node 0  n0"}},
		{"it is over, and nobody could write the result", func() *Run {
			run := open(up(2))
			run.Control.Drain, run.Control.Over = RecordTime{Exists: true}, RecordTime{Exists: true}
			return run
		}, 1, time.Hour, []string{"FAILED  4711.0"}, []string{"gone", "next:"}},
		{"the head has recorded the time to the gate", func() *Run {
			run := open(up(2))
			run.Control.TimeToGate = 1234 * time.Millisecond
			return run
		}, 0, 0, []string{"the gate opened after 1.2s"}, nil},
		{"it has ended long ago", func() *Run {
			run := open(up(2))
			run.Result = &record.Result{Header: record.Header{WrittenAt: begin.Add(age - 3*time.Hour)}, Code: 0, Outcome: "driver", RunTimings: record.RunTimings{Duration: time.Minute}}
			return run
		}, 0, 0, []string{"FINISHED  4711.0  ended 3 h 00 min ago: code 0 (driver); took 1m0s\n"}, nil},
		{"it has ended days ago, and nobody could write the result", func() *Run {
			run := open(up(2))
			run.Control.Drain, run.Control.Over = RecordTime{Exists: true}, RecordTime{Exists: true, At: begin.Add(age - 50*time.Hour)}
			return run
		}, 1, 0, []string{"FAILED  4711.0  ended 2 days ago: its result cannot be read"}, nil},
		{"no clock tells", func() *Run {
			run := up(4)
			run.Job, run.Control = nil, Control{}
			only(run, 1)
			for i := range run.Nodes {
				for j := range run.Nodes[i].States {
					run.Nodes[i].States[j].At = time.Time{}
				}
			}
			return run
		}, 2, 0, []string{"join: 3/4 ready after 00:00: waiting for n1 (join)\n", "… node 1  n1  join  waits            has not joined"}, nil},
		{"one machine", func() *Run {
			run := made(4)
			for i := range run.Nodes {
				run.Nodes[i].Host = "vm"
			}
			return run
		}, 2, 0, []string{"waiting for nodes 0-3 (join)"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := SummarizeRun(tc.run(), Observation{Now: begin.Add(age), Unchanged: tc.silent})
			text := s.Text(TextStyle{})
			if s.Code != tc.code {
				t.Errorf("the exit code is %d, not %d", s.Code, tc.code)
			}
			for _, part := range tc.want {
				if !strings.Contains(text, part) {
					t.Errorf("%q is missing in:\n%s", part, text)
				}
			}
			for _, part := range tc.not {
				if strings.Contains(text, part) {
					t.Errorf("%q is in:\n%s", part, text)
				}
			}
		})
	}
}

// TestStatusIsInert puts terminal control sequences into all texts of a run.
func TestStatusIsInert(t *testing.T) {
	evil := "\x1b[2J\x1b]0;pwned\a<script>alert(1)</script>\r\n\u202eforged\x00\xff\u2028line "
	evil += strings.Repeat("A", 10<<20)
	failure := record.Failure{Header: record.Header{Host: evil}, Message: evil, Phase: record.Phase(evil), Kind: record.Kind(evil), Child: evil, Log: evil, Lines: []string{evil, evil}}
	for _, ended := range []bool{false, true} {
		run := up(4)
		run.Path, run.Name, run.Problems = evil, evil, []string{evil}
		run.Job.Plan.Driver, run.Job.Plan.Framework, run.Job.Plan.SandboxQuorum = evil, evil, evil
		for i := range run.Nodes {
			run.Nodes[i].Host = evil + fmt.Sprint(i)
		}
		only(run, 1)
		run.Nodes[2].Failures = []record.Failure{failure}
		only(run, 3, record.StateJoined)
		run.Control.HeadRecord = &record.Head{Dashboard: evil}
		run.Nodes[0].EventRecords = []record.Event{{Message: evil}}
		run.Events = []Event{{Name: eventlog.ChecksWaiting, NodeIndex: 3, Fields: eventlog.Fields{CheckFields: eventlog.CheckFields{Checks: evil}}}}
		if ended {
			run.Nodes[0].Done = &record.Done{LeftProcesses: []string{evil}}
			run.Result = &record.Result{Code: 77, Outcome: evil, Reason: evil, Cause: &failure, BadNodes: []string{evil},
				FailureContext: record.FailureContext{AtPhase: record.Phase(evil), Advice: []string{evil}},
				NodeLists:      record.NodeLists{Dropped: []record.DroppedNode{{NodeIndex: 1, Reason: evil}}}}
		}
		s := SummarizeRun(run, Observation{Now: begin.Add(age), Verbose: true})
		text := s.Text(TextStyle{})
		for _, r := range text {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("the text has %q (ended: %v)", r, ended)
			}
		}
		data, err := json.Marshal(s)
		if err != nil || !utf8.Valid(data) {
			t.Errorf("it is no JSON: %v", err)
		}
		if len(text) > 100<<10 || len(data) > 100<<10 {
			t.Errorf("the text has %d bytes, the JSON %d", len(text), len(data))
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "forged") || strings.HasPrefix(line, "line") {
				t.Errorf("a line is forged: %q", line)
			}
		}
	}
}

func TestManyAbnormal(t *testing.T) {
	run := made(300, record.StateJoined)
	run.Nodes[299].Failures = []record.Failure{{Message: "it failed"}}
	run.Nodes[250].States[0].At = begin.Add(-time.Second / 2)
	s := SummarizeRun(run, Observation{Now: begin.Add(age)})
	if len(s.Abnormal) != 20 || s.More != 280 {
		t.Fatalf("%d are shown, and %d more", len(s.Abnormal), s.More)
	}
	if s.Abnormal[0].NodeIndex != 299 || s.Abnormal[1].NodeIndex != 250 || s.Abnormal[2].NodeIndex != 0 {
		t.Errorf("who failed comes first, then who has waited longest: %+v", s.Abnormal[:3])
	}
	if text := s.Text(TextStyle{}); !strings.Contains(text, "  +280 more (-v shows all)\n") {
		t.Errorf("the others are not told of:\n%s", text)
	}
	if all := SummarizeRun(run, Observation{Now: begin.Add(age), Verbose: true}); len(all.All) != 300 || strings.Contains(all.Text(TextStyle{}), "more (") {
		t.Errorf("of 300 nodes %d are shown", len(all.All))
	}
}

func TestStyle(t *testing.T) {
	s := SummarizeRun(made(4, record.StateJoined), Observation{Now: begin.Add(age)})
	plain, coloured := s.Text(TextStyle{}), s.Text(TextStyle{Colour: true})
	if !strings.Contains(coloured, "\x1b[36mBRINGING UP\x1b[0m") {
		t.Errorf("there is no colour: %q", coloured)
	}
	for _, code := range []string{"\x1b[36m", "\x1b[0m"} {
		coloured = strings.ReplaceAll(coloured, code, "")
	}
	if coloured != plain {
		t.Errorf("colours say more than words: %q", coloured)
	}
	for line := range strings.Lines(s.Text(TextStyle{Width: 30})) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 30 {
			t.Errorf("%q has %d columns", line, n)
		}
	}
}

func TestChanges(t *testing.T) {
	shown := make(map[string]bool)
	run := made(3, record.StateJoined)
	at := func(d time.Duration) []string {
		return SummarizeRun(run, Observation{Now: begin.Add(d), LastSign: begin.Add(d)}).ChangedLines(TextStyle{}, shown)
	}
	if first := at(age); len(first) != 7 {
		t.Errorf("at first all is shown: %q", first)
	}
	if still := at(age + time.Minute); len(still) != 0 {
		t.Errorf("time going by is shown: %q", still)
	}
	only(run, 1, record.StateJoined, record.StateChecked)
	got := strings.Join(at(age+2*time.Minute), "\n")
	if !strings.Contains(got, "… node 1  n1  sandbox") || !strings.Contains(got, "  phase  join") || strings.Contains(got, "node 2") || !strings.Contains(got, "after 02:42") {
		t.Errorf("the changes are:\n%s", got)
	}
}

// TestStatusJSONIsDocumented verifies that the documentation lists exactly the fields of the JSON.
func TestStatusJSONIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../docs/status.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[Status](), reflect.TypeFor[GateWait](), reflect.TypeFor[StepCount](), reflect.TypeFor[NodeStatus](), reflect.TypeFor[RunEnd](), reflect.TypeFor[RoleStatus](), reflect.TypeFor[InstanceStatus]()} {
		for _, field := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.Anonymous || name == "-" {
				continue
			}
			if !strings.Contains(string(data), "| `"+name+"` |") {
				t.Errorf("docs/status.md does not tell of %s, of %s", name, typ.Name())
			}
		}
	}
	for _, word := range slices.Concat(marksBySeverity, []string{string(StateBringingUp), string(StateUp), string(StateEnding), string(StateFinished), string(StateFailed)}) {
		if !strings.Contains(string(data), "`"+word+"`") {
			t.Errorf("docs/status.md does not tell of %s", word)
		}
	}
}
