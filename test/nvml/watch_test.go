package nvml_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/test/nvml"
)

// watch runs the child process that monitors events, sets the lines as answers of the library when
// it is ready, and returns the first event.
func watch(t *testing.T, fake nvml.Fake, lines ...string) gpu.Event {
	t.Helper()
	seen := errors.New("the event has been seen")
	limit, stop := context.WithTimeoutCause(t.Context(), patience,
		errors.New("there has been no event"))
	defer stop()
	ctx, cancel := context.WithCancelCause(limit)
	defer cancel(nil)
	var first gpu.Event
	session := gpu.Child{Program: program, Env: fake.Environ()}.NewSession()
	defer func() { _ = session.Close(context.WithoutCancel(ctx)) }()
	err := session.Watch(ctx, func(gpus int) {
		if gpus != 8 {
			t.Errorf("%d GPUs are watched, want 8", gpus)
		}
		if err := fake.Add(host(t), lines...); err != nil {
			t.Error(err)
		}
	}, func(e gpu.Event) {
		if ctx.Err() == nil {
			first = e
			cancel(seen)
		}
	})
	if err != nil || !errors.Is(context.Cause(ctx), seen) {
		t.Fatalf("the watch has ended with %v, %v", err, context.Cause(ctx))
	}
	return first
}

// TestWatch checks that events of a GPU during the monitoring are reported, but none from before.
func TestWatch(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []string
		want  gpu.Event
	}{
		{"an Xid", []string{"event 3 xid 79"},
			gpu.Event{Kind: gpu.KindXid, Xid: 79, GPU: 3, Bus: "0000:61:00.0"}},
		{"a GPU that asks for a reboot", []string{"gpu 1 recovery 2", "event 1 recovery"},
			gpu.Event{Kind: gpu.KindRecovery, Recovery: 2, GPU: 1, Bus: "0000:43:00.0"}},
		{"a GPU that no longer answers", []string{"gpu 7 handle 15"},
			gpu.Event{Kind: gpu.KindLost, GPU: 7, Bus: "0000:df:00.0",
				Detail: string(gpu.GPUIsLost)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := watch(t, saying(t, "event 0 xid 13"), tc.lines...)
			if got.UUID == "" || got.At.IsZero() {
				t.Errorf("the event does not say which GPU it was, or when: %+v", got)
			}
			got.UUID, got.At = "", time.Time{}
			if got != tc.want {
				t.Errorf("the event is %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestNothingToWatch checks that the monitor reports a missing library.
func TestNothingToWatch(t *testing.T) {
	none := nvml.Fake{Library: filepath.Join(t.TempDir(), "libnvidia-ml.so.1")}
	session := gpu.Child{Program: program, Env: none.Environ()}.NewSession()
	defer func() { _ = session.Close(t.Context()) }()
	err := session.Watch(t.Context(), func(n int) {
		t.Errorf("%d GPUs are watched", n)
	}, func(e gpu.Event) {
		t.Errorf("there is %+v", e)
	})
	if err == nil {
		t.Error("the watch has ended without a word")
	}
}
