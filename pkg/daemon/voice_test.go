package daemon

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// unreadTime is what a job may take to end that nobody listens to: its driver
// takes 0.7 s, the taker of its output 10 s, and each daemon lastTime; the rest is
// for a busy machine, as in toldTime, in which all know of the end.
const (
	unreadTime = 25 * time.Second
	toldTime   = 8 * time.Second
)

// TestNobodyReadsStandardError tells a job to end whose daemons' standard error
// is a pipe that is full and stays so: the driver is told, the abort is
// published, everybody ends in time, and the daemon's log has what was not read.
func TestNobodyReadsStandardError(t *testing.T) {
	takesSeconds(t)
	t.Parallel()
	marks := t.TempDir()
	j := newJob(t, 2, saving(marks, "0")).patient()
	_, stderr := unread(t)
	head, worker := j.launch(0, stderr), j.launch(1, stderr)
	j.untilFile(filepath.Join(marks, "running"))
	began := time.Now()
	head.signal(syscall.SIGTERM)
	j.untilFile(filepath.Join(marks, "saved"))
	t.Logf("the driver had saved its work %s after TERM", time.Since(began))
	j.untilNamed(signal.Control, signal.AbortName(0, 2))
	if took := time.Since(began); took > toldTime {
		t.Errorf("it took %s to publish the abort", took)
	}
	head.wait()
	worker.wait()
	if took := time.Since(began); took > unreadTime {
		t.Errorf("they took %s to end", took)
	}
	j.expect(143, 143)
	j.blames(0, string(health.Terminated), 143)
	log := j.log(0)
	for _, want := range []string{`"last_words":["bringupd: the job was ended with code 143`, `nobody has read standard error to its end`} {
		if !strings.Contains(log, want) {
			t.Errorf("the head's own log lacks %q: %s", want, log)
		}
	}
}

// log is a daemon's own log.
func (j *job) log(rank int) string {
	j.t.Helper()
	data, err := os.ReadFile(filepath.Join(j.run(), signal.Logs, signal.LogName("daemon", rank, j.size)))
	if err != nil {
		j.t.Error(err)
	}
	return string(data)
}

// TestNobodyReadsARefusal has a daemon that can't join end all the same.
func TestNobodyReadsARefusal(t *testing.T) {
	takesSeconds(t)
	t.Parallel()
	j := newJob(t, 2, "").all(func(c *Config) { c.Times.Join = time.Second })
	_, stderr := unread(t)
	began := time.Now()
	j.launch(1, stderr).wait()
	if took := time.Since(began); took > unreadTime {
		t.Errorf("it took %s to end", took)
	}
	j.expect(-1, 66)

	began = time.Now()
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		Refuse(stderr, false, errors.New("no"), 64)
	}()
	select {
	case <-refused:
	case <-time.After(unreadTime):
		t.Errorf("a refusal waits for its reader for %s", time.Since(began))
	}
}

// TestNobodyReadsASandbox has the daemon of a sandbox heed TERM.
func TestNobodyReadsASandbox(t *testing.T) {
	takesSeconds(t)
	t.Parallel()
	j := newJob(t, 1, "").all(func(c *Config) { c.Times.Join = time.Second })
	j.roles[0] = roles.Sandbox
	_, stderr := unread(t)
	j.launch(0, stderr).wait()
	j.expect(66)
}

// TestLateReader has a reader come back: it gets every line in order, and is
// told how many were too many to keep.
func TestLateReader(t *testing.T) {
	from, to := unread(t)
	v := newVoice(to, false)
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
	v.patience = ceiling
	v.wait()
	if unread := v.close(); unread != 0 {
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
	from, to := unread(t)
	_ = from.Close()
	v := newVoice(to, true)
	_, _ = v.Write(bytes.Repeat([]byte("a line\n"), 3))
	began := time.Now()
	v.patience = ceiling
	if unread := v.close(); unread != 3 {
		t.Errorf("%d lines are said to be unread", unread)
	}
	if took := time.Since(began); took > ceiling/2 {
		t.Errorf("it waited %s for a reader who is gone", took)
	}
}
