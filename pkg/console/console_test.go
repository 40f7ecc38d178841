package console

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/pipe"
)

// ceiling is for waits that end much sooner, on whatever machine.
const ceiling = 60 * time.Second

// TestLateReader has a reader come back: it gets every line in order, and is
// told how many were too many to keep.
func TestLateReader(t *testing.T) {
	from, to := pipe.Unread(t)
	v := newConsole(Config{Output: to})
	const lines = 2<<20/64 + 7 // 1 MiB of them is kept, and as much at most is being written
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
	kept, missing, found := strings.Cut(got, "bringupd: nobody read")
	if !found || !strings.HasPrefix(want, kept) || len(kept) < 1<<20 || !strings.HasPrefix(missing, ", so ") {
		t.Errorf("got %d bytes in order: %v; then %q", len(kept), strings.HasPrefix(want, kept), missing)
	}
}

// line64 is a line of 64 bytes, which tells which it is.
func line64(at int) string {
	text := []byte(strings.Repeat(".", 63) + "\n")
	copy(text, "line "+time.Duration(at).String())
	return string(text)
}

// TestReaderGone has nobody left to read: the end does not wait for anybody.
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
