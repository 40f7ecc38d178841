package process

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func isRecorded(pid int) bool {
	_, isUnreaped := unreapedForks.Load(pid)
	return isUnreaped
}

// TestHelper verifies that a helper ends with its standard input, that it is killed if it does not
// end in time, and that it does not count as an orphan as long as it lives.
func TestHelper(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		limit  time.Duration
		want   string
	}{
		"ends with its input": {"read -r line; echo $line; cat; echo end", time.Minute, "exit status 0"},
		"ignores its input": {"read -r line; echo $line; exec sleep 1000 <&-",
			100 * time.Millisecond, "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			out := &HeadBuffer{MaxBytes: 100}
			ended := false
			h, err := StartHelper(t.Context(),
				&exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", tc.script}, Stdout: out}, func() { ended = true })
			if err != nil {
				t.Fatal(err)
			}
			_, _ = h.Stdin.Write([]byte("hello\n"))
			until(t, "output", func() (bool, any) { return strings.HasPrefix(out.String(), "hello"), out.String() })
			pid := h.PID
			if !isRecorded(pid) {
				t.Error("it counts as an orphan")
			}
			ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
			defer cancel()
			h.Close(ctx)
			<-h.Ended
			if !ended || h.State.String() != tc.want || isRecorded(pid) {
				t.Errorf("it ended: %v, with %v; recorded: %v", ended, h.State, isRecorded(pid))
			}
		})
	}
}

func TestHelperDoesNotStart(t *testing.T) {
	cause := errors.New("late")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := StartHelper(ctx, &exec.Cmd{Path: "/bin/cat"}, func() {}); !errors.Is(err, cause) {
		t.Errorf("with an ended context: %v", err)
	}
	_, err := StartHelper(t.Context(), &exec.Cmd{Path: "/nonexistent/cat"}, func() {})
	if err == nil || !strings.HasPrefix(err.Error(), "cannot start it: fork/exec /nonexistent/cat: ") {
		t.Errorf("without a program: %v", err)
	}
}
