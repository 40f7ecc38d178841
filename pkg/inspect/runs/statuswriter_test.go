package runs

import "testing"

// TestRedrawLines verifies that lines overwrite those drawn before.
func TestRedrawLines(t *testing.T) {
	if got := redrawLines([]string{"a", "b"}, 0); got != "a\x1b[K\nb\x1b[K\n\x1b[J" {
		t.Errorf("at first it is drawn as %q", got)
	}
	if got := redrawLines([]string{"a"}, 2); got != "\x1b[2A\ra\x1b[K\n\x1b[J" {
		t.Errorf("then it is drawn as %q", got)
	}
}
