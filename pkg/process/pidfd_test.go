package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAwaitGone verifies that the end of a process that is not a child is detected, and not before
// it ends.
func TestAwaitGone(t *testing.T) {
	shell := exec.Command("/bin/sh", "-c", "sleep 1000 & echo $!; read line")
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = shell.Wait() })
	said := make([]byte, 32)
	n, err := out.Read(said)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(said[:n])))
	if err != nil {
		t.Fatal(err)
	}
	errNotYet := errors.New("not yet")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errNotYet)
	defer cancel()
	if err := AwaitProcessEnd(ctx, pid); !errors.Is(err, errNotYet) {
		t.Errorf("while it runs: %v", err)
	}
	gone := make(chan error, 1)
	go func() { gone <- AwaitProcessEnd(t.Context(), pid) }()
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-gone:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("its end is not known")
	}
	_ = in.Close()
	_ = shell.Wait() // its PID is no longer in use
	if err := AwaitProcessEnd(t.Context(), 1<<22+1); err != nil {
		t.Errorf("of a number that no process has: %v", err)
	}
}
