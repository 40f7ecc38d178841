package process

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"
)

// TestAwaitGone verifies that the end of a process is detected before it is reaped, and not before
// it ends.
func TestAwaitGone(t *testing.T) {
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	errNotYet := errors.New("not yet")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errNotYet)
	defer cancel()
	if err := AwaitProcessEnd(ctx, sleep.Process.Pid); !errors.Is(err, errNotYet) {
		t.Errorf("while it runs: %v", err)
	}
	time.AfterFunc(10*time.Millisecond, func() { _ = sleep.Process.Kill() })
	ctx, cancel = context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	if err := AwaitProcessEnd(ctx, sleep.Process.Pid); err != nil {
		t.Error(err)
	}
	_ = sleep.Wait()
	if err := AwaitProcessEnd(t.Context(), 1<<22+1); err != nil {
		t.Errorf("of a number that no process has: %v", err)
	}
}
