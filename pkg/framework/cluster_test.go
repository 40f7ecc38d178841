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

func TestAwaitNil(t *testing.T) {
	for _, tc := range []struct {
		name  string
		from  time.Duration // since the start, when the check succeeds
		fails bool
	}{
		{"at once", 0, false}, {"after a while", 3 * time.Second, false}, {"never", time.Hour, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errOver)
				defer cancel()
				began, look := time.Now(), wellFrom(tc.from)
				err := awaitNil(ctx, func(context.Context) error { return look(time.Since(began)) })
				if errors.Is(err, errOver) != tc.fails || (err != nil) != tc.fails {
					t.Errorf("the error is %v", err)
				}
				if took := time.Since(began); took < min(tc.from, 10*time.Second) || took > tc.from+300*time.Millisecond {
					t.Errorf("it took %s", took)
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

// TestAwaitNilBoundsALook verifies that a check that never returns is cancelled and the next one
// made.
func TestAwaitNilBoundsALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errOver)
		defer cancel()
		looks, began := 0, time.Now()
		err := awaitNil(ctx, func(ctx context.Context) error {
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

// TestAwaitNilEndsWithItsContext verifies that the end of the wait does not wait for a check.
func TestAwaitNilEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(2*time.Second, func() { cancel(errOver) })
		began := time.Now()
		err := awaitNil(ctx, func(ctx context.Context) error {
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
		missing := c.AwaitMembers(t.Context(), make([]Member, 2), time.Minute)
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
		if err := c.AwaitMembers(ctx, nil, time.Minute); !errors.Is(err, errOver) {
			t.Errorf("at the end of its context the error is %v", err)
		}
		if err := (Cluster{Framework: None{}}).AwaitMembers(t.Context(), make([]Member, 2), time.Minute); err != nil {
			t.Errorf("without a list the error is %v", err)
		}
	})
}
