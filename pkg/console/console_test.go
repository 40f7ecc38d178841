package console

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/pipe"
)

// ceiling limits waits that end much sooner on any machine.
const ceiling = 60 * time.Second

// TestLateReader verifies that a reader that resumes gets all lines in order, and the number of
// lines that were dropped.
func TestLateReader(t *testing.T) {
	from, to := pipe.Unread(t)
	v := newConsole(Config{Output: to})
	const lines = 2<<20/64 + 7 // 1 MiB of them is kept, and at most the same amount is being written
	var said []string
	for at := range lines {
		said = append(said, line64(at))
		_, _ = v.Write([]byte(said[at]))
	}
	heard := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(from)
		heard <- string(all)
	}()
	v.remainingTime = ceiling
	v.AwaitWritten()
	if unread := v.Close(); unread != 0 {
		t.Errorf("%d lines are said to be unread", unread)
	}
	_ = to.Close()
	got := strings.TrimLeft(<-heard, "#")
	want := strings.Join(said, "")
	kept, missing, found := strings.Cut(got, "bringupd: standard error was not read")
	if !found || !strings.HasPrefix(want, kept) || len(kept) < 1<<20 || !strings.HasPrefix(missing, ", so ") {
		t.Errorf("got %d bytes in order: %v; then %q", len(kept), strings.HasPrefix(want, kept), missing)
	}
}

// line64 returns a line of 64 bytes that contains its number.
func line64(at int) string {
	text := []byte(strings.Repeat(".", 63) + "\n")
	copy(text, "line "+time.Duration(at).String())
	return string(text)
}

// TestReaderGone verifies that the end does not wait if no reader is left.
func TestReaderGone(t *testing.T) {
	from, to := pipe.Unread(t)
	_ = from.Close()
	v := newConsole(Config{Output: to, JSON: true})
	_, _ = v.Write(bytes.Repeat([]byte("a line\n"), 3))
	began := time.Now()
	v.remainingTime = ceiling
	if unread := v.Close(); unread != 3 {
		t.Errorf("%d lines are said to be unread", unread)
	}
	if took := time.Since(began); took > ceiling/2 {
		t.Errorf("it waited %s for a reader who is gone", took)
	}
}
