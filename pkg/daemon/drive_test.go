package daemon

import (
	"context"
	"errors"
	"testing"

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
			driver, err := h.node.children.Start(t.Context(), h.DriverSpec())
			if err != nil {
				t.Fatal(err)
			}
			<-driver.Ended()
			err = h.driverEnd(endsWithDriver{context.Background()}, driver)
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
		h.node.stopChildren(&lifecycle.Outcome{})
		h.peerLinks.Close()
		n.closeAll()
	})
	if err := h.openRunDirectory(); err != nil {
		t.Fatal(err)
	}
	return h
}
