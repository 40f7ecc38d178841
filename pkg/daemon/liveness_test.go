package daemon

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestALossIsKnownWithTheEnd verifies that, once a loss is known, the run has ended. After a
// failure of the driver, another goroutine may check for losses at any moment.
func TestALossIsKnownWithTheEnd(t *testing.T) {
	lost := health.ObservedFailure{Failure: record.Failure{Kind: health.DaemonDied, LostNodes: []int{1}}}
	for range 2000 {
		d := &head{node: &node{Lifetime: lifecycle.NewLifetime(t.Context()), Publisher: &lifecycle.Publisher{Events: eventlog.New()}}}
		d.Background(func(context.Context) { d.recordFailure(lost) })
		for began := time.Now(); !d.failures.LostNodes()[1] && time.Since(began) < ceiling; {
			runtime.Gosched()
		}
		goesOn := d.RunCtx.Err() == nil
		d.Close()
		if goesOn {
			t.Fatal("node 1 is lost, and the run goes on")
		}
	}
}
