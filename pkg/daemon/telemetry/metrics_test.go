package telemetry

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ceiling = 30 * time.Second

// told is a source of metrics that returns the same text until it is changed.
type told struct{ now atomic.Pointer[string] }

func (s *told) source() []byte { return []byte(*s.now.Load()) }

func tells(text string) *told {
	source := new(told)
	source.now.Store(&text)
	return source
}

func TestText(t *testing.T) {
	text := NewText("run", "17.0-r1", "rank", "0")
	text.StartFamily("bringupd_info", "gauge", "Identity of this daemon; always 1.")
	text.AddSample(1, "version", "a\"b\\c\nd\xff", "role", "head")
	text.StartFamily("bringupd_empty", "gauge", "It has no sample.")
	text.StartFamily("bringupd_up", "gauge", "It is up.")
	text.AddSample(0)
	text.StartFamily("bringupd_seconds_total", "counter", "How long they took.")
	text.AddSample(1.5, "op", "open")
	text.AddSample(2e-05, "op", "list")
	text.AddSample(12345678, "op", "read")
	want := `# HELP bringupd_info Identity of this daemon; always 1.
# TYPE bringupd_info gauge
bringupd_info{run="17.0-r1",rank="0",version="a\"b\\c\nd` + "\uFFFD" + `",role="head"} 1
# HELP bringupd_up It is up.
# TYPE bringupd_up gauge
bringupd_up{run="17.0-r1",rank="0"} 0
# HELP bringupd_seconds_total How long they took.
# TYPE bringupd_seconds_total counter
bringupd_seconds_total{run="17.0-r1",rank="0",op="open"} 1.5
bringupd_seconds_total{run="17.0-r1",rank="0",op="list"} 2e-05
bringupd_seconds_total{run="17.0-r1",rank="0",op="read"} 1.2345678e+07
`
	if diff := cmp.Diff(want, string(text.Bytes())); diff != "" {
		t.Error(diff)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(ceiling); !reached(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("cannot see %s after %s", what, ceiling)
		}
	}
}

// shows returns a condition that holds if the file has exactly this text.
func shows(path, text string) func() bool {
	return func() bool {
		data, err := os.ReadFile(path)
		return err == nil && string(data) == text
	}
}

// TestFileLivesWithItsDaemon verifies that the file exists from the start, follows its daemon's
// metrics, is readable for other users, and is removed with the daemon.
func TestFileLivesWithItsDaemon(t *testing.T) {
	dir := t.TempDir()
	source := tells("down\n")
	path := filepath.Join(dir, "bringupd-17.0-3.prom")
	f := StartFile(path, source.source, func(err error) { t.Error(err) })
	until(t, path, shows(path, "down\n"))
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 || f.Path() != path {
		t.Errorf("%s: %v, %v", f.Path(), info, err)
	}
	up := "up\n"
	source.now.Store(&up)
	f.RequestWrite()
	until(t, "the change", shows(path, up))
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("this is left: %v", left)
	}
}

// TestFileThatCannotBeWritten verifies that an unwritable directory is logged once, and is used as
// soon as it is writable.
func TestFileThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "late")
	source := tells("up\n")
	said := make(chan error, 10)
	f := StartFile(filepath.Join(dir, "a.prom"), source.source, func(err error) { said <- err })
	first := <-said
	if !strings.HasPrefix(first.Error(), "cannot write the metrics: ") || !strings.Contains(first.Error(), dir) {
		t.Error(first)
	}
	f.RequestWrite()
	until(t, "the nudge taken", func() bool { return len(f.writeRequested) == 0 })
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f.RequestWrite()
	until(t, "the file", shows(f.Path(), "up\n"))
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(said) > 0 {
		t.Errorf("it is told again: %v", <-said)
	}
}

// hanging is a source that does not answer, like a file system that hangs.
type hanging struct{ end chan struct{} }

func (s *hanging) source() []byte {
	<-s.end
	return nil
}

func TestFileThatHangsIsLeftBehind(t *testing.T) {
	source := &hanging{end: make(chan struct{})}
	f := StartFile(filepath.Join(t.TempDir(), "a.prom"), source.source, func(error) {})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no more time"))
	if err := f.Close(ctx); err == nil || !strings.Contains(err.Error(), "no more time") {
		t.Errorf("got %v", err)
	}
	close(source.end)
	<-f.ended
}
