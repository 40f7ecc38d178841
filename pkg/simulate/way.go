package simulate

import (
	"errors"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// way is a daemon's way to the share: its calls are counted, take longer than the
// disk's own, wait for a slot, and come to nothing once the daemon is dead.
type way struct {
	meter  *signal.Meter
	told   func(signal.Op)      // of each call, as it begins
	delay  func() time.Duration // how much longer the next call takes; nil: not at all
	slots  chan struct{}        // bounds the calls under way at once, of all daemons
	victim *victim              // the daemon, where it is to die; or nil
}

var _ signal.Caller = (*way)(nil)

var errDead = errors.New("the daemon is dead")

// Call makes a call. Who is dead gets no answer, and is told so when nobody
// looks any more.
func (w *way) Call(op signal.Op, path string, do func() error) error {
	if w.victim != nil && w.victim.isDead() {
		<-w.victim.buried
		return errDead
	}
	return w.meter.Call(op, path, func() error {
		w.told(op)
		if w.delay != nil {
			time.Sleep(w.delay())
		}
		w.slots <- struct{}{}
		defer func() { <-w.slots }()
		return do()
	})
}
