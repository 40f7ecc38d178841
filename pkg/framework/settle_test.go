package framework

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
)

var errOver = errors.New("the time is over")

func TestSettle(t *testing.T) {
	for _, tc := range []struct {
		name   string
		settle time.Duration
		within time.Duration
		// look is the result of a check at a time since the start.
		look  func(since time.Duration) error
		took  time.Duration // minimum; the maximum is one pause longer
		fails bool
	}{
		{"well at once, no settling", 0, time.Minute, func(time.Duration) error { return nil }, 0, false},
		{"well at once", time.Second, time.Minute, func(time.Duration) error { return nil }, time.Second, false},
		{"well after a while", time.Second, time.Minute, wellFrom(3 * time.Second), 4 * time.Second, false},
		{"a relapse begins it anew", 2 * time.Second, time.Minute, func(since time.Duration) error {
			if since < time.Second || (since >= 2*time.Second && since < 2500*time.Millisecond) {
				return errors.New("n1 is missing")
			}
			return nil
		}, 4500 * time.Millisecond, false},
		{"never well", time.Second, 10 * time.Second, wellFrom(time.Hour), 10 * time.Second, true},
		{"well too late to settle", 3 * time.Second, 10 * time.Second, wellFrom(8 * time.Second), 10 * time.Second, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), tc.within, errOver)
				defer cancel()
				began := time.Now()
				err := AwaitStable(ctx, tc.settle, func(context.Context) error { return tc.look(time.Since(began)) })
				if errors.Is(err, errOver) != tc.fails || (err != nil) != tc.fails {
					t.Errorf("the error is %v", err)
				}
				if took := time.Since(began); took < tc.took || took > tc.took+300*time.Millisecond {
					t.Errorf("it took %s, not %s", took, tc.took)
				}
			})
		})
	}
}

func wellFrom(when time.Duration) func(time.Duration) error {
	return func(since time.Duration) error {
		if since < when {
			return errors.New("n1 is missing")
		}
		return nil
	}
}

func TestSettleTellsWhoIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errOver)
		defer cancel()
		err := AwaitStable(ctx, 0, func(context.Context) error { return errors.New("n1 is missing") })
		if err == nil || !strings.Contains(err.Error(), "n1 is missing") {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestSettleBoundsALook verifies that a check that never returns is cancelled and the next one
// made.
func TestSettleBoundsALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errOver)
		defer cancel()
		looks, began := 0, time.Now()
		err := AwaitStable(ctx, 0, func(ctx context.Context) error {
			if looks++; looks > 1 {
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if took := time.Since(began); err != nil || looks != 2 || took > 10*time.Second {
			t.Errorf("after %d looks and %s: %v", looks, took, err)
		}
	})
}

// TestSettleEndsWithItsContext verifies that the end of the wait does not wait for a check.
func TestSettleEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(2*time.Second, func() { cancel(errOver) })
		began := time.Now()
		err := AwaitStable(ctx, time.Hour, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if took := time.Since(began); !errors.Is(err, errOver) || took != 2*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// brokenFramework describes no service, and never lists its members.
type brokenFramework struct{ Framework }

func (brokenFramework) Name() string { return "broken" }

func (brokenFramework) HeadService(Node) (*Service, Endpoint, error) {
	return nil, Endpoint{Address: "n0"}, errors.New("no port is free")
}

func (brokenFramework) WorkerService(Node, Endpoint) (*Service, error) {
	return nil, errors.New("no port is free")
}

func (brokenFramework) CheckMembers(context.Context, Node, Endpoint, []Member) error {
	return errors.New("n1 is missing")
}

// TestBrokenCluster verifies that the errors of a framework are failures of its services.
func TestBrokenCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Cluster{Framework: brokenFramework{}}
		_, ofHead := c.HeadService()
		_, ofWorker := c.WorkerService(Node{})
		missing := c.AwaitMembers(t.Context(), make([]Member, 2), time.Second, time.Minute)
		for _, tc := range []struct {
			err  error
			says string
		}{
			{ofHead, "no port is free"}, {ofWorker, "no port is free"}, {missing, "broken does not report all 2 nodes after 1m0s: "}, {missing, "n1 is missing"},
		} {
			f, ok := errors.AsType[*health.Failure](tc.err)
			if !ok || f.Kind != health.ServiceDied || !strings.Contains(f.Message, tc.says) {
				t.Errorf("the error is %#v, want %q", tc.err, tc.says)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errOver)
		if err := c.AwaitMembers(ctx, nil, 0, time.Minute); !errors.Is(err, errOver) {
			t.Errorf("at the end of its context the error is %v", err)
		}
		if err := (Cluster{Framework: None{}}).AwaitMembers(t.Context(), make([]Member, 2), time.Second, time.Minute); err != nil {
			t.Errorf("without a list the error is %v", err)
		}
	})
}
