package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// buffer is a log or pass-through that keeps its data. If hold is set, it accepts no data until
// hold is closed.
type buffer struct {
	hold chan struct{}

	mu   sync.Mutex
	all  bytes.Buffer
	torn bool // a Write ended within a line
}

func (b *buffer) Write(p []byte) (int, error) {
	if b.hold != nil {
		<-b.hold
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.torn = b.torn || !bytes.HasSuffix(p, []byte("\n"))
	return b.all.Write(p)
}

func (b *buffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

func TestOutputThroughAFile(t *testing.T) {
	s := newSupervisor(t)
	for _, nonblocking := range []bool{false, true} {
		t.Run(fmt.Sprintf("non-blocking %v", nonblocking), func(t *testing.T) {
			var ends [2]int
			if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			from, to := os.NewFile(uintptr(ends[0]), "from"), os.NewFile(uintptr(ends[1]), "to")
			defer from.Close()
			// This happens after NewFile, as another process would do it.
			if err := unix.SetNonblock(ends[1], nonblocking); err != nil {
				t.Fatal(err)
			}
			const size = 1 << 20
			spec := helper("blob", strconv.Itoa(size))
			spec.Stdout = to
			c := start(t, s, spec)
			go func() {
				<-c.Done()
				to.Close()
			}()
			// The pipe is full, and a write has failed because of it, before any data is read.
			until(t, "full pipe", func() (bool, any) {
				n, err := unix.IoctlGetInt(int(from.Fd()), unix.TIOCINQ)
				return n == 64<<10, []any{n, err}
			})
			time.Sleep(50 * time.Millisecond)
			var got bytes.Buffer
			if _, err := got.ReadFrom(from); err != nil || !bytes.Equal(got.Bytes(), blob(0, size)) {
				t.Errorf("%d bytes, not those that were written (%d); %v", got.Len(), size, err)
			}
		})
	}
}

// TestOutputPassesAtOnce verifies that output is passed through at once, without waiting for the
// end of a line.
func TestOutputPassesAtOnce(t *testing.T) {
	s := newSupervisor(t)
	stdout := &buffer{}
	spec := shell("printf 'password: '; exec sleep " + nap(t))
	spec.Stdout = stdout
	c := start(t, s, spec)
	until(t, "prompt", func() (bool, any) { return stdout.text() == "password: ", stdout.text() })
	until(t, "prompt among the last lines", func() (bool, any) {
		return slices.Equal(c.LastLines(), []string{"password: "}), c.LastLines()
	})
	c.Stop(t.Context(), 0, unix.SIGKILL)
}

// TestOutputThatNobodyReads verifies that a child whose output is no longer read ends as it would
// without the daemon: by SIGPIPE.
func TestOutputThatNobodyReads(t *testing.T) {
	s := newSupervisor(t)
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from.Close()
	defer to.Close()
	spec := shell("while :; do echo x; done")
	spec.Stdout = to
	if exit := finished(t, start(t, s, spec)); exit.Signal != unix.SIGPIPE || !errors.Is(exit.Err, unix.EPIPE) {
		t.Errorf("%v (%#v), want SIGPIPE", exit, exit)
	}
}

// TestOutputAtTheEnd verifies that a child whose run is being ended outlives the reader of its
// output, and that its output is still logged.
func TestOutputAtTheEnd(t *testing.T) {
	s := newSupervisor(t)
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from.Close()
	defer to.Close()
	var log buffer
	ending := make(chan struct{})
	spec := shell("for i in 1 2 3; do echo $i; sleep 0.05; done; exit 42")
	spec.Stdout, spec.Log, spec.Ending = to, &log, ending
	c := start(t, s, spec)
	time.AfterFunc(100*time.Millisecond, func() { close(ending) })
	if exit := finished(t, c); exit.Code != 42 || log.text() != "1\n2\n3\n" {
		t.Errorf("it ended with %v, and the log has %q", exit, log.text())
	}
}

func TestLastLines(t *testing.T) {
	s := newSupervisor(t)
	long := strings.Repeat("x", maxTailLine)
	for _, tc := range []struct {
		name   string
		script string
		keep   int
		want   []string
	}{
		{"none", "exit 1", 0, nil},
		{"in order", "echo 1; echo 2; echo 3", 0, []string{"1", "2", "3"}},
		{"the last ones", "seq 100", 3, []string{"98", "99", "100"}},
		{"as many as there are by default", "seq 21", 0,
			strings.Fields("2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21")},
		{"none wanted", "seq 21", -1, nil},
		{"without an end", "printf '1\\n2'", 0, []string{"1", "2"}},
		{"without an end, in place of the oldest", "printf '1\\n2\\n3'", 2, []string{"2", "3"}},
		{"an empty line", "echo; echo 2", 0, []string{"", "2"}},
		{"a progress bar", "printf 'a\\r10%%\\r20%%\\r\\nend\\r\\n'", 0, []string{"20%", "end"}},
		{"a long line", "printf '%01025d\\n' 0 | tr 0 x", 0, []string{long + "…"}},
		{"a line as long as is kept", "printf '%01024d\\n' 0 | tr 0 x", 0, []string{long}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := shell(tc.script)
			spec.KeepLines = tc.keep
			c := start(t, s, spec)
			finished(t, c)
			if got := c.LastLines(); !slices.Equal(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestRecentLines verifies that the lines of each stream are kept apart, up to a maximum.
func TestRecentLines(t *testing.T) {
	c := start(t, newSupervisor(t), shell("seq 300; seq 500 502 >&2; printf 503 >&2"))
	finished(t, c)
	out, err := c.RecentLines()
	if want := strings.Fields("500 501 502 503"); !slices.Equal(err, want) {
		t.Errorf("standard error has %q, want %q", err, want)
	}
	if len(out) != maxRecentLines || out[0] != "101" || out[maxRecentLines-1] != "300" {
		t.Errorf("standard output has %d lines, %q", len(out), out)
	}
}

func TestAppendShownCutsBetweenCharacters(t *testing.T) {
	line := strings.Repeat("x", maxTailLine-1) + "é"
	if got := string(appendVisible(nil, []byte(line))); got != strings.Repeat("x", maxTailLine-1)+"…" {
		t.Errorf("ends in %q", got[len(got)-8:])
	}
}

func TestLogKeepsLongLines(t *testing.T) {
	s := newSupervisor(t)
	for _, size := range []int{maxLineLength, maxLineLength + 1, 2*maxLineLength + 7, 10 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			log := &buffer{}
			spec := shell(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo; echo end", size))
			spec.Log = log
			finished(t, start(t, s, spec))
			got := log.text()
			if log.torn {
				t.Error("a Write was not of whole lines")
			}
			pieces := (size + maxLineLength - 1) / maxLineLength
			if strings.Count(got, "\n") != pieces+1 ||
				strings.ReplaceAll(got, continuedMark+"\n", "") != strings.Repeat("x", size)+"\nend\n" {
				t.Errorf("the log has %d bytes in %d lines, want %d bytes", len(got), strings.Count(got, "\n"), size+5)
			}
		})
	}
}

// TestGrandchildHoldsBackNoEnd verifies that a child's end is reported at once, even if another
// process keeps its output open, and that later output is passed on nevertheless.
func TestGrandchildHoldsBackNoEnd(t *testing.T) {
	s := newSupervisor(t)
	s.timeouts.outputDrain = 2 * ceiling
	arg := nap(t)
	later := t.TempDir() + "/later"
	stdout := &buffer{}
	spec := shell(fmt.Sprintf("(until [ -e %s ]; do sleep 0.01; done; echo later; exec sleep "+
		"%s) & echo last words; exit 3", later, arg))
	spec.Stdout = stdout
	c := start(t, s, spec)
	if !ctxutil.AwaitDoneFor(c.Ended(), ceiling) {
		t.Fatalf("it has not ended after %v", ceiling)
	}
	if exit, lines := c.Exit(), c.LastLines(); exit.Code != 3 || exit.Requested ||
		!slices.Equal(lines, []string{"last words"}) {
		t.Errorf("%#v, last lines %q; want code 3 and its last words", exit, lines)
	}
	if ctxutil.AwaitDoneFor(c.Done(), 0) {
		t.Error("it is done, though its output is open")
	}
	if err := os.WriteFile(later, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	until(t, "what came later", func() (bool, any) { return stdout.text() == "last words\nlater\n", stdout.text() })
	if exit := c.Stop(t.Context(), 0, unix.SIGKILL); exit.Code != 3 || exit.Requested || exit.Err != nil {
		t.Errorf("%#v, want code 3, not asked", exit)
	}
}

// TestLastLinesAfterTheEnd verifies that text printed before a child's end is among its last lines
// even if its output was read slowly; output that is not read blocks nothing.
func TestLastLinesAfterTheEnd(t *testing.T) {
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprintf("taken %v", taken), func(t *testing.T) {
			s := newSupervisor(t)
			if !taken {
				s.timeouts.outputDrain = 10 * time.Millisecond
			}
			stdout := &buffer{hold: make(chan struct{})}
			release := sync.OnceFunc(func() { close(stdout.hold) })
			t.Cleanup(release)
			stdin, word, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			defer word.Close()
			arg := nap(t)
			spec := shell(fmt.Sprintf("sleep %s & echo first; read word; echo last words; exit 3", arg))
			spec.Stdin, spec.Stdout = stdin, stdout
			c := start(t, s, spec)
			until(t, "first line, that is not taken",
				func() (bool, any) { return len(c.LastLines()) == 1, c.LastLines() })
			fmt.Fprintln(word)
			if !ctxutil.AwaitDoneFor(c.Ended(), ceiling) {
				t.Fatalf("it has not ended after %v", ceiling)
			}
			if taken {
				release()
			}
			lines := c.LastLines()
			if has := slices.Contains(lines, "last words"); has != taken {
				t.Errorf("%q, want the last words: %v", lines, taken)
			}
			release()
			c.Stop(t.Context(), 0, unix.SIGKILL)
		})
	}
}

// TestGrandchildMayPrintAfterDone verifies that a process that a child leaves behind is not killed
// by a closed pipe when its output is no longer read.
func TestGrandchildMayPrintAfterDone(t *testing.T) {
	s := newSupervisor(t)
	s.timeouts.outputDrain = 10 * time.Millisecond
	arg := nap(t)
	file := t.TempDir() + "/printed"
	c := start(t, s, shell(fmt.Sprintf("(until [ -e %[1]s.go ]; do sleep 0.01; done; echo x && "+
		"echo y && echo ok >%[1]s; exec sleep %[2]s) & exit 3", file, arg)))
	finished(t, c)
	if err := os.WriteFile(file+".go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	sleepers(t, arg, 1)
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if exit := c.Stop(t.Context(), 0, unix.SIGKILL); exit.Err != nil {
		t.Error(exit.Err)
	}
}

// TestGrandchildPrintsOn verifies that a grandchild that continues to print does not prevent the
// child from being done.
func TestGrandchildPrintsOn(t *testing.T) {
	takesSeconds(t)
	s := newSupervisor(t)
	c := start(t, s, shell("yes & exit 3"))
	if exit := finished(t, c); exit.Code != 3 {
		t.Errorf("%#v", exit)
	}
	c.Stop(t.Context(), 0, unix.SIGKILL)
}

// TestSlowTakerGetsAll verifies that all output that a child printed before its end is passed
// through, although this process's own output was blocked at that time.
func TestSlowTakerGetsAll(t *testing.T) {
	s := newSupervisor(t)
	s.timeouts.outputDrain = 10 * time.Millisecond
	stdout := &buffer{hold: make(chan struct{})}
	const size = 100 << 10 // more than one read takes, less than reader and pipe hold
	spec := helper("blob", strconv.Itoa(size))
	spec.Stdout = stdout
	c := start(t, s, spec)
	<-c.reaped
	time.Sleep(200 * time.Millisecond)
	close(stdout.hold)
	if exit := finished(t, c); exit.Err != nil || !bytes.Equal(stdout.all.Bytes(), blob(0, size)) {
		t.Errorf("%#v; %d bytes, not those that were written (%d)", exit, stdout.all.Len(), size)
	}
}

func TestTakerThatHangsForEver(t *testing.T) {
	takesSeconds(t)
	s := newSupervisor(t)
	s.timeouts.outputStall = 50 * time.Millisecond
	stdout := &buffer{hold: make(chan struct{})}
	t.Cleanup(func() { close(stdout.hold) })
	spec := shell("echo x; exit 4")
	spec.Stdout = stdout
	if exit := finished(t, start(t, s, spec)); exit.Code != 4 || exit.Err == nil {
		t.Errorf("%#v, want code 4 and an error that tells of the output", exit)
	}
}
