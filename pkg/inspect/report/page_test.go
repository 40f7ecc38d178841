package report

import (
	"bytes"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// look returns the view of a sample.
func look(size int, fails bool) *View {
	run := sample(size, fails)
	return NewView(run, sampleLogs(run), time.Time{})
}

func pageOf(t *testing.T, v *View) string {
	t.Helper()
	var b bytes.Buffer
	if err := v.Write(&b, FormatHTML); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPageOfManyNodesIsSmall(t *testing.T) {
	page := pageOf(t, look(1024, true))
	if len(page) >= 2_000_000 {
		t.Errorf("the page of 1024 nodes has %d bytes", len(page))
	}
	t.Logf("%d bytes", len(page))
}

// TestRunsWhileItsBeatsMove verifies that a run whose driver prints nothing for hours counts as
// running while its heartbeats change.
func TestRunsWhileItsBeatsMove(t *testing.T) {
	run, logs := recorded(t, "running")
	run.ReadAt = run.ReadAt.Add(3 * time.Hour)
	for _, one := range []struct {
		name    string
		rest    time.Duration
		touched time.Time
		word    string
	}{
		{"a beat a minute ago", 0, run.ReadAt.Add(-time.Minute), "Running"},
		{"the last beat an hour ago", 0, run.ReadAt.Add(-time.Hour), "Unfinished"},
		{"the last beat five minutes ago", 0, run.ReadAt.Add(-5 * time.Minute), "Unfinished"},
		{"five minutes ago, of one that rests for four", 4 * time.Minute, run.ReadAt.Add(-5 * time.Minute), "Running"},
		{"nobody can tell", 0, time.Time{}, "Unfinished"},
	} {
		t.Run(one.name, func(t *testing.T) {
			run.Job.Plan = &record.Plan{MaxHeartbeatInterval: one.rest}
			if v := NewView(run, logs, one.touched); v.Banner.Word != one.word {
				t.Errorf("it is %s, want %s", v.Banner.Word, one.word)
			}
		})
	}
}
