package timeline

import (
	"strings"
	"testing"
)

func TestAttemptNames(t *testing.T) {
	names := []string{
		"42.0-r1", "42.0", "42.0-a10", "42.0-a2", "42.1", "42.0-r1-a1", "420.0", "42.0-doctor", "bad-nodes", "latest",
	}
	for _, tc := range []struct{ run, launchID, want string }{
		{"42.0-a2", "42", "42.0 42.0-a2 42.0-a10 42.0-r1 42.0-r1-a1"},
		{"42.1", "42", "42.1"},
		{"42.0", "", ""},
		{"renamed", "42", ""},
	} {
		if got := strings.Join(attemptNames(tc.run, tc.launchID, names), " "); got != tc.want {
			t.Errorf("of %s there are %q, want %q", tc.run, got, tc.want)
		}
	}
}

// TestAttemptsOfStatus verifies that the status of a later attempt names its number and what ended the one
// before it, and that of an earlier one what follows.
func TestAttemptsOfStatus(t *testing.T) {
	code := 76
	attempts := []Attempt{{Number: 1, Run: "4712.0", Code: &code, Reason: "node 2 is lost"},
		{Number: 2, Run: "4712.0-a1"}, {Number: 3, Run: "4712.0-a2"}}
	for _, tc := range []struct {
		own, count int
		want       string
	}{
		{0, 1, ""},
		{0, 3, "attempt 1 of 3"},
		{1, 2, "attempt 2; 4712.0 ended with 76: node 2 is lost"},
		{1, 3, "attempt 2 of 3; 4712.0 ended with 76: node 2 is lost"},
	} {
		run := made(2)
		if tc.count > 1 {
			run.Attempts = append([]Attempt(nil), attempts[:tc.count]...)
			run.Attempts[tc.own].IsThis = true
		}
		status := SummarizeRun(run, Observation{Now: begin.Add(age)})
		text := status.Text(TextStyle{})
		if tc.want == "" && strings.Contains(text, "attempt") || !strings.Contains(text, tc.want) {
			t.Errorf("%q is not in:\n%s", tc.want, text)
		}
	}
}
