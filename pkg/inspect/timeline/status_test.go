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
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
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
			got := fmt.Sprintf("%s\nwith --verbose:\n%s\nwith --json:\n%s\n",
				short.Text(TextStyle{}), status.Text(TextStyle{}), data)
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
		t.Errorf("the status is not that of %s, which -update-status writes:\n%s", path, got)
	}
}

// begin is the start of the head in all runs here, which are inspected 42 s later.
var begin = time.Date(2026, 11, 21, 2, 0, 0, 0, time.UTC)

const age = 42 * time.Second

// made returns a run of size nodes, all of which have reached these states, one second apart.
func made(size int, states ...record.State) *Run {
	const minute = time.Minute
	run := &Run{Path: "/logs/4711.0", Name: "4711.0", Job: &record.Job{Size: size, Plan: &record.Plan{
		Framework: "ray", NodesNeeded: size, Driver: "train.py",
		JoinTimeout: 2 * minute, CheckTimeout: 10 * minute,
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
		at := begin.Add(time.Duration(i+1) * time.Second)
		run.Nodes[node].States = append(run.Nodes[node].States, NodeState{Word: word, At: at})
	}
}

// up returns a run of size nodes with services that are all up, after these changes.
func up(size int, changes ...func(*Run)) *Run {
	run := made(size, record.StateJoined, record.StateChecked, record.StateSandboxReady, record.StateServiceUp)
	run.Control.Head = RecordTime{Exists: true, At: begin.Add(2 * time.Second)}
	for _, change := range changes {
		change(run)
	}
	return run
}

// placeBuiltIn places the built-in roles that the daemons run for flags, with the states of the nodes.
func placeBuiltIn(t *testing.T, run *Run, kinds []roles.BuiltIn) {
	t.Helper()
	logs := map[roles.BuiltIn]string{roles.BuiltInDriver: "driver", roles.BuiltInRanks: "rank",
		roles.BuiltInHead: "ray-head", roles.BuiltInWorker: "ray-worker", roles.BuiltInSandbox: "sandbox",
		anySandbox: "sandbox"}
	rec := run.Control.Team
	if rec == nil {
		rec = new(roles.PlanRecord)
		for i := range run.Nodes {
			rec.Offers = append(rec.Offers, roles.NodeFacts{NodeIndex: i, Host: run.Nodes[i].Host})
		}
	}
	for _, kind := range kinds {
		def := roles.Definition{Name: string(kind), BuiltIn: kind, Program: roles.Program{Log: logs[kind]},
			Placement: roles.Placement{Nodes: roles.NodesAll, InstancesPerNode: 1, NodesPerInstance: 1, RanksPerNode: 1,
				GPUs: roles.GPUsAll},
			Ready:    roles.ReadyProbe{Timeout: 5 * time.Minute},
			Required: roles.Requirement{Start: roles.QuorumAll, Run: roles.QuorumAll}}
		switch kind {
		case roles.BuiltInDriver, roles.BuiltInHead:
			def.Placement.Nodes, def.Primary = roles.NodesHead, kind == roles.BuiltInDriver
			if def.Primary {
				def.Ready = roles.ReadyProbe{}
				for _, other := range kinds[1:] {
					def.After = append(def.After, strings.TrimPrefix(string(other), "any-"))
				}
			}
		case roles.BuiltInRanks:
			def.Placement.NodesPerInstance, def.Primary = roles.NodesAll, true
			def.Ready = roles.ReadyProbe{}
		case roles.BuiltInWorker:
			def.After = []string{string(roles.BuiltInHead)}
		case anySandbox:
			def.Name, def.BuiltIn, def.Required.Start = "sandbox", roles.BuiltInSandbox, 1
		}
		rec.Roles = append(rec.Roles, def)
	}
	files := RoleFiles{Control: new(signal.DirSnapshot), Nodes: new(signal.DirSnapshot), Size: run.Size(),
		HasChecks: run.Job.Plan.CheckTimeout > 0}
	for i := range run.Nodes {
		for _, state := range run.Nodes[i].States {
			files.Nodes.Names = append(files.Nodes.Names, signal.NodeName(i, run.Size(), state.Word))
		}
	}
	if run.Control.Head.Exists {
		files.Control.Names = append(files.Control.Names, signal.NameHead)
	}
	if run.Control.Go.Exists {
		files.Control.Names = append(files.Control.Names, signal.NameGateOpen)
	}
	if run.HasEnded() {
		files.Control.Names = append(files.Control.Names, signal.NameHeadFinished)
	}
	plan, err := rec.MakePlan(rec.Roles)
	if err != nil {
		t.Fatal(err)
	}
	if run.Roles, err = files.readStates(t.Context(), plan, rec); err != nil {
		t.Fatal(err)
	}
}

// anySandbox is the kind of sandboxes of which one is enough.
const anySandbox roles.BuiltIn = "any-sandbox"

var allKinds = []roles.BuiltIn{roles.BuiltInDriver, roles.BuiltInHead, roles.BuiltInWorker, roles.BuiltInSandbox}

// change returns a run after a change.
func change(run *Run, to func(*Run)) *Run {
	to(run)
	return run
}

func open(run *Run) { run.Control.Go = RecordTime{Exists: true, At: begin.Add(5 * time.Second)} }

// resting sets the interval of the head's heartbeats.
func resting(interval time.Duration) func(*Run) {
	return func(run *Run) { run.Job.Plan.MaxHeartbeatInterval = interval }
}

// endedBefore makes the end of a run as old as that, without a result.
func endedBefore(old time.Duration) func(*Run) {
	return func(run *Run) {
		run.Control.Drain = RecordTime{Exists: true}
		run.Control.Over = RecordTime{Exists: true, At: begin.Add(age - old)}
	}
}

// madeRuns are runs whose status is in a golden file.
var madeRuns = []struct {
	name   string
	run    *Run
	silent time.Duration // without changes
}{
	{"nothing is there", &Run{Name: "x"}, 0},
	{"nobody has joined", made(4), 0},
	{"two are late", up(4, func(run *Run) {
		only(run, 1, record.StateJoined)
		only(run, 2, record.StateJoined, record.StateChecked, record.StateSandboxReady)
		run.Events = []Event{checksWait(1, "gpu.fabric: GPU 3: in progress")}
	}), 0},
	{"a setup command runs", change(made(2, record.StateJoined), func(run *Run) {
		run.Events = []Event{childStarts(0, "setup"), childStarts(1, "setup")}
		run.LastLines = map[string]string{"setup-0001.log": "installing wheel 3 of 9"}
	}), 0},
	{"a service loads", up(2, func(run *Run) {
		only(run, 1, record.StateJoined, record.StateChecked, record.StateSandboxReady)
		run.LastLines = map[string]string{"ray-worker-0001.log": "loading weights 61 %"}
		run.Events = []Event{probeSays(1, "ray worker", "connection refused")}
	}), 0},
	{"the head's service is not up", made(4, record.StateJoined, record.StateChecked, record.StateSandboxReady), 0},
	{"the sandboxes are of another step", up(2, func(run *Run) {
		only(run, 0, record.StateJoined, record.StateChecked)
		only(run, 1, record.StateJoined, record.StateChecked)
		run.Job.Steps, run.Job.Plan.Framework = []string{"sandbox"}, "none"
	}), 0},
	{"the framework counts", up(2), 0},
	{"one sandbox is enough", up(2, func(run *Run) {
		only(run, 1, record.StateJoined, record.StateChecked, record.StateServiceUp)
	}), 0},
	{"a service that was up for an older team does not count", up(3, func(run *Run) {
		run.Job.Plan.NodesNeeded = 2
		run.Control.Team = &roles.PlanRecord{
			Number: 1, Offers: []roles.NodeFacts{{NodeIndex: 0}, {NodeIndex: 2, Since: 1}},
			Dropped: []record.DroppedNode{{NodeIndex: 1, Host: "n1", Reason: "its GPU is lost"}},
		}
	}), 0},
	{"roles are not placed", up(2, func(run *Run) {
		run.Job.Plan = &record.Plan{Framework: "none", Roles: []string{"judge", "trainer"}}
	}), 0},
	{"roles are up", up(2, open, func(run *Run) {
		run.Job.Plan.Roles, run.Job.Plan.Driver = []string{"judge", "trainer"}, ""
	}), 0},
	{"up with a world", up(4, open, func(run *Run) { run.Job.Plan.HasRanks = true }), 0},
	{"up for inspection", up(4, open, func(run *Run) {
		run.Control.LingerRecord = &record.OrderlyEnd{Code: 3, InspectTime: 10 * time.Minute}
		run.Control.LingerRecord.WrittenAt = begin.Add(40 * time.Second)
	}), 0},
	{"up without a driver", up(2, open, func(run *Run) {
		run.Job.Plan = &record.Plan{Framework: "none"}
	}), 0},
	{"up with a dashboard", up(2, open, func(run *Run) {
		run.Control.HeadRecord = &record.Head{Address: "n0:6379", Dashboard: "http://127.0.0.1:8265"}
	}), 0},
	{"the head has recorded the time to the gate", up(2, open, func(run *Run) {
		run.Control.TimeToGate = 1234 * time.Millisecond
	}), 0},
	{"no sign of life", up(2, open), 3 * time.Minute},
	{"the head rests for longer", up(2, open, resting(4*time.Minute)), 8*time.Minute - 1},
	{"it has rested for too long", up(2, open, resting(4*time.Minute)), 8 * time.Minute},
	{"the head rests for less", up(2, open, resting(time.Second)), 2 * time.Minute},
	{"the interval is damaged", up(2, open, resting(1<<63-1)), 3 * time.Minute},
	{"it ends", up(2, open, func(run *Run) {
		lost := record.Failure{Message: "n1 is lost", Phase: "driver", LostNodes: []int{1}}
		lost.Host = "n0"
		run.Control.Aborts = []record.Abort{{Code: 76, Outcome: "peer-lost", Cause: lost}}
		run.Nodes[0].Failures = []record.Failure{lost}
	}), 0},
	{"it has ended long ago", up(2, open, func(run *Run) {
		run.Result = &record.Result{Outcome: "driver", RunTimings: record.RunTimings{Duration: time.Minute}}
		run.Result.WrittenAt = begin.Add(age - 3*time.Hour)
	}), 0},
	{"it has ended days ago, and nobody could write the result", up(2, open, endedBefore(50*time.Hour)), time.Hour},
	{"no clock is known", up(4, func(run *Run) {
		run.Job, run.Control = nil, Control{}
		only(run, 1)
		for i := range run.Nodes {
			for j := range run.Nodes[i].States {
				run.Nodes[i].States[j].At = time.Time{}
			}
		}
	}), 0},
	{"one machine", up(4, func(run *Run) {
		for i := range run.Nodes {
			run.Nodes[i].Host = "vm"
			only(run, i)
		}
	}), 0},
}

// madeKinds has the kinds of built-in roles of the runs that do not have all.
var madeKinds = map[string][]roles.BuiltIn{
	"the sandboxes are of another step": {roles.BuiltInDriver, roles.BuiltInSandbox},
	"one sandbox is enough":             {roles.BuiltInDriver, roles.BuiltInHead, roles.BuiltInWorker, anySandbox},
	"up with a world":                   {roles.BuiltInRanks},
	"up without a driver":               {},
}

func childStarts(node int, child string) Event {
	return Event{Name: eventlog.ChildStarted, NodeIndex: node, At: begin.Add(3 * time.Second),
		Fields: eventlog.Fields{ObjectFields: eventlog.ObjectFields{Child: child}}}
}

func probeSays(node int, child, what string) Event {
	return Event{Name: eventlog.ProbeChanged, NodeIndex: node,
		Fields: eventlog.Fields{Seen: what, ObjectFields: eventlog.ObjectFields{Child: child}}}
}

func checksWait(node int, what string) Event {
	fields := eventlog.Fields{CheckFields: eventlog.CheckFields{Checks: what}}
	return Event{Name: eventlog.ChecksWaiting, NodeIndex: node, Fields: fields}
}

func TestStatusOfMadeRuns(t *testing.T) {
	var got strings.Builder
	for _, tc := range madeRuns {
		kinds, isSpecial := madeKinds[tc.name]
		if !isSpecial {
			kinds = allKinds
		}
		if tc.run.Job != nil && len(tc.run.Job.Plan.Roles) == 0 {
			placeBuiltIn(t, tc.run, kinds)
		}
		s := SummarizeRun(tc.run, Observation{Now: begin.Add(age), Unchanged: tc.silent})
		fmt.Fprintf(&got, "%s: code %d\n%s\n", tc.name, s.Code, s.Text(TextStyle{}))
	}
	golden(t, filepath.Join("testdata", "made.golden"), got.String())
}

// TestStatusIsInert puts terminal control sequences into all texts of a run.
func TestStatusIsInert(t *testing.T) {
	evil := "\x1b[2J\x1b]0;pwned\a<script>alert(1)</script>\r\n\u202eforged\x00\xff\u2028line "
	evil += strings.Repeat("A", 10<<20)
	failure := record.Failure{
		Header: record.Header{Host: evil}, Message: evil, Phase: record.Phase(evil), Kind: record.Kind(evil),
		Child: evil, Log: evil, Lines: []string{evil, evil},
	}
	for _, ended := range []bool{false, true} {
		run := up(4)
		run.Path, run.Name, run.Problems = evil, evil, []string{evil}
		run.Job.Plan.Driver, run.Job.Plan.Framework = evil, evil
		run.LastLines = map[string]string{"ray-worker-0001.log": evil}
		for i := range run.Nodes {
			run.Nodes[i].Host = evil + fmt.Sprint(i)
		}
		only(run, 1)
		run.Nodes[2].Failures = []record.Failure{failure}
		only(run, 3, record.StateJoined)
		run.Control.HeadRecord = &record.Head{Dashboard: evil}
		run.Nodes[0].EventRecords = []record.Event{{Message: evil}}
		run.Events = []Event{checksWait(3, evil)}
		if ended {
			run.Nodes[0].Done = &record.Done{LeftProcesses: []string{evil}}
			run.Result = &record.Result{
				Code: 77, Outcome: evil, Reason: evil, Cause: &failure, BadNodes: []string{evil},
				FailureContext: record.FailureContext{AtPhase: record.Phase(evil), Advice: []string{evil}},
				NodeLists:      record.NodeLists{Dropped: []record.DroppedNode{{NodeIndex: 1, Reason: evil}}},
			}
		}
		placeBuiltIn(t, run, allKinds)
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

// TestStatusKeepsIndentation verifies that the last lines of a log keep their indentation.
func TestStatusKeepsIndentation(t *testing.T) {
	run := made(1)
	run.Result = &record.Result{Code: 1, Cause: &record.Failure{
		Lines: []string{"Traceback:", "  File \"t.py\", line 3, in f\t\n", "\tat Main.main"},
	}}
	want := []string{"Traceback:", "  File \"t.py\", line 3, in f", " at Main.main"}
	if got := SummarizeRun(run, Observation{Now: begin.Add(age)}).End.Lines; !slices.Equal(got, want) {
		t.Errorf("the lines are %q, want %q", got, want)
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
		t.Errorf("the failed node is not first, and then the one that has waited longest: %+v", s.Abnormal[:3])
	}
	if text := s.Text(TextStyle{}); !strings.Contains(text, "  +280 more (-v shows all)\n") {
		t.Errorf("the others are missing in:\n%s", text)
	}
	all := SummarizeRun(run, Observation{Now: begin.Add(age), Verbose: true})
	if len(all.All) != 300 || strings.Contains(all.Text(TextStyle{}), "more (") {
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

// TestStatusJSONIsDocumented verifies that the documentation lists exactly the fields of the JSON.
func TestStatusJSONIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../docs/status.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[Status](), reflect.TypeFor[GateWait](), reflect.TypeFor[StepCount](),
		reflect.TypeFor[NodeStatus](), reflect.TypeFor[RunEnd](),
		reflect.TypeFor[RoleStatus](), reflect.TypeFor[InstanceStatus](),
	} {
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
	words := slices.Clone(marksBySeverity)
	for state := range exitCodes {
		words = append(words, string(state))
	}
	for _, word := range words {
		if !strings.Contains(string(data), "`"+word+"`") {
			t.Errorf("docs/status.md does not tell of %s", word)
		}
	}
}
