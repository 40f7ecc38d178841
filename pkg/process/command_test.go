package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCommand(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("no shell\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		cmd  Command
		out  string
		want string // of the error; empty: none
		is   error
		exit int
	}{
		{name: "well", cmd: Command{Argv: sh("echo out; echo err >&2")}, out: "out\nerr\n"},
		{name: "more than is kept", cmd: Command{Argv: sh("printf '%0150d' 0")}, out: strings.Repeat("0", 100)},
		{name: "an exit code", cmd: Command{Argv: sh("echo out; exit 3")}, out: "out\n",
			want: "exit status 3", exit: 3},
		{name: "a signal", cmd: Command{Argv: sh("kill -USR1 $$")},
			want: "signal: user defined signal 1", exit: 128 + int(unix.SIGUSR1)},
		{name: "its own environment", cmd: Command{Argv: []string{"/bin/sh", "-c", "echo $X"},
			Env: []string{"X=y"}}, out: "y\n"},
		{name: "no input", cmd: Command{Argv: []string{"cat"}}},
		{name: "no command", want: "the command is empty"},
		{name: "no such program", cmd: Command{Argv: []string{"no-such-program"}},
			want: "not found in PATH", is: ErrNotFound},
		{name: "no such PATH", cmd: Command{Argv: []string{"sh"}, Env: []string{"PATH=/nowhere"}},
			want: "not found in PATH", is: ErrNotFound},
		{name: "no program", cmd: Command{Argv: []string{script}}, want: `has no "#!" line`, is: ErrNotExecutable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			said := &HeadBuffer{MaxBytes: 100}
			tc.cmd.Stdout, tc.cmd.Stderr = said, said
			err := tc.cmd.Run(t.Context())
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("error %v is no %v", err, tc.is)
			}
			exit, ok := errors.AsType[*exec.ExitError](err)
			if ok != (tc.exit != 0) || ok && ExitFromState(exit.ProcessState).ShellStatus() != tc.exit {
				t.Errorf("error %v, want exit %d", err, tc.exit)
			}
			if said.String() != tc.out {
				t.Errorf("it said %q, want %q", said, tc.out)
			}
		})
	}
}

// TestCommandEndsItsGroup verifies that a command that exceeds its time limit is ended with its
// whole group, as are processes that a command leaves behind; a process outside the group that
// keeps the output open is not waited for.
func TestCommandEndsItsGroup(t *testing.T) {
	errLate := errors.New("too late")
	for _, tc := range []struct {
		name, script string
		limit        time.Duration
		want         error
		left         bool // processes in another group stay
	}{
		{"in time", "sleep 1000 & echo $!", time.Minute, nil, false},
		{"too late", "sleep 1000 & echo $!; wait", time.Second, errLate, false},
		{"not deaf to KILL", "trap '' TERM; sleep 1000 & echo $!; wait", time.Second, errLate, false},
		{"another group", "setsid sleep 1000 & sleep 0.2; echo $!", time.Minute, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), tc.limit, errLate)
			defer cancel()
			said := &HeadBuffer{MaxBytes: 100}
			began := time.Now()
			if err := (Command{Argv: sh(tc.script), Stdout: said}).Run(ctx); err != tc.want {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if took := time.Since(began); took > tc.limit+ceiling {
				t.Errorf("it took %s", took)
			}
			pid, _ := strconv.Atoi(strings.TrimSpace(said.String()))
			if pid == 0 {
				t.Fatalf("it said %q", said)
			}
			defer func() { _ = unix.Kill(pid, unix.SIGKILL) }()
			for deadline := time.Now().Add(ceiling); !tc.left && isThere(pid); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("what it started is there")
				}
			}
		})
	}
}

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func isThere(pid int) bool {
	stat, err := readStat(pid)
	return err == nil && !stat.dead
}
