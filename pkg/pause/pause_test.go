package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if !For(ctx, 2*time.Second) || time.Since(began) != 2*time.Second {
			t.Errorf("a pause of 2s took %s", time.Since(began))
		}
		if For(ctx, time.Hour) || time.Since(began) != 3*time.Second {
			t.Errorf("a pause went on for %s, after the end of its context", time.Since(began)-3*time.Second)
		}
		if For(ctx, 0) {
			t.Error("no pause at all has outlived its context")
		}
	})
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		if began := time.Now(); Until(done, time.Second) || time.Since(began) != time.Second {
			t.Errorf("it is over after %s", time.Since(began))
		}
		time.AfterFunc(time.Second, func() { close(done) })
		if began := time.Now(); !Until(done, time.Hour) || time.Since(began) != time.Second {
			t.Errorf("it is not over after %s", time.Since(began))
		}
	})
}
