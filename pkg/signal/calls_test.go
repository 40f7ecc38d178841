package signal

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestGuarded(t *testing.T) {
	over := errors.New("over")
	failed := errors.New("failed")
	for _, tc := range []struct {
		name  string
		takes time.Duration
		fails error
		err   error
		after time.Duration
	}{
		{"in time", time.Second, nil, nil, 0},
		{"in time, with an error", time.Second, failed, failed, 0},
		{"too late", time.Hour, nil, over, time.Minute},
		{"too late, with an error", time.Hour, failed, over, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, over)
				defer cancel()
				got, err := guardedCall(ctx, Access{}.withDefaults(), "list", "/logs", func(string) (int, error) {
					time.Sleep(tc.takes)
					return 7, tc.fails
				})
				if !errors.Is(err, tc.err) || err == nil && got != 7 {
					t.Errorf("got %d, %v; want %v", got, err, tc.err)
				}
				var stall *StallError
				if errors.As(err, &stall) != (tc.after > 0) || stall != nil && stall.Elapsed != tc.after {
					t.Errorf("got %#v, want a stall of %s", stall, tc.after)
				}
				time.Sleep(2 * time.Hour) // until the abandoned call has ended
			})
		})
	}
}

func TestGuardedHasNoTimeLeft(t *testing.T) {
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	err := Access{}.withDefaults().guardedDo(ctx, "publish", "/logs", func() error {
		t.Error("called though the context had ended")
		return nil
	})
	var stall *StallError
	if !errors.As(err, &stall) || !errors.Is(err, over) || stall.Elapsed != 0 {
		t.Errorf("got %v", err)
	}
}
