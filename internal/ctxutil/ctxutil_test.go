package ctxutil

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if !SleepContext(ctx, 2*time.Second) || time.Since(began) != 2*time.Second {
			t.Errorf("a pause of 2s took %s", time.Since(began))
		}
		if SleepContext(ctx, time.Hour) || time.Since(began) != 3*time.Second {
			t.Errorf("a pause went on for %s, after the end of its context", time.Since(began)-3*time.Second)
		}
		if SleepContext(ctx, 0) {
			t.Error("no pause at all has outlived its context")
		}
	})
}

func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		early, late := make(chan struct{}), make(chan struct{})
		time.AfterFunc(time.Second, func() { close(early) })
		began := time.Now()
		if !AwaitDone(ctx, early) || time.Since(began) != time.Second {
			t.Errorf("it is not over after %s", time.Since(began))
		}
		if AwaitDone(ctx, late) || time.Since(began) != 2*time.Second {
			t.Errorf("it is over after %s, or its context is not", time.Since(began))
		}
		if !AwaitDone(ctx, early) {
			t.Error("what is over is not, once the context has ended")
		}
	})
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		if began := time.Now(); AwaitDoneFor(done, time.Second) || time.Since(began) != time.Second {
			t.Errorf("it is over after %s", time.Since(began))
		}
		time.AfterFunc(time.Second, func() { close(done) })
		if began := time.Now(); !AwaitDoneFor(done, time.Hour) || time.Since(began) != time.Second {
			t.Errorf("it is not over after %s", time.Since(began))
		}
	})
}

func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			name       string
			takes, lag time.Duration
			want       error
			after      time.Duration
		}{
			{"in time", time.Second, 0, context.Canceled, time.Second},
			{"late", 4 * time.Second, 2 * time.Second, context.Canceled, 4 * time.Second},
			{"too late", 6 * time.Second, 2 * time.Second, ErrAbandoned, 5 * time.Second},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			began := time.Now()
			got, err := CallBounded(ctx, tc.lag, func() (int, error) {
				time.Sleep(tc.takes)
				return 7, context.Canceled
			})
			if !errors.Is(err, tc.want) || (got == 7) == (tc.want == ErrAbandoned) || time.Since(began) != tc.after {
				t.Errorf("%s: %d, %v after %s", tc.name, got, err, time.Since(began))
			}
			cancel()
			synctest.Wait()
			time.Sleep(time.Minute)
		}
	})
}
