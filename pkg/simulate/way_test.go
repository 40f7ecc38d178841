package simulate

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// What is added to a call is counted as its own time, and so is its wait for a
// slot; who is dead makes none, and none is counted.
func TestWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		w := newWay(func(signal.Op) { told++ }, func() time.Duration { return time.Second }, make(chan struct{}, 1))
		w.victim = newVictim(Config{Death: DeathOfHead})
		for range 2 {
			go func() {
				_ = w.Call(signal.OpList, "nodes", func() error { time.Sleep(time.Second); return nil })
			}()
		}
		time.Sleep(time.Minute)
		if stats := w.meter.Stats(); stats.Calls != 2 || told != 2 || stats.Busy != 5*time.Second {
			t.Errorf("%d calls, of which %d were told of, took %s, want 2 that took 2s and 3s", stats.Calls, told, stats.Busy)
		}
		w.victim.die()
		close(w.victim.buried)
		err := w.Call(signal.OpList, "nodes", func() error { t.Error("a call was made"); return nil })
		if stats := w.meter.Stats(); !errors.Is(err, errDead) || stats.Calls != 2 || told != 2 {
			t.Errorf("got %v, and %d calls are counted", err, stats.Calls)
		}
	})
}
