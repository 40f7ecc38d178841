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
