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
	signal.SharedFS
	meter  *signal.CallMeter
	told   func()               // of each call, as it begins
	delay  func() time.Duration // how much longer the next call takes; nil: not at all
	slots  chan struct{}        // bounds the calls under way at once, of all daemons
	marked func(name string)    // of each file that was written
	victim *victim              // the daemon, where it is to die; or nil
}

var _ signal.Interceptor = (*way)(nil)

func newWay(told func(), delay func() time.Duration, slots chan struct{}) *way {
	w := &way{meter: new(signal.CallMeter), told: told, delay: delay, slots: slots, marked: func(string) {}}
	w.SharedFS = signal.NewDiskFS(w)
	return w
}

var errDead = errors.New("the daemon is dead")

// BeginCall implements signal.Interceptor. Who is dead gets no answer, and is told so when
// nobody looks any more.
func (w *way) BeginCall(op signal.Op, path string) (time.Time, error) {
	if w.victim != nil && w.victim.alive.Err() != nil {
		<-w.victim.buried
		return time.Time{}, errDead
	}
	entered, err := w.meter.BeginCall(op, path)
	w.told()
	if w.delay != nil {
		time.Sleep(w.delay())
	}
	w.slots <- struct{}{}
	return entered, err
}

// EndCall implements signal.Interceptor.
func (w *way) EndCall(op signal.Op, path string, entered time.Time) {
	<-w.slots
	w.meter.EndCall(op, path, entered)
}

// WriteFile implements signal.WriteOps.
func (w *way) WriteFile(path string, data []byte, durable bool) error {
	err := w.SharedFS.WriteFile(path, data, durable)
	if err == nil {
		w.marked(filepath.Base(path))
	}
	return err
}
