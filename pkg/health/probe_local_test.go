package health

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTryExec(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "a probe")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit $1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, probe, says string }{
		{"exit 0", "exec:true", ""},
		{"exit 1", "exec:false", "false: exit status 1"},
		{"arguments", "exec:test 'a b' = \"a b\"", ""},
		{"path with a blank", "exec:'" + script + "' 0", ""},
		{"its code", "exec:'" + script + "' 3", "exit status 3"},
		{"output", "exec:sh -c 'echo out; echo err >&2; exit 4'", "exit status 4, after saying: out err"},
		{"a lot of output", "exec:sh -c 'yes | head -c 10000000; exit 5'", "exit status 5, after saying: y y y"},
		{"signal", "exec:kill -9 $$", "signal: killed"},
		{"variable", "exec:test -n \"$PATH\" && exit 6", "exit status 6"},
		{"no such command", "exec:no-such-command", "exit status 127"},
		{"standard input is empty", "exec:sh -c '! read line'", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := parse(t, tc.probe).Try(t.Context())
			mustSee(t, err, tc.says)
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestTryExecLeavesNothing verifies that all processes that a command has started in its group end
// with the probe.
func TestTryExecLeavesNothing(t *testing.T) {
	noLeaks(t)
	for _, tc := range []struct{ name, script, says string }{
		{"at the deadline", `sleep 1000 & echo $! > "$1"; wait`, "killed: it did not end in time"},
		{"deaf to TERM", `trap "" TERM INT HUP; sleep 1000 & echo $! > "$1"; while :; do sleep 1; done`, "killed"},
		{"left in the background", `sleep 1000 & echo $! > "$1"`, ""},
		{"after a failure", `sleep 1000 & echo $! > "$1"; exit 2`, "exit status 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pidFile := filepath.Join(t.TempDir(), "pid")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			probe := parse(t, "exec:sh -c '"+strings.ReplaceAll(tc.script, "'", `'\''`)+"' sh "+pidFile)
			go func() { result <- probe.Try(ctx) }()
			pid := readPID(t, pidFile)
			if strings.HasPrefix(tc.says, "killed") {
				cancel()
			}
			mustSee(t, <-result, tc.says)
			waitGone(t, pid)
		})
	}
}

func readPID(t *testing.T, path string) int {
	t.Helper()
	var text []byte
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		text, _ = os.ReadFile(path)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil &&
			strings.HasSuffix(string(text), "\n") {
			return pid
		}
	}
	t.Fatalf("no pid in %s, but %q", path, text)
	return 0
}

// waitGone waits until a process has ended. An orphan may stay a zombie if no process reaps it
// here.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	var stat []byte
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if syscall.Kill(pid, 0) == syscall.ESRCH {
			return
		}
		stat, _ = os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if _, after, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(after, "Z") {
			return
		}
	}
	t.Errorf("process %d lives on: %s", pid, stat)
}

// TestProbeWithEnv verifies that the command of a probe has an environment, and that no error shows a
// secret that it has printed, also not a part of one where the excerpt ends.
func TestProbeWithEnv(t *testing.T) {
	noLeaks(t)
	const secret = "0123456789-abcdefghij-0123456789"
	for _, before := range []string{"", strings.Repeat("x", maxExcerptBytes-20)} {
		env := []string{"PATH=" + os.Getenv("PATH"), "OWN_KEY=" + secret}
		probe := parse(t, `exec:sh -c 'echo '`+before+`'$OWN_KEY; exit 1'`).WithEnv(env, []string{secret})
		err := probe.Try(t.Context())
		mustSee(t, err, before+"…")
		if strings.Contains(err.Error(), secret[:8]) {
			t.Errorf("it says %q", err)
		}
	}
}

func TestTryFile(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	plain, pipe, link := filepath.Join(dir, "plain"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(plain, link); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, probe, says string }{
		{"file", "file:" + plain, ""},
		{"URL", "file://" + plain, ""},
		{"directory", "file:" + dir, ""},
		{"link", "file:" + link, ""},
		{"missing", "file:" + plain + "2", plain + "2 does not exist"},
		{"pipe", "file:" + pipe, "neither a file nor a directory"},
		{"below a file", "file:" + plain + "/x", "cannot look at"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mustSee(t, parse(t, tc.probe).Try(t.Context()), tc.says)
		})
	}
}

// TestOneAtATime verifies that an attempt that blocks in the kernel ends at its deadline and that
// no second attempt is made meanwhile.
func TestOneAtATime(t *testing.T) {
	noLeaks(t)
	once := make(singleCall, 1)
	release := make(chan struct{})
	looks := 0
	hang := func() error {
		looks++
		<-release
		return nil
	}
	mustSee(t, once.runBounded(soon(t), 0, "the mount", hang), "the mount hangs")
	mustSee(t, once.runBounded(soon(t), 0, "the mount", hang), "the mount still hangs since an earlier probe")
	close(release)
	if err := once.runBounded(t.Context(), 0, "the mount", func() error { return nil }); err != nil {
		t.Errorf("after the mount came back: %v", err)
	}
	if looks != 1 {
		t.Errorf("%d looks were sent", looks)
	}
}
