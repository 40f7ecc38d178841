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

// TestAwaitMembers verifies that the members are listed until all are there, that a listing that
// never returns is cancelled and the next one made, and that the wait ends with its time or its context.
func TestAwaitMembers(t *testing.T) {
	missing := errors.New("n1 is missing")
	hangs := func(ctx context.Context, _ int, _ time.Duration) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for _, tc := range []struct {
		name string
		list func(ctx context.Context, times int, since time.Duration) error
		took time.Duration
		says string // empty: no error
	}{
		{"at once", func(context.Context, int, time.Duration) error { return nil }, 0, ""},
		{"after a while", func(_ context.Context, _ int, since time.Duration) error {
			if since < 3*time.Second {
				return missing
			}
			return nil
		}, 3 * time.Second, ""},
		{"never", func(context.Context, int, time.Duration) error { return missing }, time.Minute, "n1 is missing"},
		{"it hangs once", func(ctx context.Context, times int, since time.Duration) error {
			if times > 1 {
				return nil
			}
			return hangs(ctx, times, since)
		}, 5 * time.Second, ""},
		{"it hangs until the context ends", hangs, 2 * time.Second, errOver.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tc.says == errOver.Error() {
					time.AfterFunc(tc.took, func() { cancel(errOver) })
				}
				began, times := time.Now(), 0
				c := Cluster{Framework: brokenFramework{list: func(ctx context.Context) error {
					times++
					return tc.list(ctx, times, time.Since(began))
				}}}
				err := c.AwaitMembers(ctx, make([]Member, 2), time.Minute)
				if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
					t.Errorf("the error is %v", err)
				}
				if took := time.Since(began); took < tc.took || took > tc.took+500*time.Millisecond {
					t.Errorf("it took %s, want %s", took, tc.took)
				}
			})
		})
	}
}

// brokenFramework describes no service. list lists its members; if it is nil, one is missing.
type brokenFramework struct {
	Framework
	list func(ctx context.Context) error
}

func (brokenFramework) Name() string { return "broken" }

func (brokenFramework) HeadService(Node) (*Service, Endpoint, error) {
	return nil, Endpoint{Address: "n0"}, errors.New("no port is free")
}

func (brokenFramework) WorkerService(Node, Endpoint) (*Service, error) {
	return nil, errors.New("no port is free")
}

func (b brokenFramework) CheckMembers(ctx context.Context, _ Node, _ Endpoint, _ []Member) error {
	if b.list != nil {
		return b.list(ctx)
	}
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
			{ofHead, "no port is free"}, {ofWorker, "no port is free"},
			{missing, "broken does not report all 2 nodes after 1m0s: "}, {missing, "n1 is missing"},
		} {
			f, ok := errors.AsType[*health.Failure](tc.err)
			if !ok || f.Kind != health.ServiceDied || !strings.Contains(f.Message, tc.says) {
				t.Errorf("the error is %#v, want %q", tc.err, tc.says)
			}
		}
		if err := (Cluster{Framework: None{}}).AwaitMembers(t.Context(), make([]Member, 2), time.Minute); err != nil {
			t.Errorf("without a list the error is %v", err)
		}
	})
}
