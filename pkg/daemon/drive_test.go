package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/roles"
)

// endsWithDriver is a context that ends together with the driver: code that waits for both observes
// the driver's end first.
type endsWithDriver struct{ context.Context }

var errElsewhere = errors.New("the run ends for a reason of its own")

func (endsWithDriver) Err() error { return errElsewhere }

// TestDriverEndsAsTheRunDoes ends the driver and the run at the same time. A driver that exits with
// 0 has ended the job; one that fails may have failed because of the end of the run.
func TestDriverEndsAsTheRunDoes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, driver string
		orderly      bool
	}{
		{"well", "exit 0", true},
		{"with a code", "exit 3", false},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			h := aHead(t, tc.driver)
			err := h.runDriver(endsWithDriver{context.Background()})
			if tc.orderly != lifecycle.IsOrderly(err) || !tc.orderly && !errors.Is(err, errElsewhere) {
				t.Errorf("the run ends by %v", err)
			}
		})
	}
}

// aHead returns a head that has created its run directory and has no background tasks.
func aHead(t *testing.T, driver string) *head {
	t.Helper()
	n, err := newNode(t.Context(), newJob(t, 1, driver).ready(0), roles.RoleHead)
	if err != nil {
		t.Fatal(err)
	}
	h := newHead(n)
	t.Cleanup(func() {
		n.CancelRun(&lifecycle.Outcome{Orderly: true})
		h.stopChildren(&lifecycle.Outcome{})
		h.peerLinks.Close()
		n.closeAll()
	})
	if err := h.openRunDirectory(); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestLagging ends the run before a start and while a start is in progress.
func TestLagging(t *testing.T) {
	t.Parallel()
	end := errors.New("the end")
	synctest.Test(t, func(t *testing.T) {
		n := bare(t, deps.Config{}, nil)
		ctx, cancel := context.WithCancelCause(n.WorkCtx)
		late, done := n.ExtendForStart(ctx)
		short, over := n.ExtendForStart(ctx)
		over()
		cancel(end)
		time.Sleep(lifecycle.StartExtension - 1)
		synctest.Wait()
		if late.Err() != nil || short.Err() == nil {
			t.Errorf("just before the lag is over: %v and, for who has started, %v", context.Cause(late), context.Cause(short))
		}
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		if !errors.Is(context.Cause(late), end) {
			t.Errorf("after the lag it has ended by %v, want %v", context.Cause(late), end)
		}
		done()
		if never, _ := n.ExtendForStart(ctx); never.Err() == nil {
			t.Error("what begins after the end has come goes on")
		}
		n.Close()
	})
}
