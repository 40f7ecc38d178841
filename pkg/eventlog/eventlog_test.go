package eventlog

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestProbesAreToldOfWhenTheyChange verifies that a probe whose answer always changes does not fill
// the event log, and that long answers are truncated.
func TestProbesAreToldOfWhenTheyChange(t *testing.T) {
	trail := New()
	lines := &kept{}
	trail.events.Open(lines)
	says := []error{errors.New("refused"), errors.New("refused"), errors.New(strings.Repeat("x", 9000)), nil}
	for i := range 100 {
		says = slices.Insert(says, 3, errors.New(strings.Repeat("y", i+1)))
	}
	look := trail.LogProbe("head", func(context.Context) error {
		said := says[0]
		says = says[1:]
		return said
	})
	for len(says) > 0 {
		_ = look(t.Context())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	trail.Close(ctx)
	got := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if len(got) != maxProbeEvents+1 || strings.Count(lines.String(), "refused") != 1 ||
		!strings.Contains(got[maxProbeEvents], `"ok":true`) {
		t.Errorf("%d lines: %s", len(got), lines)
	}
	if strings.Contains(lines.String(), strings.Repeat("x", maxProbeResult+1)) {
		t.Error("all that a probe saw is there, however long")
	}
}

// kept is a file in memory.
type kept struct{ strings.Builder }

func (*kept) Close() error { return nil }

// TestPhasesLast verifies that a phase that is never left ends when the next one begins, and that
// the time of a repeated phase accumulates.
func TestPhasesLast(t *testing.T) {
	var s phaseHistory
	begin := time.Now()
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	s.enterPhase("join", at(0))
	s.leavePhase("join", 2*time.Second)
	s.enterPhase("stand-by", at(2))
	s.enterPhase("workers", at(3))
	s.leavePhase("workers", 4*time.Second)
	s.enterPhase("workers", at(10))
	s.leavePhase("workers", 5*time.Second)
	s.enterPhase("driver", at(20))
	s.enterPhase("drain", at(50))
	want := []record.PhaseDuration{{Phase: "join", Took: 2 * time.Second},
		{Phase: "stand-by", Took: 18 * time.Second}, {Phase: "workers", Took: 9 * time.Second},
		{Phase: "driver", Took: 30 * time.Second}, {Phase: "drain", Took: 50 * time.Second}}
	if diff := cmp.Diff(want, s.phaseDurations(at(100))); diff != "" {
		t.Error(diff)
	}
}

// TestLimits verifies that a program that has a fence, or spawns ranks, in each of its steps does not
// fill the event log: of the fences, only the first ones are recorded, and later those that were slow
// or failed.
func TestLimits(t *testing.T) {
	failed := errors.New("node 3 will never come")
	for _, tc := range []struct {
		event EventType
		log   func(trail *EventLog, round int)
		want  int
	}{
		{FenceLeft, func(l *EventLog, round int) { l.LogFence("step", round, time.Millisecond, nil) }, maxFences},
		{FenceLeft, func(l *EventLog, round int) { l.LogFence("step", round, slowFenceTime, nil) }, maxSlowFences},
		{FenceLeft, func(l *EventLog, round int) { l.LogFence("step", round, 1, failed) }, maxSlowFences},
		{StepReached, func(l *EventLog, round int) { l.LogStep(float64(round)) }, 1},
		{StepReached, func(l *EventLog, round int) { l.LogStep(float64(-round)) }, maxSteps},
		{RanksSpawned, func(l *EventLog, round int) { l.LogSpawn(0, round, 1, []string{"n1"}) }, maxSpawns},
	} {
		trail, file := New(), new(kept)
		trail.events.Open(file)
		for round := range 2 * maxSteps {
			tc.log(trail, round+1)
		}
		trail.Close(t.Context())
		if n := strings.Count(file.String(), `"event":"`+string(tc.event)+`"`); n != tc.want {
			t.Errorf("%d events %s are recorded, want %d", n, tc.event, tc.want)
		}
	}
}

// TestStepsOfAMonth verifies how many steps of a long run are recorded.
func TestStepsOfAMonth(t *testing.T) {
	var s loggedSteps
	for now := time.Duration(0); now < 30*24*time.Hour; now += 5 * time.Second {
		if step := now.Seconds(); s.isDue(step, now) {
			s = loggedSteps{s.count + 1, step, now}
		}
	}
	if s.count < 500 || s.count > 2000 {
		t.Errorf("%d steps are recorded", s.count)
	}
}

func TestEventsOnDisk(t *testing.T) {
	node := 3
	for _, tc := range []struct {
		event Event
		want  string
	}{
		{Event{At: "T", Type: PhaseEntered, Version: 2, SinceStartNS: 5, Phase: "join"},
			`{"at":"T","event":"enter","v":2,"since_start_ns":5,"phase":"join"}`},
		{Event{At: "T", Type: PhaseLeft, Version: 2, NodeIndex: &node, Host: "n3",
			Fields: Fields{ObjectFields: ObjectFields{EndedPhase: "join"}, TookNS: 7,
				OK: new(false)}, SinceStartNS: 5, Phase: "check"},
			`{"at":"T","event":"leave","v":2,"node_index":3,"host":"n3","ended_phase":"join","took_ns":7,"ok":false,` +
				`"since_start_ns":5,"phase":"check"}`},
		{Event{Type: ProbeChanged, Fields: Fields{ObjectFields: ObjectFields{Child: "a&b"},
			OK: new(false), Seen: "<x>"}}, `{"event":"probe","child":"a&b","ok":false,"seen":"<x>"}`},
		{Event{Type: ChildExited, Fields: Fields{ObjectFields: ObjectFields{Child: "driver",
			PID: 9}, Exit: "exit code 3"}}, `{"event":"exit","child":"driver","pid":9,"exit":"exit code 3"}`},
		{Event{Type: ChecksDone, Fields: Fields{CheckFields: CheckFields{Verdict: "PASS",
			Passed: new(0)}, TookNS: 7}}, `{"event":"checked","verdict":"PASS","passed":0,"took_ns":7}`},
		{Event{Type: FailureReceived, Fields: Fields{FailureFields: FailureFields{Subject: new(0),
			Kind: "peer-lost", What: "gone"}}}, `{"event":"failure","subject":0,"kind":"peer-lost","what":"gone"}`},
		{Event{Type: RequestAccepted, Fields: Fields{ObjectFields: ObjectFields{Request: "ab",
			Nodes: new(0)}, OK: new(false)}}, `{"event":"request","request":"ab","nodes":0,"ok":false}`},
		{Event{Type: LinkChanged, Fields: Fields{LinkFields: LinkFields{Up: new(false),
			Reason: "left"}}}, `{"event":"peer-link","up":false,"reason":"left"}`},
		{Event{Type: DaemonEnded, Fields: Fields{Code: new(0)}}, `{"event":"end","code":0}`},
	} {
		line, err := tc.event.encodeLine()
		if got := strings.TrimSuffix(string(line), "\n"); err != nil || got != tc.want {
			t.Errorf("it is %s, not %s: %v", got, tc.want, err)
		}
		back, ok := DecodeEvent(line)
		if again, err := back.encodeLine(); !ok || err != nil || string(again) != string(line) {
			t.Errorf("it comes back as %s: %v", again, err)
		}
	}
}

// TestEventsAreDocumented verifies that the documentation has a row for each event, and no others.
func TestEventsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/run-directory.md")
	if err != nil {
		t.Fatal(err)
	}
	_, events, found := strings.Cut(string(text), "| event | meaning | fields |")
	if !found {
		t.Fatal("docs/run-directory.md has no table of events")
	}
	table, _, _ := strings.Cut(events, "\n\n")
	source, err := os.ReadFile("event.go")
	if err != nil {
		t.Fatal(err)
	}
	var documented, words []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		documented = append(documented, row[1])
	}
	for _, word := range regexp.MustCompile(`(?m)^\t\w+ +EventType = "([a-z-]+)"`).FindAllSubmatch(source, -1) {
		words = append(words, string(word[1]))
	}
	if len(words) < 20 || !slices.Equal(documented, words) {
		t.Errorf("docs/run-directory.md tells of the events\n%v, and the code of\n%v", documented, words)
	}
}
