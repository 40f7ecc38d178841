package runs

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// publish writes a record of a run.
func publish(t *testing.T, runDir, sub, name string, rec record.Record, at time.Time) {
	t.Helper()
	*rec.RecordHeader() = record.Header{Version: record.VersionOf(rec), Nonce: "n0", Host: "n0", WrittenAt: at}
	data, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(runDir, sub), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(runDir, sub, name), append(data, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestListRuns lists a run that has failed, one whose daemons may be gone, one that is up, and
// names that are not runs.
func TestListRuns(t *testing.T) {
	dir := logs(t, "9.0", "10.0", "11.0")
	now := time.Now()
	for run, age := range map[string]time.Duration{
		"9.0": 48*time.Hour + time.Second, "10.0": 2 * time.Hour, "11.0": time.Hour,
	} {
		path := filepath.Join(dir, run)
		job := &record.Job{Run: run, Size: 2, Plan: &record.Plan{Driver: "train.py", NodesNeeded: 2}}
		publish(t, path, signal.ControlDir, signal.NameJob, job, now.Add(-age))
		if err := os.MkdirAll(filepath.Join(path, signal.NodesDir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, filepath.Join(dir, "9.0"), "", signal.NameResult, &record.Result{
		Run: "9.0", Size: 2, Code: 75, Outcome: "check", BadNodes: []string{"n1", "n2"},
		RunTimings:     record.RunTimings{Duration: time.Minute},
		FailureContext: record.FailureContext{ErrorLine: "ValueError: loss is NaN"},
		Progress:       &record.Progress{Step: 12, Goodput: 0.919, Reports: 12},
		Succession: record.Succession{History: &record.RestartHistory{
			Count: 3, Times: []time.Time{now.Add(-49 * time.Hour), now.Add(-47 * time.Hour), now.Add(-3 * time.Hour)},
		}},
	}, now.Add(-2*time.Hour))
	publish(t, filepath.Join(dir, "11.0"), signal.ControlDir, signal.SeriesProgress.Name(3),
		&record.ProgressMark{Progress: record.Progress{Reports: 1}}, now)
	for _, run := range []string{"10.0", "11.0"} {
		publish(t, filepath.Join(dir, run), signal.ControlDir, signal.NameGateOpen, &record.Mark{}, now)
	}
	for _, sub := range []string{signal.ControlDir, signal.NodesDir} {
		at := now.Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "10.0", sub), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, signal.BadNodesDir), 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := ListRuns(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(list.Text(now)) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"RUN STATE NODES AGE DURATION EXIT VERDICT RESTARTS GOODPUT COMMAND BAD-NODES ERROR",
		"9.0 failed 2 2-00:00:01 00:01:00 75 check 2 91% train.py n[1-2] ValueError: loss is NaN",
		"10.0 silent 2 02:00:00 02:00:00 - - - - train.py - -",
		"11.0 up 2 01:00:00 01:00:00 - - - 0% train.py - -",
	}
	if text := strings.Join(got, "\n"); text != strings.Join(want, "\n") {
		t.Errorf("the list is\n%s\nwant\n%s", text, strings.Join(want, "\n"))
	}
	goodputs := make(map[string]*float64)
	for _, s := range list.Runs {
		goodputs[s.Run] = s.Goodput
	}
	exact, none := 0.919, 0.0
	if diff := cmp.Diff(map[string]*float64{"9.0": &exact, "10.0": nil, "11.0": &none}, goodputs); diff != "" {
		t.Errorf("the goodputs (-want +got):\n%s", diff)
	}
}

// TestListJob lists the runs of one job.
func TestListJob(t *testing.T) {
	dir := logs(t, strings.Fields("1.0 1.1 1.1-a1 12.0 17-4 17-5 17-5-a1 53.0 54.0 54.1")...)
	describe(t, dir, "53.0", record.Launch{LaunchID: "53", LaunchAliases: []string{"50_1"}})
	describe(t, dir, "54.0", record.Launch{LaunchID: "54", LaunchAliases: []string{"50_2"}})
	describe(t, dir, "54.1", record.Launch{LaunchID: "54", LaunchAliases: []string{"50_2"}})
	for job, want := range map[string]string{
		"1": "1.0 1.1 1.1-a1", "1.1": "1.1 1.1-a1", "17": "17-4 17-5 17-5-a1", "17[5].pbs01": "17-5 17-5-a1",
		"50": "53.0 54.0 54.1", "50_2": "54.0 54.1", "50_2.1": "54.1", "2": "",
	} {
		list, err := ListRuns(t.Context(), dir, job)
		var got []string
		for _, s := range list.Runs {
			got = append(got, s.Run)
		}
		slices.Sort(got)
		if _, isNone := errors.AsType[*NoRunError](err); isNone != (want == "") || strings.Join(got, " ") != want {
			t.Errorf("the runs of %s are %v, want %s: %v", job, got, want, err)
		}
	}
}

func TestListNothing(t *testing.T) {
	list, err := ListRuns(t.Context(), t.TempDir(), "")
	if data, _ := json.Marshal(list.Runs); err != nil || string(data) != "[]" || list.Text(noon) != "" {
		t.Errorf("an empty directory is %s, %q: %v", data, list.Text(noon), err)
	}
	for dir, exists := range map[string]bool{t.TempDir(): true, filepath.Join(t.TempDir(), "none"): false} {
		_, err := ListRuns(t.Context(), dir, "123")
		if none, is := errors.AsType[*NoRunError](err); !is || (none.Newest != nil) != exists {
			t.Errorf("the error is %v, although the directory exists: %v", err, exists)
		}
	}
}

func TestGoal(t *testing.T) {
	status := func(state timeline.RunState, code int, toGate time.Duration) (s timeline.Status) {
		s.State, s.ToGate = state, toGate
		if s.Over() {
			s.End = &timeline.RunEnd{Code: code}
		}
		return s
	}
	noResult := status(timeline.StateFailed, 0, 0)
	noResult.End = nil
	for _, tc := range []struct {
		name     string
		goal     Goal
		status   timeline.Status
		reached  bool
		exitCode int
	}{
		{"on its way", GoalUp, status(timeline.StateBringingUp, 0, 0), false, 0},
		{"up", GoalUp, status(timeline.StateUp, 0, time.Second), true, 0},
		{"up, for the end", GoalEnd, status(timeline.StateUp, 0, time.Second), false, 0},
		{"ending", GoalEnd, status(timeline.StateEnding, 3, time.Second), false, 0},
		{"failed before it was up", GoalUp, status(timeline.StateFailed, 75, 0), true, 75},
		{"stopped before it was up", GoalUp, status(timeline.StateFinished, 0, 0), true, 1},
		{"finished", GoalUp, status(timeline.StateFinished, 0, time.Second), true, 0},
		{"finished, for the end", GoalEnd, status(timeline.StateFinished, 0, 0), true, 0},
		{"failed", GoalEnd, status(timeline.StateFailed, 3, time.Second), true, 3},
		{"no result", GoalEnd, noResult, true, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reached, code := tc.goal.IsReached(tc.status), tc.goal.ExitCode(tc.status)
			if reached != tc.reached || reached && code != tc.exitCode {
				t.Errorf("reached: %v, code %d; want %v, %d", reached, code, tc.reached, tc.exitCode)
			}
		})
	}
}

// TestRequeuedRun finds the name of the run that follows a requeue, and lists what follows each
// run.
func TestRequeuedRun(t *testing.T) {
	dir := logs(t, "9.0", "9.0-r1", "9.0-r1-a1", "9.0-r2")
	wanted, refused := &record.RequeueDecision{Wanted: true}, &record.RequeueDecision{}
	for run, next := range map[string]record.Succession{
		"9.0": {Requeue: wanted}, "9.0-r1": {NextAttempt: 1}, "9.0-r1-a1": {Requeue: wanted},
		"9.0-r2": {Requeue: refused},
	} {
		job := &record.Job{Run: run, Size: 1, Launch: record.Launch{LaunchID: "9"}}
		publish(t, filepath.Join(dir, run), signal.ControlDir, signal.NameJob, job, noon)
		result := &record.Result{Run: run, Size: 1, Code: 76, Outcome: "peer-lost", Succession: next}
		publish(t, filepath.Join(dir, run), "", signal.NameResult, result, noon)
	}
	list, err := ListRuns(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	states := make(map[string]string)
	for line := range strings.Lines(list.Text(noon)) {
		words := strings.Fields(line)
		states[words[0]] = words[1]
	}
	for run, want := range map[string]struct{ state, next string }{
		"9.0": {"requeued", "9.0-r1"}, "9.0-r1": {"restarted", ""}, "9.0-r1-a1": {"requeued", "9.0-r2"},
		"9.0-r2": {"failed", ""},
	} {
		next, err := RequeuedRun(t.Context(), filepath.Join(dir, run))
		if err != nil || next != want.next || states[run] != want.state {
			t.Errorf("%s is %s, followed by %q; want %v: %v", run, states[run], next, want, err)
		}
	}
}

// TestListedCommand lists drivers by the name of their program, and not by that of its interpreter.
func TestListedCommand(t *testing.T) {
	for command, want := range map[string]string{
		"/usr/bin/python3.11 -u src/train.py --lr=1": "train.py",
		"python -m pkg.train":                        "pkg.train",
		"env OMP_NUM_THREADS=1 bash ./run.sh":        "run.sh",
		"uv run train.py":                            "train.py",
		"sh -c 'exit 3'":                             "driver",
		"'my program' x":                             "driver",
		"./solver in.dat":                            "solver",
		"python3":                                    "driver",
		"torchrun --nnodes=1 train.py":               "torchrun",
	} {
		dir := logs(t, "9.0")
		job := &record.Job{Run: "9.0", Size: 1, Plan: &record.Plan{Driver: "driver", Command: command}}
		publish(t, filepath.Join(dir, "9.0"), signal.ControlDir, signal.NameJob, job, noon)
		if list, err := ListRuns(t.Context(), dir, ""); err != nil || list.Runs[0].Driver != want {
			t.Errorf("%s is listed as %s, want %s: %v", command, list.Runs[0].Driver, want, err)
		}
	}
}

// TestAwaitNextAttempt waits for the end of a run that is restarted.
func TestAwaitNextAttempt(t *testing.T) {
	dir := logs(t, "9.0", "9.0-a1")
	for run, result := range map[string]*record.Result{
		"9.0":    {Run: "9.0", Size: 1, Code: 76, Outcome: "peer-lost", Succession: record.Succession{NextAttempt: 1}},
		"9.0-a1": {Run: "9.0-a1", Size: 1, Code: 5, Outcome: "driver"},
	} {
		publish(t, filepath.Join(dir, run), signal.ControlDir, signal.NameJob, &record.Job{Run: run, Size: 1}, noon)
		publish(t, filepath.Join(dir, run), "", signal.NameResult, result, noon)
	}
	var first string
	last, err := Waiter{}.AwaitGoal(t.Context(), filepath.Join(dir, "9.0"), GoalEnd,
		func(s timeline.Status) { first = s.Run })
	if err != nil || first != "9.0" || last.Run != "9.0-a1" || GoalEnd.ExitCode(last) != 5 {
		t.Errorf("it is %s with %d: %v", last.Run, GoalEnd.ExitCode(last), err)
	}
}

// TestAwaitNoNextAttempt has the result of the last attempt if the job ends before the next one starts.
func TestAwaitNoNextAttempt(t *testing.T) {
	dir := logs(t, "9.0")
	path := filepath.Join(dir, "9.0")
	publish(t, path, signal.ControlDir, signal.NameJob, &record.Job{Run: "9.0", Size: 1}, noon)
	publish(t, path, "", signal.NameResult, &record.Result{Run: "9.0", Size: 1, Code: 76, Outcome: "peer-lost",
		Succession: record.Succession{NextAttempt: 1}}, noon)
	synctest.Test(t, func(t *testing.T) {
		over := func(context.Context, string) launcher.JobState {
			return launcher.JobState{IsKnown: true, IsOver: true, Words: "squeue: CANCELLED"}
		}
		last, err := Waiter{Ask: over, Say: t.Logf}.AwaitGoal(t.Context(), path, GoalEnd, func(timeline.Status) {})
		if err != nil || last.Run != "9.0" || GoalEnd.ExitCode(last) != 76 {
			t.Errorf("it is %s with %d: %v", last.Run, GoalEnd.ExitCode(last), err)
		}
	})
}
