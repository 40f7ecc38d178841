package report

import (
	"strings"
	"testing"
	"time"
)

// TestRolesOnPage verifies that the page shows an exit of an instance on the timeline of its node,
// with its last lines.
func TestRolesOnPage(t *testing.T) {
	run, logs := recorded(t, "roles-running")
	page := pageOf(t, NewView(run, logs, time.Time{}))
	for _, want := range []string{
		`<section id="roles">`, `<section id="instances">`, `class="s-restarting"`,
		`4/4 ready, 1 restart`, `<b class="exit" style="left:`,
		`title="judge.1 has exited, after `, "CUDA error, out of memory", "the role goes on without it",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing", want)
		}
	}
	run, logs = recorded(t, "good")
	if page := pageOf(t, NewView(run, logs, time.Time{})); !strings.Contains(page, `<section id="roles">`) {
		t.Error("a run of flags has no section about its roles")
	}
}

// TestWaitOnPage verifies that the page of a run that waits shows how long an instance has been
// starting and may be, and the last line of its log.
func TestWaitOnPage(t *testing.T) {
	run, logs := recorded(t, "roles-waiting")
	run.LastLines = map[string]string{"judge-1.log": "loading weights 61 %"}
	page := pageOf(t, NewView(run, logs, time.Time{}))
	for _, want := range []string{
		"judge.1 starting on node0 for 00:", " of 20m: loading weights 61 % (connection refused",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing", want)
		}
	}
}
