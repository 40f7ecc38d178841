package signal

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestNewest verifies that the newest attempt of a launch is found, and no attempt of another
// launch.
func TestNewest(t *testing.T) {
	ctx, p := within(t), newPlace(t)
	make := func(run, key string) *Dir {
		t.Helper()
		place := p
		place.Run, place.Key = run, key
		dir, err := CreateRun(ctx, place, record.Job{})
		must(t, err)
		return dir
	}
	newest := func(want int, over bool) AttemptInfo {
		t.Helper()
		begun, err := p.NewestAttempt(ctx)
		if err != nil || begun.Attempt != want || begun.HasResult != over {
			t.Errorf("found attempt %d, over %v (%v), want %d and %v", begun.Attempt, begun.HasResult, err, want, over)
		}
		return begun
	}
	newest(-1, false)
	for _, other := range []string{p.Run + "-a7", p.Run + "x", p.Run + "-r1"} {
		make(other, "another launch's")
	}
	for _, strange := range []string{"-a", "-a01", "-a0", "-a-1", "-a1x"} {
		must(t, os.Mkdir(filepath.Join(p.LogDir, p.Run+strange), 0o700))
	}
	// A file with the job's own output.
	must(t, os.WriteFile(filepath.Join(p.LogDir, p.Run+"-a8"), nil, 0o600))
	newest(-1, false)
	first := make(p.Run, p.Key)
	newest(0, false)
	publishResult := func(d *Dir, next int) {
		t.Helper()
		must(t, d.PublishOnce(ctx, NameResult,
			&record.Result{Code: 76, Succession: record.Succession{NextAttempt: next}}))
	}
	publishResult(first, 1)
	newest(0, true)
	second := make(p.Run+"-a1", p.Key)
	must(t, second.ClaimRecord(ctx, NodesDir, NodeName(0, p.Size, record.StateJoined), &record.Joined{}))
	begun := newest(1, false)
	if !slices.Contains(begun.NodeNames, NodeName(0, p.Size, record.StateJoined)) ||
		!slices.Contains(begun.ControlNames, NameJob) {
		t.Errorf("it shows %v and %v", begun.NodeNames, begun.ControlNames)
	}
	publishResult(second, 2)
	make(p.Run+"-a10", p.Key) // not in alphabetical order
	newest(10, false)
	results, err := p.PreviousResults(ctx, 10)
	if err != nil || len(results) != 2 || results[0].NextAttempt != 1 || results[1].NextAttempt != 2 {
		t.Errorf("the results are %+v (%v)", results, err)
	}
}

// TestAttemptOf verifies that the names of a run's attempts are recognised even if the run's own
// name contains the parts of such names.
func TestAttemptOf(t *testing.T) {
	for _, tc := range []struct {
		run, name string
		attempt   int
		ok        bool
	}{
		{"17.0", "17.0", 0, true},
		{"17.0", "17.0+b", 0, true},
		{"17.0", "17.0-a2+b", 2, true},
		{"17.0", "17.01", 0, false},
		{"17.0", "17", 0, false},
		{"a+b", "a+b", 0, true},
		{"a+b", "a+b-a3", 3, true},
		{"a+b", "a+c", 0, false},
		{"x-a1", "x-a1", 0, true},
		{"x-a1", "x-a1-a1", 1, true},
	} {
		attempt, ok := Location{Run: tc.run}.parseAttempt(tc.name)
		if ok != tc.ok || ok && attempt != tc.attempt {
			t.Errorf("%s is attempt %d of %s: %v", tc.name, attempt, tc.run, ok)
		}
	}
}
