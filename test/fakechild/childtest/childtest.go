// Package childtest contains the tests that every implementation of a daemon's children must pass:
// processes, and the goroutines of package fakechild.
package childtest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/process"
)

// Buffer is a bytes.Buffer that is safe for concurrent use.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(data)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

const patience = 30 * time.Second

// waits is the end of a shell command line that reports that it is ready, and runs until a signal
// ends it.
const waits = "touch $READY; while :; do sleep 0.01; done"

// unasked reports whether an exit has that code and was not requested.
func unasked(exit process.Exit, code int) bool {
	return exit.Code == code && !exit.Requested && exit.Err == nil
}

// Contract runs the tests. The function in runs each test with a new Starter, which the test
// closes.
func Contract(t *testing.T, in func(t *testing.T, test func(t *testing.T, s process.Starter))) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T, s process.Starter)
	}{
		{"an exit", testExit},
		{"what it prints", testOutput},
		{"a start that fails", testNoStart},
		{"a signal of its own", testKilled},
		{"a signal that it is sent", testSignal},
		{"a stop that it obeys", testStop},
		{"a stop that it ignores", testDeaf},
		{"output that others hold open", testFamily},
		{"a stop of what it has left behind", testStopFamily},
		{"a close", testClose},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in(t, func(t *testing.T, s process.Starter) {
				tc.test(t, s)
				if err := s.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// spec returns the Spec of a child that runs a shell command line.
func spec(line string) process.Spec {
	env := append(os.Environ(), "OF_CHILD=1")
	return process.Spec{Name: "child", Argv: []string{"/bin/sh", "-c", line}, Env: env}
}

func start(
	t *testing.T, s process.Starter, line string, change ...func(*process.Spec),
) process.Handle {
	t.Helper()
	spec := spec(line)
	for _, do := range change {
		do(&spec)
	}
	child, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return child
}

func await(t *testing.T, what string, closed <-chan struct{}) {
	t.Helper()
	if !ctxutil.AwaitDoneFor(closed, patience) {
		t.Fatalf("it is not %s", what)
	}
}

// ready starts a child and waits until it has created the file $READY.
func ready(t *testing.T, s process.Starter, line string) process.Handle {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ready")
	child := start(t, s, line, func(spec *process.Spec) {
		spec.Env = append(spec.Env, "READY="+path)
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return child
		}
		if time.Now().After(deadline) {
			t.Fatal("it is not ready")
		}
	}
}

func testExit(t *testing.T, s process.Starter) {
	child := start(t, s, "exit 7")
	await(t, "done", child.Done())
	await(t, "ended", child.Ended())
	if exit := child.Exit(); exit.Signal != 0 || exit.ShellStatus() != 7 || !unasked(exit, 7) {
		t.Errorf("it exits with %+v", exit)
	}
	if child.Name() != "child" || child.PID() <= 1 || child.OwnsProcess(child.PID()) {
		t.Errorf("its name is %q, and its process %d", child.Name(), child.PID())
	}
	if err := child.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal to it returns %v", err)
	}
	if exit := child.Stop(t.Context(), time.Second, syscall.SIGTERM); !unasked(exit, 7) {
		t.Errorf("a stop of it returns %+v", exit)
	}
}

func testOutput(t *testing.T, s process.Starter) {
	var out, errs, log Buffer
	child := start(t, s, "echo $OF_CHILD one; echo two >&2; printf end", func(spec *process.Spec) {
		spec.Stdout, spec.Stderr, spec.Log, spec.KeepLines = &out, &errs, &log, 2
	})
	await(t, "done", child.Done())
	if out.String() != "1 one\nend" || errs.String() != "two\n" {
		t.Errorf("standard output is %q, standard error %q", out.String(), errs.String())
	}
	got := slices.Sorted(strings.Lines(log.String()))
	if want := []string{"1 one\n", "end\n", "two\n"}; !slices.Equal(got, want) {
		t.Errorf("the log is %q", log.String())
	}
	if lines := child.LastLines(); len(lines) != 2 {
		t.Errorf("the last lines are %q", lines)
	}
	if bytes, _ := child.OutputStats(); bytes != int64(len("1 one\nendtwo\n")) {
		t.Errorf("it has printed %d bytes", bytes)
	}
}

func testNoStart(t *testing.T, s process.Starter) {
	for name, argv := range map[string][]string{"no command": nil, "an empty one": {""}} {
		child, err := s.Start(t.Context(), process.Spec{Name: "child", Argv: argv})
		if err == nil || child != nil {
			t.Errorf("%s is started: %v", name, err)
		}
	}
	missing := process.Spec{Name: "child", Argv: []string{"/nonexistent/program"}}
	child, err := s.Start(t.Context(), missing)
	if !errors.Is(err, process.ErrNotFound) || child != nil ||
		!strings.HasPrefix(err.Error(), "cannot start child: ") {
		t.Errorf("the error is %v", err)
	}
	directory := process.Spec{Name: "child", Argv: []string{t.TempDir()}}
	child, err = s.Start(t.Context(), directory)
	if !errors.Is(err, process.ErrNotExecutable) || child != nil {
		t.Errorf("the error is %v", err)
	}
}

func testKilled(t *testing.T, s process.Starter) {
	child := start(t, s, "echo last; kill -KILL $$; echo never")
	await(t, "done", child.Done())
	exit := child.Exit()
	if exit.Signal != syscall.SIGKILL || exit.ShellStatus() != 137 || !unasked(exit, -1) {
		t.Errorf("it exits with %+v", exit)
	}
	if lines := child.LastLines(); !slices.Equal(lines, []string{"last"}) {
		t.Errorf("its last lines are %q", lines)
	}
}

func testSignal(t *testing.T, s process.Starter) {
	for _, tc := range []struct {
		line   string
		sig    syscall.Signal
		status int
		asked  bool
	}{
		{"touch $READY; exec sleep 300", syscall.SIGTERM, 143, true},
		{"touch $READY; exec sleep 300", syscall.SIGUSR1, 128 + int(syscall.SIGUSR1), true},
		{"trap 'exit 6' USR1; " + waits, syscall.SIGUSR1, 6, false},
		{"trap 'exit 0' TERM; " + waits, syscall.SIGTERM, 0, true},
	} {
		child := ready(t, s, tc.line)
		if !child.OwnsProcess(child.PID()) {
			t.Errorf("%s: its own process is none of its family", tc.line)
		}
		if err := child.Signal(tc.sig); err != nil {
			t.Fatal(err)
		}
		await(t, "done", child.Done())
		if exit := child.Exit(); exit.ShellStatus() != tc.status || exit.Requested != tc.asked {
			t.Errorf("%s: it exits with %+v", tc.line, exit)
		}
	}
}

func testStop(t *testing.T, s process.Starter) {
	child := ready(t, s, "trap 'sleep 0.2; echo saved; exit 3' TERM; "+waits)
	exit := child.Stop(t.Context(), patience, syscall.SIGTERM)
	lines := child.LastLines()
	if exit.Code != 3 || !exit.Requested || exit.Err != nil || !slices.Contains(lines, "saved") {
		t.Errorf("it exits with %+v, and has said %q", exit, lines)
	}
}

func testDeaf(t *testing.T, s process.Starter) {
	child := ready(t, s, "trap '' TERM; "+waits)
	began := time.Now()
	exit := child.Stop(t.Context(), 300*time.Millisecond, syscall.SIGTERM)
	took := time.Since(began)
	killed := exit.Signal == syscall.SIGKILL && exit.Requested && exit.Err == nil
	if !killed || took < 300*time.Millisecond {
		t.Errorf("it exits with %+v after %v", exit, took)
	}
	hurried := ready(t, s, "trap '' TERM; "+waits)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began = time.Now()
	exit = hurried.Stop(ctx, time.Hour, syscall.SIGTERM)
	if exit.Signal != syscall.SIGKILL || time.Since(began) > patience {
		t.Errorf("in a hurry it exits with %+v", exit)
	}
}

func testFamily(t *testing.T, s process.Starter) {
	var out Buffer
	child := start(t, s, "(sleep 0.2; echo late) & echo early; exit 4", func(spec *process.Spec) {
		spec.Stdout = &out
	})
	await(t, "ended", child.Ended())
	if exit := child.Exit(); exit.Code != 4 {
		t.Errorf("it exits with %+v", exit)
	}
	await(t, "done", child.Done())
	if out.String() != "early\nlate\n" {
		t.Errorf("standard output is %q", out.String())
	}
	began := time.Now()
	child = start(t, s, "sleep 300 & exit 4")
	await(t, "done", child.Done())
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("output that others hold open is waited for %v", took)
	}
	if exit := child.Stop(t.Context(), patience, syscall.SIGTERM); !unasked(exit, 4) {
		t.Errorf("it exits with %+v", exit)
	}
}

func testStopFamily(t *testing.T, s process.Starter) {
	child := start(t, s, "sleep 300 & exit 4")
	await(t, "ended", child.Ended())
	began := time.Now()
	exit := child.Stop(t.Context(), patience, syscall.SIGTERM)
	if !unasked(exit, 4) || time.Since(began) > patience/2 {
		t.Errorf("it exits with %+v after %v", exit, time.Since(began))
	}
}

func testClose(t *testing.T, s process.Starter) {
	child := ready(t, s, "trap '' TERM; "+waits)
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if exit := child.Exit(); exit.Signal != syscall.SIGKILL {
		t.Errorf("it exits with %+v", exit)
	}
	if child, err := s.Start(t.Context(), spec("exit 0")); err == nil || child != nil {
		t.Error("a child is started after the close")
	}
}
