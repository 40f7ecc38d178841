package simulate

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// TestWay verifies that the added latency and the wait for a slot count as the call's own time, and
// that a dead daemon makes no calls and none are counted.
func TestWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		w := newSimulatedShare(func() { told.Add(1) }, func() time.Duration { return time.Second }, make(chan struct{}, 1))
		w.faultTarget = newFaultTarget(Config{Death: HeadDies})
		for range 2 {
			go func() {
				entered, _ := w.BeginCall(signal.OpList, "nodes")
				time.Sleep(time.Second)
				w.EndCall(signal.OpList, "nodes", entered)
			}()
		}
		time.Sleep(time.Minute)
		if stats := w.meter.CallStats(); stats.Calls != 2 || told.Load() != 2 || stats.Busy != 5*time.Second {
			t.Errorf("%d calls, of which %d were told of, took %s, want 2 that took 2s and 3s", stats.Calls, told.Load(), stats.Busy)
		}
		w.faultTarget.kill()
		close(w.faultTarget.released)
		_, err := w.Stat(t.TempDir())
		if stats := w.meter.CallStats(); !errors.Is(err, errDaemonDead) || stats.Calls != 2 || told.Load() != 2 {
			t.Errorf("got %v, and %d calls are counted", err, stats.Calls)
		}
	})
}
