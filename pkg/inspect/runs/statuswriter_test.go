package runs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
)

// TestRedrawLines verifies that lines overwrite those drawn before.
func TestRedrawLines(t *testing.T) {
	if got := redrawLines([]string{"a", "b"}, 0); got != "a\x1b[K\nb\x1b[K\n\x1b[J" {
		t.Errorf("at first it is drawn as %q", got)
	}
	if got := redrawLines([]string{"a"}, 2); got != "\x1b[2A\ra\x1b[K\n\x1b[J" {
		t.Errorf("then it is drawn as %q", got)
	}
}

// TestWriteChanges verifies that a file gets a line for each change, and none merely because time passes,
// and the last state as a whole.
func TestWriteChanges(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	w := StatusWriter{Out: out, Updates: true}
	var s timeline.Status
	s.Run, s.Path, s.Phase, s.Next, s.Nodes = "7.0", "/logs/7.0", "join", "the gate opens", 2
	for i, state := range []timeline.RunState{
		timeline.StateBringingUp, timeline.StateBringingUp, timeline.StateUp, timeline.StateFailed,
	} {
		s.State, s.Elapsed = state, time.Duration(i)*time.Second
		s.At = time.Date(2026, 11, 21, 12, 0, i, 0, time.UTC)
		if err := w.WriteText(s); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(out.Name())
	const want = "12:00:00 BRINGING UP  7.0  join: 0 ready of 2, 0 needed after 00:00: the gate opens\n" +
		"12:00:02 UP  7.0  0 ready of 2, 0 needed, for 00:02\nFAILED  7.0  its result cannot be read\n"
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
}
