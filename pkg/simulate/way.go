package simulate

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// way is one daemon's access to the shared file system. It counts the daemon's calls, delays them,
// lets them wait for a slot, and blocks them after the daemon's death.
type way struct {
	signal.SharedFS
	meter  *signal.CallMeter
	told   func()               // called at the beginning of each call
	delay  func() time.Duration // returns the delay of the next call; nil for no delay
	slots  chan struct{}        // limits the concurrent calls of all daemons
	marked func(name string)    // called for each file that was written
	victim *victim              // the daemon, if it should die; otherwise nil
}

var _ signal.Interceptor = (*way)(nil)

// newWay returns the access of one daemon to the file system of this machine.
func newWay(told func(), delay func() time.Duration, slots chan struct{}) *way {
	w := &way{meter: new(signal.CallMeter), told: told, delay: delay, slots: slots, marked: func(string) {}}
	w.SharedFS = signal.NewDiskFS(w)
	return w
}

// errDead is the result of all calls after the daemon's death.
var errDead = errors.New("the daemon is dead")

// BeginCall implements signal.Interceptor. A call of a dead daemon gets no answer; it returns
// errDead only after all other daemons have returned.
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
