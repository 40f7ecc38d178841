package stackdump

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"
)

// script creates a script in place of a program.
func script(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// named creates a program that sleeps, under another name.
func named(t *testing.T, dir, name string) string {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestGather uses scripts in place of debuggers: it checks their output and the handling of those
// that fail, hang, or leave the process stopped.
func TestGather(t *testing.T) {
	const python = `[{"thread_name": "MainThread", "os_thread_id": 1,
"frames": [{"name": "load", "filename": "/t.py", "line": 3}]}]`
	const ofProcess = `while [ "$1" != -p ]; do shift; done; ` // $2 is the number of the process
	loads := []Frame{{Func: "load", File: "/t.py", Line: 3}}
	for _, tc := range []struct {
		name            string
		program         string // the name of the process
		debugger, plays string
		state           string
		want            []Frame // nil: none
		problem         string
	}{
		{"Python", "python3.11", "py-spy", "echo '" + python + "'", "S", loads, ""},
		{"Python, which runs", "python3.11", "py-spy",
			`case "$*" in *nonblocking*) exit 1;; esac; echo '` + python + "'", "S", loads, ""},
		{"Python without py-spy", "python3.11", "none", "", "S", nil, "py-spy is not installed here"},
		{"py-spy may not", "python3.11", "py-spy", "echo Permission denied >&2; exit 1", "S", nil,
			"with py-spy: exit status 1: Permission denied"},
		{"py-spy hangs", "python3.11", "py-spy", "sleep 3600", "S", nil, "it took longer than"},
		{"py-spy prints something else", "python3.11", "py-spy", "echo no", "S", nil, "invalid"},
		{"a program in C", "app", "gdb", ofProcess + `echo "Thread 1 (LWP $2):"; echo '#0  take (from=3) at app.c:5'`,
			"S", framesOf("take app.c:5"), ""},
		{"no gdb", "app", "none", "", "S", nil, "gdb is not installed here"},
		{"gdb is killed, and leaves it stopped", "app", "gdb", ofProcess + "kill -STOP $2; sleep 3600", "S", nil,
			"it took longer than"},
		{"no debugger gets at it", "app", "gdb", "exit 7", "D", nil,
			"a debugger cannot attach to a process in this state"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			script(t, dir, tc.debugger, tc.plays)
			pid := begin(t, named(t, dir, tc.program), "3600")
			untilRuns(t, pid, tc.program)
			g := newStackReader(t.Context())
			defer g.cancel()
			g.searchPath, g.timeout = dir+":/bin", 500*time.Millisecond
			if tc.debugger == "none" {
				g.searchPath = dir
			}
			got := g.readStack(Process{PID: pid, State: tc.state})
			if !strings.Contains(got.Problem, tc.problem) || cmp.Diff(tc.want, got.Frames) != "" {
				t.Errorf("it is %+v", got)
			}
			if now := procRoot("/proc").inspectProcess(t.Context(), pid, nil); now.State == stateStopped {
				t.Errorf("the process is left as %+v", now)
			}
		})
	}
}

// untilRuns waits until a process has executed the program.
func untilRuns(t *testing.T, pid int, program string) {
	t.Helper()
	for deadline := time.Now().Add(ceiling); ; time.Sleep(time.Millisecond) {
		exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
		now := procRoot("/proc").inspectProcess(t.Context(), pid, nil)
		if err == nil && filepath.Base(exe) == program && now.State == "S" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is %s, %v", pid, exe, err)
		}
	}
}

// TestGatherStopped verifies that a stopped process stays stopped after its stack was read.
func TestGatherStopped(t *testing.T) {
	dir := t.TempDir()
	script(t, dir, "gdb", "exit 1")
	pid := begin(t, named(t, dir, "app"), "3600")
	untilRuns(t, pid, "app")
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	g := newStackReader(t.Context())
	defer g.cancel()
	g.searchPath = dir
	g.readStack(Process{PID: pid, State: stateStopped})
	for deadline := time.Now().Add(ceiling); ; time.Sleep(time.Millisecond) {
		if now := procRoot("/proc").inspectProcess(t.Context(), pid, nil); now.State == stateStopped {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it was continued")
		}
	}
}
