package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
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

// TestErrorOfTheCause verifies which lines are before and after the error of the first cause, and
// that the page names it in its title.
func TestErrorOfTheCause(t *testing.T) {
	for _, tc := range []struct {
		name, error          string
		lines, before, after []string
	}{
		{"the last line", "E: c", []string{"a", "E: c"}, []string{"a"}, []string{}},
		{"with a prefix, and lines after it", "E: c", []string{"a", "3: E: c", "b"}, []string{"a"}, []string{"b"}},
		{"twice", "E", []string{"E", "a", "E"}, []string{"E", "a"}, []string{}},
		{"a long one", "E: long…", []string{"a", "E: longer"}, []string{"a"}, []string{}},
		{"further above", "E", []string{"a", "b"}, []string{"a", "b"}, nil},
		{"none", "", []string{"a", "b"}, []string{"a", "b"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := CauseEntry{Error: tc.error, Lines: tc.lines}
			if diff := cmp.Diff([][]string{tc.before, tc.after}, [][]string{e.Before(), e.After()}); diff != "" {
				t.Error(diff)
			}
		})
	}
	want := "<title>Failed: 4711.0: raylet: cannot allocate 8.0 GiB for a task argument</title>"
	if page := pageOf(t, look(2, true)); !strings.Contains(page, want) {
		t.Errorf("the page has no %s", want)
	}
}

// TestSingularForms verifies the words of a page about a single node, consequence, check and line.
func TestSingularForms(t *testing.T) {
	v := look(1, false)
	v.Banner.Chain = []CauseEntry{{First: true}, {Lines: []string{"a"}}}
	v.Banner.More = 1
	v.Checks = []CheckGroup{{Verdict: string(check.Pass), Tone: SeverityGood, ID: "node.clock"}}
	page := pageOf(t, v)
	for _, want := range []string{
		"1 node, the slowest first", "and 1 more consequence<", "its last line<", "1 check passed or skipped",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
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
