package files

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sink is a file in memory, which may hang.
type sink struct {
	mu     sync.Mutex
	data   bytes.Buffer // guarded by mu
	writes int          // guarded by mu
	closed int          // guarded by mu
	hang   chan struct{}
	fails  error
	room   int // number of bytes accepted nevertheless; guarded by mu
	lost   error
}

func (s *sink) Write(data []byte) (int, error) {
	if s.hang != nil {
		<-s.hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.fails != nil {
		n, _ := s.data.Write(data[:min(s.room, len(data))])
		s.room = 0
		return n, s.fails
	}
	return s.data.Write(data)
}

func (s *sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return s.lost
}

func (s *sink) seen() (text string, writes, closed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data.String(), s.writes, s.closed
}

func line(t *testing.T, j *Journal, text string) {
	t.Helper()
	if n, err := j.Write([]byte(text)); n != len(text) || err != nil {
		t.Errorf("Write answers %d, %v", n, err)
	}
}

func closeJournal(t *testing.T, j *Journal) {
	t.Helper()
	if err := j.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestJournalGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, file := NewJournal(), &sink{}
		line(t, j, "before\n")
		j.Open(file)
		line(t, j, "after\n")
		time.Sleep(2 * writeInterval)
		synctest.Wait()
		if text, writes, _ := file.seen(); text != "before\nafter\n" || writes != 1 {
			t.Errorf("after a pause: %q in %d writes", text, writes)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, writes, _ := file.seen(); writes != 1 {
			t.Errorf("%d writes though there was nothing to write", writes)
		}
		line(t, j, "soon\n")
		if err := j.Sync(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if text, _, _ := file.seen(); !strings.HasSuffix(text, "soon\n") {
			t.Errorf("after Sync: %q", text)
		}
		line(t, j, "last\n")
		closeJournal(t, j)
		closeJournal(t, j)
		if text, _, closed := file.seen(); text != "before\nafter\nsoon\nlast\n" || closed != 1 {
			t.Errorf("in the end: %q, closed %d times", text, closed)
		}
	})
}

// TestJournalEager verifies that urgent lines are written at once, repeatedly from the same memory,
// and that an error at close is returned, which may report lost data.
func TestJournalEager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, file := NewJournal(), &sink{lost: errors.New("lost")}
		j.WriteImmediately = true
		j.Open(file)
		want := ""
		for _, text := range []string{"one\n", "another that is longer\n", "short\n", "last\n"} {
			line(t, j, text)
			synctest.Wait()
			want += text
			if got, _, _ := file.seen(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		if err := j.Close(t.Context()); !errors.Is(err, file.lost) {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestJournalClosedBeforeOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, file := NewJournal(), &sink{}
		line(t, j, "early\n")
		if err := j.Sync(); err != nil {
			t.Error(err)
		}
		closeJournal(t, j)
		closeJournal(t, j)
		j.Open(file)
		closeJournal(t, j)
		if text, _, closed := file.seen(); text != "early\n" || closed != 1 {
			t.Errorf("got %q, closed %d times", text, closed)
		}
	})
}

// TestJournalHangingFile verifies that a file system that hangs does not block writers, and that
// lines that cannot be kept are counted.
func TestJournalHangingFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, file := NewJournal(), &sink{hang: make(chan struct{})}
		j.Open(file)
		line(t, j, "first\n")
		time.Sleep(2 * writeInterval) // the goroutine hangs with it
		kilobyte := strings.Repeat("x", 1023) + "\n"
		for range maxBuffered/1024 + 5 {
			line(t, j, kilobyte)
		}
		over := errors.New("over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, over)
		defer cancel()
		if err := j.Close(ctx); !errors.Is(err, over) {
			t.Errorf("Close of a journal that hangs: %v", err)
		}
		close(file.hang)
		closeJournal(t, j)
		text, _, closed := file.seen()
		if want := "first\n" + strings.Repeat(kilobyte, maxBuffered/1024) +
			"{\"dropped\":5}\n"; text != want || closed != 1 {
			t.Errorf("got %d bytes that end in %q, closed %d times; want %d bytes", len(text),
				text[max(0, len(text)-40):], closed, len(want))
		}
	})
}

// TestJournalWaitsForSlowFile verifies that a journal with patience waits for a slow file and loses
// nothing.
func TestJournalWaitsForSlowFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, file := NewJournal(), &slowFile{}
		j.WriteImmediately, j.StallTimeout = true, time.Second
		j.Open(file)
		kilobyte := strings.Repeat("x", 1023) + "\n"
		for range 20 << 10 {
			line(t, j, kilobyte)
		}
		closeJournal(t, j)
		if text, _, _ := file.seen(); text != strings.Repeat(kilobyte, 20<<10) {
			t.Errorf("got %d bytes, want %d", len(text), 20<<20)
		}
	})
}

// slowFile takes nine tenths of a second for each write.
type slowFile struct{ sink }

func (s *slowFile) Write(data []byte) (int, error) {
	time.Sleep(900 * time.Millisecond)
	return s.sink.Write(data)
}

// TestJournalPatienceEnds verifies that a file that hangs blocks a writer with patience once for
// that time, and that the number of missing lines is reported afterwards, including the torn one.
func TestJournalPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, file := NewJournal(), &sink{hang: make(chan struct{})}
		j.WriteImmediately, j.StallTimeout = true, time.Second
		j.Open(file)
		line(t, j, "first\n")
		synctest.Wait()
		kept := strings.Repeat("x", maxBuffered-2) + "\nb"
		began := time.Now()
		line(t, j, kept)
		for _, text := range []string{"egun, and its end\n", "two\n", "three\n", "four, "} {
			line(t, j, text)
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("held up for %v", waited)
		}
		close(file.hang)
		synctest.Wait()
		line(t, j, "after\n")
		closeJournal(t, j)
		text, _, _ := file.seen()
		if want := "first\n" + kept + "\n{\"dropped\":4}\nafter\n"; text != want {
			t.Errorf("got %d bytes that end in %q, want %d", len(text), text[max(0, len(text)-60):], len(want))
		}
	})
}

func TestJournalDropsWhatIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, file := NewJournal(), &sink{}
		line(t, j, strings.Repeat("x", maxBuffered+1))
		line(t, j, "short\n")
		j.Open(file)
		closeJournal(t, j)
		if text, _, _ := file.seen(); text != "short\n{\"dropped\":1}\n" {
			t.Errorf("got %d bytes", len(text))
		}
	})
}

// TestJournalKeepsWhatIsRefused verifies that lines whose write failed are kept within the
// journal's limits and are in the right place once they are written.
func TestJournalKeepsWhatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, file := NewJournal(), &sink{fails: errors.New("full")}
		j.Open(file)
		line(t, j, "refused\n")
		time.Sleep(2 * writeInterval)
		kilobyte := strings.Repeat("x", 1023) + "\n"
		for range maxBuffered/1024 + 5 {
			line(t, j, kilobyte)
		}
		if left := j.UnwrittenLines(); left != 1+maxBuffered/1024+5 {
			t.Errorf("%d lines are left", left)
		}
		file.mu.Lock()
		file.fails = nil
		file.mu.Unlock()
		if err := j.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		line(t, j, "after\n")
		closeJournal(t, j)
		text, _, closed := file.seen()
		if want := "refused\n" + strings.Repeat(kilobyte, maxBuffered/1024) +
			"{\"dropped\":5}\nafter\n"; text != want || closed != 1 || j.UnwrittenLines() != 0 {
			t.Errorf("got %d bytes that end in %q, closed %d times, %d lines left; want %d bytes",
				len(text), text[max(0, len(text)-40):], closed, j.UnwrittenLines(), len(want))
		}
	})
}

// TestJournalGoesOnInTheMiddleOfALine verifies that a partially written line is continued.
func TestJournalGoesOnInTheMiddleOfALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, file := NewJournal(), &sink{fails: errors.New("full"), room: 3}
		j.Open(file)
		line(t, j, "a line\n")
		time.Sleep(2 * writeInterval)
		file.mu.Lock()
		file.fails = nil
		file.mu.Unlock()
		line(t, j, "another\n")
		closeJournal(t, j)
		if text, _, _ := file.seen(); text != "a line\nanother\n" {
			t.Errorf("got %q", text)
		}
	})
}

func TestJournalFlushIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, file := NewJournal(), &sink{hang: make(chan struct{})}
		j.Open(file)
		if err := j.Flush(t.Context()); err != nil {
			t.Errorf("nothing was to be written: %v", err)
		}
		line(t, j, "first\n")
		over := errors.New("over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, over)
		defer cancel()
		if err := j.Flush(ctx); !errors.Is(err, over) || j.UnwrittenLines() != 1 {
			t.Errorf("Flush of a journal that hangs: %v, with %d lines left", err, j.UnwrittenLines())
		}
		close(file.hang)
		closeJournal(t, j)
	})
}
