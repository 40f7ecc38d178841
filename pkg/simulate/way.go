package simulate

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// way is a daemon's way to the share: the file system, into which its calls are
// counted, take longer than they would, wait for a slot, and come to nothing once
// the daemon is dead.
type way struct {
	signal.Share
	meter  *signal.Meter
	told   func()               // of each call, as it begins
	delay  func() time.Duration // how much longer the next call takes; nil: not at all
	slots  chan struct{}        // bounds the calls under way at once, of all daemons
	marked func(name string)    // of each file that was written
	victim *victim              // the daemon, where it is to die; or nil
}

var _ signal.Porter = (*way)(nil)

func newWay(told func(), delay func() time.Duration, slots chan struct{}) *way {
	w := &way{meter: new(signal.Meter), told: told, delay: delay, slots: slots, marked: func(string) {}}
	w.Share = signal.Disk(w)
	return w
}

var errDead = errors.New("the daemon is dead")

// Enter implements signal.Porter. Who is dead gets no answer, and is told so when
// nobody looks any more.
func (w *way) Enter(op signal.Op, path string) (time.Time, error) {
	if w.victim != nil && w.victim.alive.Err() != nil {
		<-w.victim.buried
		return time.Time{}, errDead
	}
	entered, err := w.meter.Enter(op, path)
	w.told()
	if w.delay != nil {
		time.Sleep(w.delay())
	}
	w.slots <- struct{}{}
	return entered, err
}

// Leave implements signal.Porter.
func (w *way) Leave(op signal.Op, path string, entered time.Time) {
	<-w.slots
	w.meter.Leave(op, path, entered)
}

// Write implements signal.Mutation.
func (w *way) Write(path string, data []byte, durable bool) error {
	err := w.Share.Write(path, data, durable)
	if err == nil {
		w.marked(filepath.Base(path))
	}
	return err
}
